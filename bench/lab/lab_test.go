package lab

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

func newLab(t *testing.T, o Options) *Lab {
	t.Helper()
	l, err := New(o)
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
	return l
}

// The work of taking frames in is that of a kernel thread, whose CPU time grows by it.
func TestNAPIThreadIsBilled(t *testing.T) {
	l := newLab(t, Options{Receivers: 2, MTU: 1500})
	if _, err := l.ThreadNAPI(0); err == nil {
		t.Error("a port without NAPI has got a thread")
	}
	if err := l.NAPIWithoutXDP(); err != nil {
		t.Fatal(err)
	}
	threads, err := l.ThreadNAPI(0)
	if err != nil || len(threads) != 3 {
		t.Fatalf("threads %v, %v", threads, err)
	}
	before, err := CPUTimes(threads)
	if err != nil {
		t.Fatal(err)
	}
	sendRaw(t, l, 2000)
	testlab.Eventually(t, testlab.Patience, "2,000 frames cost the thread CPU time", func() bool {
		after, err := CPUTimes(threads)
		return err == nil && after-before > 100*time.Microsecond
	}, nil)
}

// sendRaw sends frames of nobody's protocol from the source's interface.
func sendRaw(t *testing.T, l *Lab, n int) {
	t.Helper()
	err := l.Ends[0].NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := make([]byte, 100)
		copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5})
		for range n {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.Ends[0].Index}); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNamesOfNAPIThreads(t *testing.T) {
	l := &Lab{Ports: []netns.Link{{Name: portName(0)}, {Name: portName(1)}}}
	for comm, want := range map[string]bool{
		"napi/" + portName(0) + "-8193\n": true, "napi/" + portName(1) + "-0\n": true,
		"napi/" + portName(1) + "0-8193\n": false, "napi/" + portName(0): false, "napi/eth0-8193": false, portName(0) + "-1": false, "": false,
	} {
		if got := l.isNAPI(comm); got != want {
			t.Errorf("%q: got %v", comm, got)
		}
	}
	if n := len(portName(64)); n > unix.IFNAMSIZ-1 {
		t.Errorf("port name %s is too long", portName(64))
	}
}

// A thread of an earlier lab may end between the moment it is found and the moment it is bound.
func TestAThreadThatHasEndedIsNotBound(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	living := exec.Command("sleep", "60")
	if err := living.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = living.Process.Kill()
		_ = living.Wait()
	}()
	cpus, err := allowed()
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{ended.Process.Pid, living.Process.Pid}
	if bound, err := pinLiving(pids, cpus[0]); err != nil || !slices.Equal(bound, pids[1:]) {
		t.Errorf("of processes %v, the first of which has ended, %v are bound: %v", pids, bound, err)
	}
	if _, err := pinLiving(pids, len(unix.CPUSet{})*64-1); err == nil {
		t.Error("threads are bound to a CPU that no machine has")
	}
}

// A process's CPU time is what it used, also that of its threads, and not how long it was there.
func TestCPUTimeOfAnotherProcess(t *testing.T) {
	busy := exec.Command("sh", "-c", "while :; do :; done")
	idle := exec.Command("sleep", "60")
	for _, c := range []*exec.Cmd{busy, idle} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
	}
	testlab.Eventually(t, testlab.Patience, "a loop uses CPU time", func() bool {
		used, err := testlab.CPUTime(busy.Process.Pid)
		return err == nil && used > 20*time.Millisecond
	}, nil)
	if used, err := CPUTimes([]int{idle.Process.Pid}); err != nil || used > 20*time.Millisecond {
		t.Errorf("a sleeping process has used %v, %v", used, err)
	}
	if _, err := Delays([]int{busy.Process.Pid, os.Getpid()}); err != nil {
		t.Error(err)
	}
}

func TestSoftirqThreads(t *testing.T) {
	threads, err := SoftirqThreads([]int{0})
	if err != nil || len(threads) != 1 {
		t.Errorf("ksoftirqd of CPU 0: %v, %v", threads, err)
	}
}

func TestSplitCPUs(t *testing.T) {
	all, err := allowed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Skipf("needs two CPUs, and this process may use %d; %s", len(all), moreCPUs)
	}
	one, err := SplitCPUs(1)
	if err != nil || len(one.Switch) != 1 || one.Switch[0] == one.Hosts {
		t.Errorf("one worker: %+v, %v", one, err)
	}
	if _, err := SplitCPUs(len(all) + 1); err == nil {
		t.Error("more workers than CPUs are accepted")
	}
}
