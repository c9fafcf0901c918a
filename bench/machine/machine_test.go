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
	const tick = 0.1 // of the time below
	if got := busy(200 * time.Millisecond); got < 0.5 || got > float64(runtime.NumCPU())*(1+tick) {
		t.Errorf("%.2f CPUs are in use while a thread spins", got)
	}
}
