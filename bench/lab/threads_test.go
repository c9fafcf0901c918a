package lab

import (
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
)

// A thread's CPU time is its own: another thread that works meanwhile does not count.
func TestThreadTime(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	var over atomic.Bool
	defer over.Store(true)
	thread := func(work func()) (tid int) {
		started := make(chan int)
		go func() {
			runtime.LockOSThread()
			started <- unix.Gettid()
			work()
		}()
		return <-started
	}
	idle := thread(func() { <-stop })
	busy := thread(func() {
		for !over.Load() {
		}
	})
	var began [2]time.Duration // Go may have used the threads for other work before
	for i, tid := range []int{idle, busy} {
		var err error
		if began[i], err = ThreadTime(tid); err != nil {
			t.Fatal(err)
		}
	}
	testlab.Eventually(t, testlab.Patience, "a thread that works uses CPU time", func() bool {
		used, err := ThreadTime(busy)
		return err == nil && used-began[1] > 50*time.Millisecond
	}, nil)
	if used, err := ThreadTime(idle); err != nil || used-began[0] > 10*time.Millisecond {
		t.Errorf("a thread that waits has used %v, %v", used-began[0], err)
	}
	if _, err := ThreadTime(1 << 22); err == nil {
		t.Error("a thread that there is not has a CPU time")
	}
}

// A thread that another lab makes meanwhile ends with that lab, and then its CPU time could not be
// read.
func TestThreadsOfOtherLabsDoNotCount(t *testing.T) {
	for comm, want := range map[string]bool{
		"napi/eth1-8193\n": true, "napi/eth2-7\n": true, "napi/eth10-8193\n": false, "napi/bqkzp0-7\n": false, "ksoftirqd/1\n": false,
	} {
		if got := receivesFor(comm, []string{"eth1", "eth2"}); got != want {
			t.Errorf("%q: %v", comm, got)
		}
	}
}

// The threads of interfaces are those that appear when they are asked for.
func TestThreadNAPI(t *testing.T) {
	l := newLab(t, Options{Receivers: 1, MTU: 1500})
	if _, err := ThreadNAPI(l.Box, l.Ports[0].Name); err == nil {
		t.Error("a port without NAPI has got a thread")
	}
	if err := l.NAPIWithoutXDP(); err != nil {
		t.Fatal(err)
	}
	threads, err := ThreadNAPI(l.Box, l.Ports[0].Name)
	if err != nil || len(threads) != 1 {
		t.Fatalf("threads %v, %v", threads, err)
	}
	if used, err := CPUTimes(threads); err != nil || used < 0 {
		t.Error(used, err)
	}
}

func TestBusiest(t *testing.T) {
	from := readTicks("cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 10 10 100 10 10 10 10 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5 6 7 8 9 10 11 12\n")
	to := readTicks("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 20 10 20 170 20 10 10 20 0 0\ncpu1 1 2 3 40 10 20 20 4 0 0\nintr 5 6 7 8 9 10 11 12\n")
	if len(from) != 2 || len(to) != 2 {
		t.Fatalf("%v, %v", from, to)
	}
	if got := Busiest(from, to); got != 0.5 { // CPU 0: 20 + 10 of 110 idle are 80; CPU 1: 50 of 100
		t.Errorf("the busiest CPU was busy for %.3f of the time", got)
	}
	if now, err := allTicks(); err != nil || len(now) < runtime.NumCPU() || Busiest(now, now) != 0 || Spun(now, now) != 0 {
		t.Errorf("%v, %v", now, err)
	}
}

// What a process that spins has used of a CPU does not make it busy, whatever other CPUs do.
func TestASpinnerDoesNotMakeACPUBusy(t *testing.T) {
	from := []Ticks{{all: 1000, idle: 500, spun: 100}, {all: 1000, idle: 500, spun: 200}}
	to := []Ticks{{all: 1100, idle: 505, spun: 180}, {all: 1100, idle: 560, spun: 200}}
	if got := Busiest(from, to); math.Abs(got-0.4) > 1e-9 { // CPU 0: 95 of 100, of which 80 were spun
		t.Errorf("the busiest CPU was busy for %.3f of the time", got)
	}
	if got := Spun(from, to); math.Abs(got-0.8) > 1e-9 {
		t.Errorf("%.3f CPUs were spun", got)
	}
}

// A thread's time counts for the CPU on which it is seen. A thread that is new counts from its
// start.
func TestAThreadThatMoves(t *testing.T) {
	stat := func(user, system, cpu int) string {
		return fmt.Sprintf("7 (a) b) R 1 7 7 0 -1 4194368 200 0 0 0 %d %d 0 0 20 0 9 0 12345 1 2 3 4 5 6 7 8 9 0 0 0 0 0 0 17 %d 0 0 0", user, system, cpu)
	}
	s := &Spinner{used: map[string]uint64{}}
	for _, c := range []struct {
		thread, stat string
		want         []uint64
	}{
		{"7", stat(10, 5, 1), []uint64{0, 15}},
		{"7", stat(12, 8, 0), []uint64{5, 15}},
		{"8", stat(1, 2, 0), []uint64{8, 15}},
		{"7", stat(12, 8, 1), []uint64{8, 15}},
	} {
		if err := s.add(c.thread, c.stat); err != nil || !slices.Equal(s.cpus, c.want) {
			t.Errorf("%v, want %v; %v", s.cpus, c.want, err)
		}
	}
	for _, broken := range []string{"", "7 (a) R 1 2", strings.Replace(stat(77, 5, 1), "77", "x", 1)} {
		if err := s.add("7", broken); err == nil {
			t.Errorf("%q is taken", broken)
		}
	}
}

// The time of a process that spins is its own, on the CPU that it uses, from the beginning on.
func TestFollow(t *testing.T) {
	cpus, err := allowed()
	testlab.Must(t, err)
	cpu := cpus[len(cpus)-1]
	burn := exec.Command("sh", "-c", "while :; do :; done")
	testlab.Must(t, burn.Start())
	defer func() { _, _ = burn.Process.Kill(), burn.Wait() }()
	testlab.Must(t, Pin(burn.Process.Pid, cpu))
	s, err := Follow(burn.Process.Pid)
	testlab.Must(t, err)
	defer s.Close()
	from, err := s.AllTicks()
	testlab.Must(t, err)
	testlab.Eventually(t, testlab.Patience, "a process that spins is seen", func() bool {
		to, err := s.AllTicks()
		return err == nil && to[cpu].spun-from[cpu].spun > 20 && to[cpu].spun-from[cpu].spun <= to[cpu].all-from[cpu].all+5
	}, nil)
	if _, err := Follow(1 << 22); err == nil {
		t.Error("a process that there is not is followed")
	}
}
