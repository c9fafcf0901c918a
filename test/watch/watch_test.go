package watch

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

const (
	patience = 60 * time.Second
	box      = "http://127.0.0.1:7470" // rocastd, by default
	promPort = "127.0.0.1:9099"
	cut      = 2 // the host whose cable is cut
)

var installed = flag.Bool("installed", false, "run the tests that need Prometheus and Chromium; make watch installs them")

// needs returns the path of a program of Debian's, or leaves the test out.
func needs(t *testing.T, name string) string {
	t.Helper()
	if !*installed {
		t.Skipf("needs %s, which is large, and many seconds; make watch runs it", name)
	}
	path, err := exec.LookPath(name)
	testlab.Must(t, err)
	return path
}

func TestMain(m *testing.M) { boxes.Main(m) }

// lab is a box that runs rocastd, with a source and three receivers.
type lab struct {
	*bed.Bed
	t      *testing.T
	dir    string
	daemon *boxes.Daemon
	web    *http.Client // from the box
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := newBareLab(t)
	l.daemon.Create(t, "g1", l.group().File())
	return l
}

const (
	sourcePSN   = 0xFFFF00
	memoryBytes = 1 << 20
)

// group is group g1 of all hosts, of which the first one is the source.
func (l *lab) group() *softgroup.Group {
	g := &softgroup.Group{Name: "g1", IP: l.GroupIP(), QPN: 1, Bytes: memoryBytes}
	g.Add(l.Hosts[0], softgroup.Sends, 17, sourcePSN, 0)
	for i, h := range l.Hosts[1:] {
		g.Add(h, softgroup.Receives, roce.QPN(18+i), 0, roce.PSN(1000*i+5))
	}
	return g
}

// newBareLab is a lab without a group.
func newBareLab(t *testing.T) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	l := &lab{t: t, dir: t.TempDir()}
	var err error
	l.Bed, err = bed.New(bed.Options{Hosts: 4})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, l.Close()) })
	l.web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: l.dial}, Timeout: patience}
	l.daemon = boxes.Launch(t, l.Box, boxes.Ports(l.Ports()...))
	return l
}

func (l *lab) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = l.Box.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name, text string) {
	testlab.Must(l.t, os.WriteFile(l.path(name), []byte(text), 0o644))
}

func (l *lab) waitFor(what string, done func() bool) {
	l.t.Helper()
	testlab.Eventually(l.t, patience, what, done, l.daemon.Log)
}

func (l *lab) traffic() api.GroupTraffic {
	l.t.Helper()
	t, err := l.daemon.Client().Traffic(l.t.Context(), "g1")
	testlab.Must(l.t, err)
	return t.Groups[0]
}

func (l *lab) state() string { return l.traffic().State }

// receiver describes a host of the group that is not the source.
func (l *lab) receiver(host int) api.ReceiverTraffic { return l.traffic().Receivers[host-1] }

// cable pulls the cable of the host out of the box, or plugs it in again.
func (l *lab) cable(state string) {
	l.t.Helper()
	_, err := l.Hosts[cut].NS.Exec("ip", "link", "set", "eth0", state)
	testlab.Must(l.t, err)
}

// The alert for a receiver in trouble fires when the cable of one is cut, names the group and the
// receiver, and is over when the cable is back.
func TestPrometheusFiresTheAlertOnACutCable(t *testing.T) {
	program := needs(t, "prometheus")
	l := newLab(t)
	l.prometheus(program)
	l.waitFor("prometheus scrapes rocastd", func() bool {
		return strings.Contains(l.ask("/api/v1/query?query=rocast_group_state"), `"group":"g1"`)
	})
	if firing := l.firing(); len(firing) > 0 {
		t.Errorf("alerts before anything happened: %v", firing)
	}
	l.cable("down")
	var of map[string]string
	l.waitFor("the alert fires", func() bool { of = l.firing()["RocastMemberInTrouble"]; return of != nil })
	if of["group"] != "g1" || of["member"] != l.Hosts[cut].IP.String() || of["trouble"] != api.TroubleUnreachable {
		t.Errorf("the alert has the labels %v", of)
	}
	if want := fmt.Sprintf("receiver %v of group g1 on 127.0.0.1:7470 is unreachable", l.Hosts[cut].IP); of["summary"] != want {
		t.Errorf("the alert says %q, want %q", of["summary"], want)
	}
	l.cable("up")
	l.waitFor("the alerts are over", func() bool { return len(l.firing()) == 0 })
}

// prometheus starts a Prometheus on the box. Its rules are those that are shipped, with less
// patience.
func (l *lab) prometheus(program string) {
	t := l.t
	t.Helper()
	rules, err := os.ReadFile("../../packaging/alerts.yaml")
	testlab.Must(t, err)
	l.write("alerts.yaml", regexp.MustCompile(`(?m)^(\s+for:) \d+[mhs]$`).ReplaceAllString(string(rules), "$1 2s"))
	l.write("prometheus.yml", "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yaml]\n"+
		"scrape_configs:\n  - job_name: rocast\n    static_configs: [{targets: [\"127.0.0.1:7470\"]}]\n")
	command := exec.Command(program, "--config.file", l.path("prometheus.yml"), "--storage.tsdb.path", l.path("data"), "--web.listen-address", promPort)
	log := &testlab.Output{}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testlab.Must(t, l.Box.Do(command.Start))
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
		if t.Failed() {
			t.Log(log)
		}
	})
}

// ask asks Prometheus; "" while it does not answer.
func (l *lab) ask(path string) string {
	answer, err := l.web.Get("http://" + promPort + path)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// firing returns the labels and the summary of the alerts that fire, by name.
func (l *lab) firing() map[string]map[string]string {
	l.t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				State               string
				Labels, Annotations map[string]string
			}
		}
	}
	firing := map[string]map[string]string{}
	if json.Unmarshal([]byte(l.ask("/api/v1/alerts")), &answer) != nil {
		return firing
	}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			a.Labels["summary"] = a.Annotations["summary"]
			firing[a.Labels["alertname"]] = a.Labels
		}
	}
	return firing
}

// The page names the group, its receivers, and the one whose cable is cut with the reason.
func TestThePageInABrowser(t *testing.T) {
	program := needs(t, "chromium")
	l := newLab(t)
	page := l.browse(program, "g1")
	for _, want := range []string{">g1</a>", "g1: ready", `data-name="this box"`, `data-name="` + l.Hosts[0].IP.String() + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, h := range l.Hosts[1:] {
		if !strings.Contains(page, `<g class="good" data-name="`+h.IP.String()+`"`) || !strings.Contains(page, "<td>"+h.IP.String()+"</td>") {
			t.Errorf("the page lacks the receiver %v", h.IP)
		}
	}
	if bad := strings.Count(page, `class="bad"`); bad > 0 {
		t.Errorf("%d elements are bad before anything happened", bad)
	}
	// Of whatever group an old address speaks, the groups that there are go on being shown.
	for hash, want := range map[string]string{"gone": `rocastd: there is no group "gone"`, "%": `role="status"></p>`} {
		if page := l.browse(program, hash); !strings.Contains(page, ">g1</a>") || !strings.Contains(page, want) {
			t.Errorf("#%s:\n%s", hash, page)
		}
	}
	l.cable("down")
	l.waitFor("the receiver is in trouble", func() bool { return l.receiver(cut).Trouble != "" })
	page = l.browse(program, "g1")
	for i, h := range l.Hosts[1:] {
		class := "good"
		if i+1 == cut {
			class = "bad"
		}
		if !strings.Contains(page, `<g class="`+class+`" data-name="`+h.IP.String()+`"`) {
			t.Errorf("the receiver %v is not %s", h.IP, class)
		}
	}
	for _, want := range []string{`<td class="bad">unreachable</td>`, l.receiver(cut).Reason, "g1: " + l.state()} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// browse returns the elements of the page with this hash after some seconds of its time.
func (l *lab) browse(program, hash string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	var out, errs testlab.Output
	command := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+l.path("chromium"), "--virtual-time-budget=4000", "--dump-dom", box+"/ui/#"+hash)
	command.Stdout, command.Stderr = &out, &errs
	if err := l.Box.Do(command.Start); err != nil {
		l.t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		l.t.Fatalf("%v\n%s", err, &errs)
	}
	return out.String()
}
