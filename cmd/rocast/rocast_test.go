package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/logs"
	"github.com/rocast/rocast/ctl/metrics"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/server"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/version"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	version.Version, version.Commit = "v0-test", "0123456789abcdef"
	os.Exit(m.Run())
}

// daemon is a daemon in this process, over the twins of its data path and network. 10.77.0.1 to
// 10.77.0.3 are reached through eth1 to eth3, 10.77.0.4 through a VLAN on eth3, and 10.77.0.9 is
// waited for.
type daemon struct {
	socket    string
	sw        *ctltest.Switch
	addresses *ctltest.Addresses
	config    configTwin
	control   *ctl.Controller
	server    *server.Server
	every     time.Duration // see env
}

// configTwin stands for the daemon's config file.
type configTwin struct {
	state  api.ConfigState
	done   api.Reloaded
	refuse error
}

func (c *configTwin) Reload(string) (api.Reloaded, error) { return c.done, c.refuse }
func (c *configTwin) State() api.ConfigState              { return c.state }

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	return startDaemonOver(t, ctltest.NewSwitch("eth1", "eth2", "eth3"))
}

func startDaemonOver(t *testing.T, sw *ctltest.Switch) *daemon {
	t.Helper()
	d := &daemon{socket: filepath.Join(t.TempDir(), "rocast.sock"), sw: sw, addresses: ctltest.NewAddresses()}
	d.config.state = api.ConfigState{File: "/etc/rocast/rocastd.yaml", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	state, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	controller := ctl.New(ctl.Parts{
		Switch: d.sw, NextHops: network(), Addresses: d.addresses, Store: state, Log: zap.NewNop(), Workers: 2,
	})
	log, err := logs.New(logs.JSON, "info", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(server.Config{
		Control: controller, Services: controller.Services, Reloader: &d.config,
		Features: func() []api.Feature {
			return []api.Feature{
				{Name: "shared-umem", Since: "5.10", Status: api.Available, Fallback: "none"},
				{Name: "multi-buffer", Since: "6.6", Status: api.Missing, Fallback: "path MTU 4096 cannot be carried"},
				{Name: "kick-budget", Since: "6.17", Status: api.Unknown, Detail: "operation not permitted"},
			}
		},
		Metrics: metrics.Handler(controller, func() bool { return false }), Log: zap.NewNop(), Level: log, Group: os.Getegid(),
	})
	d.control, d.server = controller, s
	l, err := server.Listen(d.socket, os.Getegid(), false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := controller.Close(); err != nil {
			t.Error(err)
		}
		state.Close()
	})
	return d
}

func network() *ctltest.Hops {
	hops := ctltest.NewHops()
	tagged := ctltest.Hop(3, "eth3", 1500, 4)
	tagged.L2Bytes = 18
	copy(tagged.L2[12:], "\x81\x00\x00\x64\x08\x00")
	hops.Set(map[string]nexthop.Hop{
		"10.77.0.1": ctltest.Hop(1, "eth1", 1500, 1), "10.77.0.2": ctltest.Hop(2, "eth2", 1500, 2),
		"10.77.0.3": ctltest.Hop(3, "eth3", 1500, 3), "10.77.0.4": tagged,
		"10.77.0.9": {Interface: 3, Reason: "the kernel is asking for the MAC of 10.77.0.9 on eth3"},
	})
	return hops
}

// run types a command, and returns what a shell would see.
func (d *daemon) run(args ...string) (exit int, stdout, stderr string) {
	var out, errs bytes.Buffer
	e := env{args: append(args, "--socket", d.socket), stdin: strings.NewReader(""), stdout: &out, stderr: &errs, every: d.every}
	exit = e.run(context.Background())
	return exit, out.String(), errs.String()
}

// must types a command that works.
func (d *daemon) must(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	exit, stdout, stderr := d.run(args...)
	if exit != exitOK || stderr != "" {
		t.Fatalf("rocast %s: exit %d: %s", strings.Join(args, " "), exit, stderr)
	}
	return stdout
}

// mustJSON is must with --json; the answer is read into into.
func (d *daemon) mustJSON(t *testing.T, into any, args ...string) {
	t.Helper()
	text := d.must(t, append(args, "--json")...)
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil || decoder.More() {
		t.Fatalf("rocast %s: not one JSON document of its kind (%v):\n%s", strings.Join(args, " "), err, text)
	}
}

// refused types a command that does not work, with and without --json.
func (d *daemon) refused(t *testing.T, wantExit int, wantKind api.Kind, want string, args ...string) {
	t.Helper()
	exit, stdout, stderr := d.run(args...)
	if exit != wantExit || stdout != "" || stderr != "rocast: "+want+"\n" {
		t.Errorf("rocast %s: exit %d, want %d\nstdout %s\nstderr %swant   rocast: %s", strings.Join(args, " "), exit, wantExit, stdout, stderr, want)
	}
	exit, stdout, stderr = d.run(append(args, "--json")...)
	var body api.ErrorBody
	if err := json.Unmarshal([]byte(stdout), &body); err != nil || body.Error == nil || exit != wantExit || stderr != "" {
		t.Errorf("rocast %s --json: exit %d\nstdout %s\nstderr %s", strings.Join(args, " "), exit, stdout, stderr)
	} else if body.Error.Kind != wantKind || !strings.HasSuffix(want, body.Error.Message) {
		t.Errorf("rocast %s --json: %+v", strings.Join(args, " "), *body.Error)
	}
}

// golden compares with testdata/name; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it)\ngot\n%s\nwant\n%s", path, got, want)
	}
}

var commands = []string{
	"", "group", "group create", "group update", "group ls", "group show", "group tree", "group rm", "member", "member ready", "region", "region add", "region load", "region rm", "region ls", "perftest", "perftest up", "perftest down", "perftest ls", "cm", "cm up", "cm down", "cm ls", "port", "port ls", "status", "top", "stats", "drops", "events", "capture", "trace", "trace inject", "trace group", "features", "reload", "doctor", "bundle", "version",
}

func TestHelpOfEveryCommand(t *testing.T) {
	var all strings.Builder
	for _, command := range commands {
		exit, stdout, stderr := (&daemon{}).run(append(strings.Fields(command), "--help")...)
		if exit != exitOK || stderr != "" {
			t.Errorf("rocast %s --help: exit %d, %s", command, exit, stderr)
		}
		all.WriteString("$ " + strings.TrimSpace("rocast "+command) + " --help\n" + stdout + "\n")
	}
	golden(t, "help.txt", all.String())
}

// The man page has the commands that do something, and no headings for those that only hold others.
func TestTheManPageHasEveryCommand(t *testing.T) {
	exit, page, stderr := (&daemon{socket: "/nowhere"}).run("man")
	if exit != exitOK || stderr != "" {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	for i, command := range commands {
		isNoun := i == 0 || slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c, command+" ") })
		if regexp.MustCompile(`(?m)^\.SS "rocast `+command+`("| [A-Z\\[])`).MatchString(page) == isNoun {
			t.Errorf("rocast %s: is a noun %t, and the page disagrees", command, isNoun)
		}
	}
	if !strings.HasPrefix(page, `.TH ROCAST 1 "" "rocast v0\-test"`) {
		t.Errorf("the page begins with %.60q", page)
	}
}

func TestWrongArgumentsSendNothing(t *testing.T) {
	d := &daemon{socket: "/nowhere"}
	for _, c := range []struct{ args, want string }{
		{"gruop", `there is no "gruop" here; see rocast --help`},
		{"", "a command is missing: bundle, capture, cm, doctor, drops, events, features, group, log, member, perftest, port, region, reload, stats, status, top, trace, version; see rocast --help"},
		{"group", "a command is missing: create, ls, rm, show, tree, update; see rocast group --help"},
		{"log", "a command is missing: level; see rocast log --help"},
		{"top -n -1", "--count is -1; write a number of tables, or 0 to go on; see rocast top --help"},
		{"top --once -n -1", "--count is -1; write a number of tables, or 0 to go on; see rocast top --help"},
		{"top g1 g2", `"g2" is one argument too many; see rocast top --help`},
		{"group create2", `there is no "create2" here; see rocast group --help`},
		{"group show", "NAME is missing; see rocast group show --help"},
		{"group show a b", `"b" is one argument too many; see rocast group show --help`},
		{"group tree", "NAME is missing; see rocast group tree --help"},
		{"group rm", "NAME is missing; see rocast group rm --help"},
		{"group ls g1", `"g1" is one argument too many; see rocast group ls --help`},
		{"group create", "-f FILE is missing; see rocast group create --help"},
		{"group create -f /none.yaml", "read the group file: open /none.yaml: no such file or directory"},
		{"group update", "-f FILE is missing; see rocast group update --help"},
		{"member ready", "GROUP is missing; see rocast member ready --help"},
		{"member ready g1 --ip 10.77.0.2 --qpn 18", "--state STATE is missing; see rocast member ready --help"},
		{"member ready g1 --ip 10.77.0.2 --state RTR", "--qpn N is missing; see rocast member ready --help"},
		{"member ready g1 --state RTR --qpn 18", "--ip IP is missing; see rocast member ready --help"},
		{"perftest up", "--group-ip IP is missing; see rocast perftest up --help"},
		{"perftest up --group-ip 10.77.0.100", "--receivers IP,IP,... is missing; see rocast perftest up --help"},
		{"perftest down", "--group-ip IP is missing; see rocast perftest down --help"},
		{"cm up", "--group-ip IP is missing; see rocast cm up --help"},
		{"cm up --group-ip 10.77.0.100", "--port N is missing; see rocast cm up --help"},
		{"cm up --group-ip 10.77.0.100 --port 7174", "--receivers IP,IP,... is missing; see rocast cm up --help"},
		{"cm down", "--group-ip IP is missing; see rocast cm down --help"},
		{"capture --count -1", "a number below 0 means nothing here; see rocast capture --help"},
		{"capture g1", `"g1" is one argument too many; see rocast capture --help`},
		{"stats --al", "unknown flag: --al; see rocast stats --help"},
	} {
		d.refused(t, exitUsage, api.Usage, c.want, strings.Fields(c.args)...)
	}
}

// No name is not the name of everything.
func TestAnEmptyNameIsRefused(t *testing.T) {
	d := &daemon{socket: "/nowhere"}
	for _, c := range []struct{ command, flag string }{
		{"capture", "group"}, {"drops", "group"}, {"events", "group"}, {"capture", "kind"}, {"capture", "write"},
		{"status", "api"}, {"top", "sort"}, {"cm up", "allow"}, {"perftest up", "allow"}, {"bundle", "output"},
	} {
		d.refused(t, exitUsage, api.Usage, fmt.Sprintf("--%s is empty; write a value, or leave --%[1]s out; see rocast %[2]s --help", c.flag, c.command),
			append(strings.Fields(c.command), "--"+c.flag, "")...)
	}
	(&daemon{}).refused(t, exitUsage, api.Usage, "--socket is empty; write a value, or leave --socket out; see rocast status --help", "status")
	for _, c := range []struct{ command, want string }{
		{"trace group", "NAME"}, {"trace inject", "FILE|HEX"}, {"group show", "NAME"}, {"region ls", "GROUP"}, {"top", "NAME"}, {"log level", "LEVEL"},
	} {
		d.refused(t, exitUsage, api.Usage, c.want+" is empty; see rocast "+c.command+" --help", append(strings.Fields(c.command), "")...)
	}
}

// What help and completion do not know is as wrong as with other commands.
func TestHelpAndCompletionRefuseWhatTheyDoNotKnow(t *testing.T) {
	d := &daemon{socket: "/nowhere"}
	for _, c := range []struct{ args, want string }{
		{"completion", "a command is missing: bash, fish, powershell, zsh; see rocast completion --help"},
		{"completion bogus", `there is no "bogus" here; see rocast completion --help`},
		{"help bogus", `there is no command "bogus"; see rocast help --help`},
		{"help group bogus", `there is no command "group bogus"; see rocast help --help`},
	} {
		d.refused(t, exitUsage, api.Usage, c.want, strings.Fields(c.args)...)
	}
}

// To some a leading zero means octal: no number of the command line has one.
func TestALeadingZeroIsRefused(t *testing.T) {
	d := &daemon{socket: "/nowhere"}
	for _, c := range []struct{ args, value, flag string }{
		{"region rm g1 --rkey 1 --va 0017", "0017", "--va"}, {"region add g1 --length 08", "08", "--length"}, {"region ls g1 --from -010", "-010", "--from"},
		{"member ready g1 --qpn 0017", "0017", "--qpn"}, {"top -n 0b1", "0b1", "-n, --count"}, {"cm up --port 0o17", "0o17", "--port"},
		{"capture --snap 0_200", "0_200", "--snap"},
	} {
		want := fmt.Sprintf("invalid argument %q for %q flag: it has a leading zero; write it in decimal without one, or in hexadecimal with 0x", c.value, c.flag)
		args := strings.Fields(c.args)
		command := strings.Join(args[:slices.IndexFunc(args, func(a string) bool { return a == "g1" || a[0] == '-' })], " ")
		d.refused(t, exitUsage, api.Usage, want+"; see rocast "+command+" --help", args...)
	}
	d.refused(t, exitUnreachable, api.Unreachable, "no daemon answers on /nowhere (no such file or directory); is rocastd running, and is this its socket?",
		"region", "rm", "g1", "--va", "0x0017", "--rkey", "0")
}

func TestNoDaemonIsSaid(t *testing.T) {
	d := &daemon{socket: filepath.Join(t.TempDir(), "s")}
	d.refused(t, exitUnreachable, api.Unreachable,
		"no daemon answers on "+d.socket+" (no such file or directory); is rocastd running, and is this its socket?", "group", "ls")

	var out, errs bytes.Buffer
	e := env{args: []string{"stats", "--socket", "/s"}, stdout: &out, stderr: &errs, dial: func(context.Context) (net.Conn, error) {
		return nil, os.ErrPermission
	}}
	want := "rocast: no daemon answers on /s (permission denied); run as root, or join the socket's group\n"
	if exit := e.run(context.Background()); exit != exitUnreachable || !strings.HasSuffix(errs.String(), "run as root, or join the socket's group\n") {
		t.Errorf("exit %d\ngot  %swant %s", exit, errs.String(), want)
	}
}

// another is a server on a daemon's socket that answers with handler.
func another(t *testing.T, handler http.HandlerFunc) *daemon {
	t.Helper()
	d := &daemon{socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { server.Close() })
	return d
}

// A daemon that was reached and gave no answer may have carried out a change, but not a question.
func TestADaemonThatHangsUpIsSaid(t *testing.T) {
	d := another(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.StatsPath {
			w.Header().Set("Content-Length", "100")
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler) // closes the connection
	})
	silent := "the daemon on " + d.socket + " did not answer (EOF); "
	d.refused(t, exitUnreachable, api.Unreachable, silent+"see the daemon's log", "group", "ls")
	d.refused(t, exitUnreachable, api.Unreachable, strings.Replace(silent, "EOF", "unexpected EOF", 1)+"see the daemon's log", "stats")
	d.refused(t, exitUnreachable, api.Unreachable, silent+"it may still carry out the request: rocast group ls shows whether it did",
		"group", "rm", "g1")
	file := filepath.Join(t.TempDir(), "g1.yaml")
	if err := os.WriteFile(file, []byte("name: g1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.refused(t, exitUnreachable, api.Unreachable, silent+"it may still carry out the request: rocast group show g1 shows whether it did",
		"group", "update", "-f", file)
	d.refused(t, exitUnreachable, api.Unreachable, silent+"it may still carry out the request: rocast perftest ls shows whether it did",
		"perftest", "down", "--group-ip", "10.77.0.100")
}

// telling is an output that also passes on what is written to it.
type telling chan string

func (c telling) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// Whoever waits at a terminal is told that a command is not done yet, and nobody else is.
func TestACommandThatTakesLongSaysSo(t *testing.T) {
	errs := make(telling, 1)
	slow, said := true, ""
	d := another(t, func(w http.ResponseWriter, r *http.Request) {
		if slow {
			said = <-errs
		}
		_, _ = io.WriteString(w, `{"removed": "g1"}`)
	})
	for _, slow = range []bool{true, false} {
		for _, command := range []string{"group rm g1", "perftest down --group-ip 10.77.0.100", "cm down --group-ip 10.77.0.100"} {
			e := env{args: append(strings.Fields(command), "--socket", d.socket), stdout: io.Discard, stderr: errs, patience: time.Hour}
			want := ""
			if slow {
				e.patience, want = time.Nanosecond, "not done yet; this may take some seconds\n"
			}
			said = ""
			if exit := e.run(t.Context()); exit != exitOK || said != want || len(errs) > 0 {
				t.Errorf("rocast %s: exit %d, said %q, want %q", command, exit, said, want)
			}
		}
	}
}

// What answers may be anything.
func TestAnAnswerThatIsNoneIsSaid(t *testing.T) {
	d := another(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.StatsPath {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	d.refused(t, exitRefused, api.Internal, "the program that answers on "+d.socket+" is not a rocastd of this version: unexpected end of JSON input", "group", "ls")
	d.refused(t, exitRefused, api.Internal, "the daemon answered 418 without a reason; see its log", "stats")
}
