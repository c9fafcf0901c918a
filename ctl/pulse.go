package ctl

import (
	"fmt"
	"sync"
	"time"
)

// stuckAfter is how long a batch may take before its forwarding thread counts as stuck. A batch
// takes microseconds. The unit's watchdog kills the daemon after 10 s.
const stuckAfter = 5 * time.Second

// pulse notes when the Beat that is under way began.
type pulse struct {
	mu    sync.Mutex
	began time.Time // zero: no Beat is under way
}

// Beat returns when every forwarding thread has ended the batch that it was busy with. Alive and
// Status judge the threads by it, so it must be called every few seconds, from one goroutine.
func (c *Controller) Beat() {
	c.pulse.set(time.Now())
	c.Switch.EndBatches()
	c.pulse.set(time.Time{})
}

// Alive returns an error if a forwarding thread is stuck. It waits for nothing.
func (c *Controller) Alive() error { return c.pulse.alive(time.Now()) }

func (p *pulse) set(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = began
}

// missing returns for how long a forwarding thread has been stuck at the time now. 0: none is.
func (p *pulse) missing(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() || now.Sub(p.began) <= stuckAfter {
		return 0
	}
	return now.Sub(p.began)
}

func (p *pulse) alive(now time.Time) error {
	if stuck := p.missing(now); stuck > 0 {
		return fmt.Errorf("a forwarding thread has not ended its batch for %v", stuck.Truncate(time.Second))
	}
	return nil
}
