package afxdp

import (
	"testing"

	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
)

func TestWriteReachesEveryReceiver(t *testing.T) {
	for name, o := range map[string]options{
		"native":        {},
		"generic":       {mode: afxdp.ModeGeneric},
		"path MTU 4096": {pathMTU: 4096, Options: bed.Options{MTU: 4200}},
		"two queues":    {Options: bed.Options{Queues: 2}},
		"two workers":   {workers: 2, Options: bed.Options{Queues: 2}},
		"two workers, path MTU 4096": {
			workers: 2, pathMTU: 4096, Options: bed.Options{Queues: 2, MTU: 4200},
		},
		"one receiver": {Options: bed.Options{Hosts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			if o.Hosts == 0 {
				o.Hosts = 4
			}
			o.memory = 1<<20 + 13
			l := newLab(t, o)
			l.holds(t, l.write(t, 100_000))
		})
	}
}

func TestLossIsRepaired(t *testing.T) {
	l := newLab(t, options{
		Options: bed.Options{Hosts: 4, Seed: 7, LossPerMillion: 10_000}, memory: 4 << 20,
	})
	l.holds(t, l.write(t, 1<<20))
	if c := l.Hosts[0].RNIC.Counters(); c.Get(rnic.FramesRetransmitted) == 0 {
		t.Error("nothing was lost, so nothing was shown")
	}
}

// A READ fails at once instead of timing out.
func TestReadFails(t *testing.T) {
	l := newLab(t, options{Options: bed.Options{Hosts: 4}, memory: 4096})
	check(t, l.source.PostRead(1, 4096, rnic.Remote{VA: memoryVA, RKey: memoryKey}))
	if c := l.completion(t); c.Status != rnic.RemoteInvalidRequest {
		t.Errorf("READ ended with %v", c)
	}
	if n := l.Hosts[0].RNIC.Counters(); n.Get(rnic.Timeouts) != 0 {
		t.Error("the source had to time out first")
	}
}

// A removed group's traffic stops: nothing more reaches a receiver, and the
// source's QP ends as with a host that is gone.
func TestRemovedGroupStops(t *testing.T) {
	l := newLab(t, options{
		Options: bed.Options{Hosts: 4}, memory: 1 << 20,
		rnic: func(c *rnic.Config) { c.Timeout, c.RetryCount = 10, 3 },
	})
	data := l.write(t, 1<<20)
	check(t, l.sw.Remove(l.group.ID))
	check(t, l.source.PostWrite(2, make([]byte, 4096), rnic.Remote{VA: memoryVA, RKey: memoryKey}))
	if c := l.completion(t); c.Status != rnic.RetryExceeded {
		t.Errorf("WRITE to a removed group ended with %v", c)
	}
	l.holds(t, data)
}
