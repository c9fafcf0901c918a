package machine

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A thread that spins is one CPU in use. What else runs adds to it.
func TestBusyCountsCPUsInUse(t *testing.T) {
	var spins, end atomic.Bool
	go func() {
		for !end.Load() {
			spins.Store(true)
		}
	}()
	for !spins.Load() {
		runtime.Gosched()
	}
	defer end.Store(true)
	if got := busy(200 * time.Millisecond); got < 0.5 {
		t.Errorf("%.2f CPUs are in use while a thread spins", got)
	}
}

// A process may use fewer CPUs than the machine has. Of the columns, idle and iowait are not in
// use, steal is, and guest and guest_nice are counted already as user and nice.
func TestBusyCountsAllCPUsOfTheMachine(t *testing.T) {
	const cpus = "\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nintr 5 1\nctxt 7\n"
	const before = "cpu  1000 10 20 9000 30 1 2 3 500 5" + cpus
	for after, want := range map[string]float64{
		"cpu  1000 10 20 9000 30 1 2 3 500 5":   0,
		"cpu  1000 10 20 9400 30 1 2 3 500 5":   0,
		"cpu  1000 10 20 9300 130 1 2 3 500 5":  0,
		"cpu  1040 20 60 9300 30 6 5 5 540 6":   1,
		"cpu  1000 10 20 9200 30 1 2 203 500 5": 2,
		"cpu  1400 10 20 9000 30 1 2 3 900 5":   4,
	} {
		if got := inUse(before, after+cpus); got != want {
			t.Errorf("%v of 4 CPUs are in use, want %v: %s", got, want, after)
		}
	}
}
