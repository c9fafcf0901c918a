package peer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/hosts"
	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/internal/testlab"
)

func TestMain(m *testing.M) {
	RunAsForwarder()
	os.Exit(m.Run())
}

// Every contestant delivers to every receiver just what it claims: all bytes of all copies are
// compared with copies that are built from nothing, and so those of the C forwarders with rocast's.
func TestContestantsDeliverWhatTheyClaim(t *testing.T) {
	for _, p := range All {
		for _, payload := range []int{1024, 4096} {
			t.Run(fmt.Sprintf("%s/%d", p.Name, payload), func(t *testing.T) { testDelivers(t, p, payload, 3, 1, 1) })
		}
	}
	for _, p := range Named("rocast-block", "c-inplace", "bare-go", "xdp-broadcast", "bridge") {
		t.Run(p.Name+"/receivers", func(t *testing.T) { testDelivers(t, p, 64, workload.MaxReceivers, 1, 1) })
	}
	for _, p := range Named("rocast-block", "c-inplace", "c-memcpy") {
		t.Run(p.Name+"/small", func(t *testing.T) { testDelivers(t, p, 64, 1, 1, 1) })
		t.Run(p.Name+"/groups", func(t *testing.T) { testDelivers(t, p, 1024, 2, 500, 1) })
		t.Run(p.Name+"/workers", func(t *testing.T) { testDelivers(t, p, 1024, 2, 500, 2) })
	}
}

func testDelivers(t *testing.T, p *Peer, payload, receivers, groups, workers int) {
	s := newSetting(t, payload, receivers, groups, workers)
	roomy := s
	roomy.CPUs.Hosts = -1 // on two CPUs two workers are slow, and right
	if why := p.Excuse(roomy); why != "" {
		t.Skip(why)
	}
	f, err := p.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
		for _, pid := range f.PIDs {
			if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("process %d is left behind: %v", pid, err)
			}
		}
	}()
	h, err := hosts.Open(s.Lab, options(p, s))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Lab.ThreadNAPI(s.CPUs.Hosts); err != nil {
		t.Fatal(err)
	}
	if err := h.Verify(300, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	testStreams(t, h)
	if err := h.AwaitAnswers(20 * time.Second); err != nil { // none got lost under load
		t.Fatal(err)
	}
}

// testStreams lets packets flow until each receiver has a few windows more.
func testStreams(t *testing.T, h *hosts.Hosts) {
	stop := h.Stream()
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	before := h.Stats()
	enough := func() bool {
		for r, n := range h.Stats().Copies {
			if n < before.Copies[r]+4*hosts.Window {
				return false
			}
		}
		return true
	}
	testlab.Eventually(t, 2*testlab.Patience, "copies flow", enough, func() string { return fmt.Sprintf("%+v", h.Stats()) })
}

func options(p *Peer, s Setting) hosts.Options {
	o := hosts.Options{Workload: s.Workload, CPU: s.CPUs.Hosts, Rewriting: p.Rewriting, Merges: p.Merges}
	if p.Window != nil {
		o.Window = p.Window(s)
	}
	return o
}

// Starting a forwarder binds the forwarder to the switch's CPU, and no thread of this process.
func TestStartBindsTheForwarderOnly(t *testing.T) {
	before := affinities(t, os.Getpid())
	for range 10 {
		s := newSetting(t, 1024, 1, 1, 1)
		cmd := exec.Command("sleep", "60")
		if err := start(s, cmd); err != nil {
			t.Fatal(err)
		}
		got := affinities(t, cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if len(got) != 1 || !got[fmt.Sprint(s.CPUs.Switch[0])] {
			t.Fatalf("the forwarder may run on CPUs %v", got)
		}
	}
	if after := affinities(t, os.Getpid()); len(after) != len(before) {
		t.Errorf("threads of this process may run on CPUs %v, before %v", after, before)
	}
}

// affinities are the lists of CPUs that threads of a process may run on.
func affinities(t *testing.T, pid int) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]bool{}
	for _, f := range files {
		status, _ := os.ReadFile(f) // of a thread that may have ended
		for line := range strings.Lines(string(status)) {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				lists[strings.TrimSpace(list)] = true
			}
		}
	}
	return lists
}

func newSetting(t *testing.T, payload, receivers, groups, workers int) Setting {
	t.Helper()
	cpus, err := lab.SplitCPUs(workers)
	if err != nil {
		t.Skip(err) // says how many CPUs are missing, and how to get them
	}
	size := workload.Workload{Payload: payload}
	l, err := lab.New(lab.Options{Receivers: receivers, MTU: size.MTU(), Queues: workers})
	if errors.Is(err, os.ErrPermission) {
		t.Skip("needs root, to make network namespaces; run it with sudo:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	w, err := l.Workload(payload, groups)
	if err != nil {
		t.Fatal(err)
	}
	return Setting{Workload: w, Lab: l, Workers: workers, CPUs: cpus}
}
