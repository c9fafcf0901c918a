package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/doctor"
	"github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/dataplane"
)

// withNICs lets ethtool say the same of every port, and none of eth3.
func withNICs(t *testing.T) {
	t.Helper()
	fixtures, err := filepath.Abs("../../ctl/doctor/testdata")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$2\" = eth3 ] && { echo \"netlink error: No such device\" >&2; exit 1; }\nexec sed 's/Combined:.2$/Combined: 1/' " + fixtures + "/mlx5$1.txt\n"
	if err := os.WriteFile(filepath.Join(bin, "ethtool"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// reportText replaces what differs between runs.
func reportText(text string) string {
	for pattern, stand := range map[string]string{
		`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, read twice, \d+\.\d s apart`: "2026-01-02 03:04:05 UTC, read twice, 2.0 s apart",
		`Linux \S+, which`: "Linux 6.1.0, which",
		`in \d+\.\d s`:     "in 2.0 s",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, stand)
	}
	return sameEverywhere(text)
}

func TestDoctor(t *testing.T) {
	withNICs(t)
	d := startDaemon(t)
	d.every = time.Millisecond
	d.must(t, "group", "create", "-f", writeFile(t))
	exit, text, stderr := d.run("doctor")
	if exit != exitOK || stderr != "" {
		t.Errorf("exit %d, %s", exit, stderr)
	}
	golden(t, "doctor.txt", reportText(text))
	var report doctor.Report
	d.mustJSON(t, &report, "doctor")
	if report.Counts[doctor.Look] != 0 || report.Counts[doctor.OK] < 20 || report.Seconds <= 0 || len(report.ByHand) == 0 {
		t.Errorf("%+v", report)
	}
	d.mustJSON(t, &report, "doctor", "--seconds", "0")
	if report.Seconds != 0 {
		t.Errorf("%v s", report.Seconds)
	}
}

func TestDoctorOfABoxThatNeedsALook(t *testing.T) {
	withNICs(t)
	sw := ctltest.NewSwitch("eth1", "eth2", "eth3")
	sw.SetPort(1, dataplane.PortGone, 0)
	d := startDaemonOver(t, sw)
	d.every = time.Millisecond
	file := filepath.Join(t.TempDir(), "report.txt")
	exit, stdout, stderr := d.run("doctor", "-o", file)
	if exit != exitUnhealthy || stderr != "" || !strings.HasPrefix(stdout, file+" has the report: ") {
		t.Errorf("exit %d, %s%s", exit, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if want := " look link eth2 gone: no interface has this name "; err != nil || !strings.Contains(oneLine(string(text)), want) {
		t.Errorf("%v\n%s", err, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	if exit, stdout, _ := d.run("doctor", "-o", file, "--json"); exit != exitUsage || !strings.Contains(stdout, "file exists; write another FILE with -o") {
		t.Errorf("over a file: exit %d, %s", exit, stdout)
	}
	var done doctorDone
	if exit, stdout, _ := d.run("doctor", "-o", file+".json", "--json"); exit != exitUnhealthy || json.Unmarshal([]byte(stdout), &done) != nil || done.Counts[doctor.Look] == 0 {
		t.Errorf("exit %d, %s", exit, stdout)
	}
	var report doctor.Report
	if text, err := os.ReadFile(file + ".json"); err != nil || json.Unmarshal(text, &report) != nil || report.Findings[0].Check != "link" {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestDoctorWithoutADaemon(t *testing.T) {
	d := &daemon{socket: filepath.Join(t.TempDir(), "s")}
	exit, stdout, stderr := d.run("doctor")
	if exit != exitUnhealthy || stderr != "" || !strings.Contains(stdout, "no daemon answers on "+d.socket) {
		t.Errorf("exit %d, %s%s", exit, stdout, stderr)
	}
}

// A daemon that ends between two questions is one that does not answer, and not one of which
// nothing is wrong.
func TestDoctorOfADaemonThatEnds(t *testing.T) {
	d := &daemon{socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != api.VersionPath {
			panic(http.ErrAbortHandler)
		}
		if err := json.NewEncoder(w).Encode(version.Build()); err != nil {
			t.Error(err)
		}
	}))
	exit, stdout, stderr := d.run("doctor", "--seconds", "0")
	if exit != exitUnhealthy || stderr != "" || !strings.Contains(oneLine(stdout), "look daemon - the daemon on "+d.socket+" did not answer ") {
		t.Errorf("exit %d, %s%s", exit, stdout, stderr)
	}
}

func TestDoctorRefusesATimeBelowZero(t *testing.T) {
	(&daemon{socket: "/nowhere"}).refused(t, exitUsage, "usage", "--seconds is -1; write a number of seconds, or 0 for one reading; see rocast doctor --help", "doctor", "--seconds", "-1")
}

// A reason may have anything in it that a group has.
func TestAReportHasNoSecrets(t *testing.T) {
	withNICs(t)
	d := startDaemon(t)
	d.every = time.Millisecond
	file := filepath.Join(t.TempDir(), "g1.yaml")
	if err := os.WriteFile(file, []byte(secretGroup), 0o600); err != nil {
		t.Fatal(err)
	}
	d.must(t, "group", "create", "-f", file)
	d.config.state.Stale, d.config.state.Reason = true, "the R_Key 0x5ec2e701 and the VA 188900966465536"
	for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
		_, stdout, _ := d.run(args...)
		if !strings.Contains(oneLine(stdout), "the R_Key "+forRKey+" and the VA "+forVA) {
			t.Errorf("%s", stdout)
		}
	}
}

// A box with many ports has a short report all the same, but for what needs a look.
func TestFindingsThatAreAlikeHaveOneLine(t *testing.T) {
	finding := func(check, of string, v doctor.Verdict, seen string) doctor.Finding {
		return doctor.Finding{Check: check, Of: of, Verdict: v, Seen: seen, Want: "w", Remedy: "r", Command: "c " + of}
	}
	var out strings.Builder
	printReport(&out, &doctor.Report{Findings: []doctor.Finding{
		finding("a", "eth1", doctor.Look, "s"), finding("a", "eth2", doctor.Look, "s"), finding("b", "eth1", doctor.Unclear, "s"), finding("b", "eth2", doctor.Unclear, "s"),
		finding("b", "eth1", doctor.OK, "s"), finding("c", "eth1", doctor.OK, "s"), finding("c", "eth2", doctor.OK, "s"), finding("c", "eth3", doctor.OK, "other"), finding("d", "", doctor.OK, "s"),
	}})
	_, got, _ := strings.Cut(out.String(), "SEEN\n")
	got, _, _ = strings.Cut(got, "\n\n")
	const rest = "\n\t\t\tshould be: w\n\t\t\tdo: r\n\t\t\tby hand: c eth"
	want := "look\ta\teth1\ts" + rest + "1\nlook\ta\teth2\ts" + rest + "2\ncannot-tell\tb\teth1 and 1 more\ts" + rest +
		"1\nok\tb\teth1\ts\nok\tc\teth1 and 1 more\ts\nok\tc\teth3\tother\nok\td\t-\ts"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Of another machine's NICs and kernel this machine knows nothing.
func TestDoctorOfABoxThatIsElsewhere(t *testing.T) {
	withNICs(t)
	d := startDaemon(t)
	d.every = time.Millisecond
	exit, text, stderr := d.run(append(d.remotely(t)("looker"), "doctor")...)
	if text = oneLine(text); exit != exitOK || stderr != "" || strings.Contains(text, "mlx5") || strings.Contains(text, kernelRelease()) ||
		!strings.Contains(text, " driver eth1 and 2 more the daemon is on another machine ") {
		t.Errorf("exit %d, %s\n%s", exit, stderr, text)
	}
}

// A file that cannot be made is found before anything is read.
func TestAReportThatCannotBeWrittenReadsNothing(t *testing.T) {
	read := false
	err := writeReport(&app{env: &env{}}, "/nosuch/report.txt", func() (r doctor.Report) { read = true; return r })
	if err == nil || err.Error() != "open /nosuch/report.txt: no such file or directory; write another FILE with -o" || read {
		t.Errorf("%v, and the box was read %t", err, read)
	}
}
