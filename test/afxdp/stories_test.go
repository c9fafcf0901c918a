package afxdp

import (
	"testing"

	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
)

func TestWriteReachesEveryReceiver(t *testing.T) {
	for name, c := range map[string]struct {
		lab   labOptions
		group groupOptions
	}{
		"native":        {},
		"generic":       {lab: labOptions{mode: afxdp.ModeGeneric}},
		"path MTU 4096": {labOptions{Options: bed.Options{MTU: 4200}}, groupOptions{pathMTU: 4096}},
		"two queues":    {lab: labOptions{Options: bed.Options{Queues: 2}}},
		"one receiver":  {lab: labOptions{Options: bed.Options{Hosts: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.lab.Hosts == 0 {
				c.lab.Hosts = 4
			}
			c.group.memory = 1<<20 + 13
			g := newLab(t, c.lab).addGroup(t, c.group)
			g.holds(t, g.write(t, 100_000))
		})
	}
}

// All frames arrive by the first queue, which belongs to the first worker. It owns the group whose
// data comes first; the second worker, which has no group then, owns the other one. So the second
// worker gets every frame of its group from the first one, and none from a queue.
func TestTwoWorkersHandFramesOff(t *testing.T) {
	for name, c := range map[string]struct {
		lab   labOptions
		group groupOptions
	}{
		"path MTU 1024":                  {labOptions{Options: bed.Options{Hosts: 4, Queues: 2}}, groupOptions{}},
		"path MTU 4096":                  {labOptions{Options: bed.Options{Hosts: 4, Queues: 2, MTU: 4200}}, groupOptions{pathMTU: 4096}},
		"the kernel carries both groups": {labOptions{Options: bed.Options{Hosts: 4, Queues: 2}, fanOut: true}, groupOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.lab.workers, c.group.memory = 2, 1<<20+13
			l := newLab(t, c.lab)
			for _, h := range l.Hosts {
				_, err := h.NS.Exec("ethtool", "-L", "eth0", "tx", "1") // a veth keeps the queue number of its peer
				check(t, err)
			}
			first, second := l.addGroup(t, c.group), l.addGroup(t, c.group)
			first.holds(t, first.write(t, 50_000))
			second.holds(t, second.write(t, 100_000))
			for _, g := range []*group{first, second} {
				if e := g.engine(t); c.lab.fanOut != (e.Carried > 0) {
					t.Errorf("the kernel carried %d packets (%s)", e.Carried, e.Reason)
				}
			}
		})
	}
}

func TestLossIsRepaired(t *testing.T) {
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4, Seed: 7, LossPerMillion: 10_000}})
	g := l.addGroup(t, groupOptions{memory: 4 << 20})
	g.holds(t, g.write(t, 1<<20))
	if c := l.Hosts[0].RNIC.Counters(); c.Get(rnic.FramesRetransmitted) == 0 {
		t.Error("no packet was resent, so no loss was repaired")
	}
}

// A READ fails at once. The source does not have to time out first.
func TestReadFails(t *testing.T) {
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}})
	g := l.addGroup(t, groupOptions{memory: 4096})
	check(t, g.source.PostRead(1, 4096, rnic.Remote{VA: memoryVA, RKey: memoryKey}))
	if c := g.completion(t); c.Status != rnic.RemoteInvalidRequest {
		t.Errorf("the READ ended with %v", c)
	}
	if n := l.Hosts[0].RNIC.Counters(); n.Get(rnic.Timeouts) != 0 {
		t.Error("the source had to time out first")
	}
}

// The traffic of a removed group stops: no receiver gets another packet, and the source's QP ends
// as it would end if its peer was switched off.
func TestRemovedGroupStops(t *testing.T) {
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}})
	g := l.addGroup(t, groupOptions{
		memory: 1 << 20, rnic: func(c *rnic.Config) { c.Timeout, c.RetryCount = 14, 3 },
	})
	data := g.write(t, 1<<20)
	check(t, l.sw.Remove(g.ID))
	g.post(t, 0, make([]byte, 4096))
	if c := g.completion(t); c.Status != rnic.RetryExceeded {
		t.Errorf("the WRITE to a removed group ended with %v", c)
	}
	g.holds(t, data)
}
