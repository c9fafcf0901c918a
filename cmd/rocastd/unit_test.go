package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// unitLine returns the value of a key of the unit.
func unitLine(t *testing.T, key string) string {
	t.Helper()
	text, err := os.ReadFile("../../packaging/rocastd.service")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the unit has no %s=", key)
	}
	return string(found[1])
}

// unprivileged makes the files of a box those of the user nobody, and returns the daemon as the
// unit starts it: this user, with the capabilities of the unit.
func (b *box) unprivileged(t *testing.T) *exec.Cmd {
	t.Helper()
	const nobody = 65534
	program := filepath.Join(t.TempDir(), "rocastd")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, path := range []string{filepath.Dir(filepath.Dir(b.config)), filepath.Dir(b.config), b.config, b.notify.LocalAddr().String()} {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if limit := unitLine(t, "LimitMEMLOCK"); limit != "infinity" {
		t.Fatalf("LimitMEMLOCK=%s: the kernel refuses to lock more", limit)
	}
	set := "-all,+ipc_lock" // stands for LimitMEMLOCK=: in a container root may not raise a limit
	for name := range strings.FieldsSeq(unitLine(t, "AmbientCapabilities")) {
		set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	user := fmt.Sprint(nobody)
	cmd := exec.Command("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs",
		"--bounding-set", set, "--inh-caps", set, "--ambient-caps", set, program, "--config", b.config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return cmd
}

// threadsWith counts the threads of a process by a line of /proc/PID/task/TID/status.
func threadsWith(t *testing.T, pid int, key string) map[string]int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, key+":"); ok {
				values[strings.TrimSpace(value)]++
			}
		}
	}
	return values
}

// The daemon does all its work as the user and with the capabilities that the unit gives it, and
// gives up the one that only the start needs, in all threads.
func TestTheDaemonNeedsNoMoreThanTheUnitGivesIt(t *testing.T) {
	if testing.Short() {
		t.Skip("building the daemon takes long")
	}
	b := newBox(t)
	p := b.launch(t, b.unprivileged(t))
	const want = 1<<unix.CAP_IPC_LOCK | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON
	for key, want := range map[string]uint64{"CapPrm": want, "CapEff": want, "CapInh": want, "CapAmb": 0} {
		var got map[string]int
		testlab.Eventually(t, testlab.Patience, fmt.Sprintf("%s of all threads is %016x", key, want), func() bool {
			got = threadsWith(t, p.Process.Pid, key)
			return len(got) == 1 && got[fmt.Sprintf("%016x", want)] > 0
		}, func() string { return fmt.Sprint(got) })
	}
	client := client.New(b.socket)
	list, err := client.Features(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list.Features {
		noDevice := strings.Contains(f.Detail, "/dev/net/tun") // in a container only root may open it
		if f.Status == api.Unknown && !noDevice {
			t.Errorf("%s could not be probed: %s", f.Name, f.Detail)
		}
	}
	if _, err := client.CreateGroup(t.Context(), []byte(owned)); err != nil {
		t.Fatal(err)
	}
	b.until(t, api.Ready)
	b.ip(t, "link", "del", "eth2")
	b.until(t, api.Waiting)
	b.plug(t, "eth2", b.hosts[1], "10.77.0.2/24")
	if _, err := b.hosts[1].Exec("ping", "-c1", "-W5", "10.77.0.254"); err != nil {
		t.Error(err)
	}
	b.until(t, api.Ready)
	b.plug(t, "eth3", netns.New(t), "10.77.0.3/24")
	if done, err := client.Reload(t.Context()); err != nil || done.String() != "no key has changed; ports added: eth3" {
		t.Errorf("%v, %v", done, err)
	}
	if got := p.end(t, unix.SIGTERM); got != "exit status 0" {
		t.Errorf("stopped: %s", got)
	}
	if log := p.log.String(); strings.Contains(log, "not permitted") || strings.Contains(log, "denied") {
		t.Errorf("something was not permitted:\n%s", log)
	}
}

// A forwarding thread that is stuck ends the signs of life, and nothing else does.
func TestAStuckForwardingThreadStopsTheWatchdog(t *testing.T) {
	b := newNotify(t)
	t.Setenv("NOTIFY_SOCKET", b.LocalAddr().String())
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(int(300*time.Millisecond/time.Microsecond)))
	var sw *ctltest.Switch
	start(t, testConfig(t), func(c config.Config) (ctl.Switch, func() error, error) {
		sw = ctltest.NewSwitch(c.Ports...)
		return sw, func() error { return nil }, nil
	})
	const status = "\nSTATUS=0 groups, 1 of 1 ports are open"
	expect := func(want string) {
		t.Helper()
		got, err := readNotice(b, 2*testlab.Patience)
		if line, ok := strings.CutPrefix(got, want); err != nil || !ok || line != "" && line != status { // "": a change is under way
			t.Fatalf("systemd is told %q (%v), want %q", got, err, want+status)
		}
	}
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		expect(want)
	}
	stuck, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		sw.Do(0, func() { close(stuck); <-release })
	}()
	<-stuck
	signs := 0
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		if _, err := readNotice(b, time.Until(deadline)); err == nil {
			signs++
		}
	}
	if signs > 1 { // one may have been under way
		t.Errorf("%d signs of life of a thread that is stuck", signs)
	}
	close(release)
	<-done
	expect("WATCHDOG=1")
}

// systemd knows every word of the unit, and gives it a good mark.
func TestTheUnitIsConfined(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	const unit = "../../packaging/rocastd.service"
	if limit := 3.5; score(t, unit) > limit {
		t.Errorf("systemd-analyze security: %.1f, and at most %.1f is wanted", score(t, unit), limit)
	}
	output, err := exec.Command("systemd-analyze", "verify", unit).CombinedOutput()
	scanner := bufio.NewScanner(strings.NewReader(string(output)))
	for scanner.Scan() {
		if line := scanner.Text(); strings.Contains(line, "rocastd.service:") && !strings.Contains(line, "is not executable") {
			t.Errorf("systemd-analyze verify: %s (%v)", line, err)
		}
	}
}

func score(t *testing.T, unit string) float64 {
	t.Helper()
	output, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", unit).CombinedOutput()
	found := regexp.MustCompile(`exposure level for rocastd.service: ([0-9.]+)`).FindSubmatch(output)
	if found == nil {
		t.Skipf("this systemd does not mark a file: %v\n%s", err, output)
	}
	mark, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

// What the unit allows and what it may keep of that are the same.
func TestTheUnitHasOneListOfCapabilities(t *testing.T) {
	ambient := strings.Fields(unitLine(t, "AmbientCapabilities"))
	if bounding := strings.Fields(unitLine(t, "CapabilityBoundingSet")); !slices.Equal(ambient, bounding) {
		t.Errorf("ambient are %q, bounding are %q", ambient, bounding)
	}
	if user, group := unitLine(t, "User"), unitLine(t, "Group"); user != group {
		t.Errorf("user %s, group %s", user, group)
	}
}
