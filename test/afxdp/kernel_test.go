package afxdp

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
)

// engine returns the state of the group's engine.
func (g *group) engine(t *testing.T) dataplane.EngineState {
	t.Helper()
	state, ok := g.lab.sw.GroupState(g.ID)
	if !ok {
		t.Fatal("the group is gone")
	}
	return state.Engine
}

// Without losses the kernel carries all packets except the first ones, and merges the ACKs.
func TestTheKernelCarriesAGroup(t *testing.T) {
	for name, o := range map[string]groupOptions{
		"group-ip":    {},
		"switch-ip":   {addressing: mft.BySwitchIP},
		"virtual-qpn": {addressing: mft.ByVirtualQPN},
	} {
		t.Run(name, func(t *testing.T) {
			o.memory = 4<<20 + 13
			l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}, fanOut: true})
			g := l.addGroup(t, o)
			for range 3 {
				g.holds(t, g.write(t, 1<<20))
			}
			e := g.engine(t)
			if e.Carried < 2048 {
				t.Errorf("of 3072 packets the kernel carried %d (%s)", e.Carried, e.Reason)
			}
			if told := counter(t, l.sw, "classifier-redirect_merged"); told == 0 || e.Answers != "" {
				t.Errorf("the kernel sent the source %d ACKs (%s)", told, e.Answers)
			}
			// WRITEs of 1 MiB are 3072 packets with a path MTU of 1024.
			for i, p := range l.sw.Ports() {
				if i == 0 && p.RxFrames < 3072 || i > 0 && (p.TxFrames < 3072 || p.TxBytes < 3<<20) {
					t.Errorf("port %s counts %+v", p.Name, p.PortCounters)
				}
			}
			if n := counter(t, l.sw, "fan-out-copy_malformed"); n != 0 {
				t.Errorf("the kernel could not make %d copies", n)
			}
		})
	}
}

func TestTheKernelCarriesUnderLoss(t *testing.T) {
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4, Seed: 7, LossPerMillion: 1000}, fanOut: true})
	g := l.addGroup(t, groupOptions{memory: 8 << 20})
	for range 4 {
		g.holds(t, g.write(t, 2<<20))
	}
	if c := l.Hosts[0].RNIC.Counters(); c.Get(rnic.FramesRetransmitted) == 0 {
		t.Error("no packet was resent, so no loss was repaired")
	}
	if e := g.engine(t); e.Carried == 0 {
		t.Errorf("the kernel carried nothing (%s)", e.Reason)
	}
}

// AF_XDP carries frames of two buffers, and groups whose engine is afxdp. The group's state says
// why.
func TestTheKernelLeavesTheRestToAFXDP(t *testing.T) {
	for name, c := range map[string]struct {
		lab    labOptions
		group  groupOptions
		engine mft.Engine
		reason string
	}{
		"path MTU 4096":    {labOptions{Options: bed.Options{MTU: 4200}}, groupOptions{pathMTU: 4096}, mft.EngineAuto, ""},
		"engine: afxdp":    {labOptions{}, groupOptions{}, mft.EngineAFXDP, "engine is afxdp"},
		"generic mode":     {labOptions{mode: "generic"}, groupOptions{}, mft.EngineAuto, "cannot send to all ports"},
		"too many regions": {labOptions{}, groupOptions{regions: mft.BlockRegions + 1}, mft.EngineAuto, "memory regions"},
	} {
		t.Run(name, func(t *testing.T) {
			c.lab.Hosts, c.lab.fanOut = 4, true
			c.group.memory, c.group.engine = 1<<20, c.engine
			g := newLab(t, c.lab).addGroup(t, c.group)
			g.holds(t, g.write(t, 1<<20))
			if e := g.engine(t); e.Carried != 0 || !strings.Contains(e.Reason, c.reason) {
				t.Errorf("the kernel carried %d packets (%s)", e.Carried, e.Reason)
			}
			for _, p := range g.lab.sw.Ports() {
				if generic := c.lab.mode == afxdp.ModeGeneric; (p.NoFanOut != "") != generic {
					t.Errorf("port %s: %q", p.Name, p.NoFanOut)
				}
			}
		})
	}
}

// The kernel stops carrying a group that is removed, and another group may take its place.
func TestARemovedGroupLeavesTheKernel(t *testing.T) {
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}, fanOut: true})
	o := groupOptions{memory: 1 << 20, rnic: func(c *rnic.Config) { c.Timeout, c.RetryCount = 16, 3 }}
	g := l.addGroup(t, o)
	data := g.write(t, 1<<20)
	if e := g.engine(t); !e.Kernel {
		t.Fatalf("the kernel does not carry the group: %s", e.Reason)
	}
	check(t, l.sw.Remove(g.ID))
	g.post(t, 0, make([]byte, 4096))
	if c := g.completion(t); c.Status != rnic.RetryExceeded {
		t.Errorf("the WRITE to a removed group ended with %v", c)
	}
	g.holds(t, data)
	next := l.addGroup(t, o)
	next.holds(t, next.write(t, 1<<20))
	if e := next.engine(t); e.Carried == 0 {
		t.Errorf("the kernel does not carry the next group: %s", e.Reason)
	}
}

// What the kernel carried by a port that was removed does not count for the next port with its
// number.
func TestAPortDoesNotInheritWhatTheKernelCarried(t *testing.T) {
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}, fanOut: true})
	g := l.addGroup(t, groupOptions{memory: 1 << 20})
	g.holds(t, g.write(t, 1<<20))
	if e, p := g.engine(t), l.sw.Ports()[3]; e.Carried < 512 || p.TxFrames < e.Carried {
		t.Fatalf("the kernel carried %d, and the port counts %+v", e.Carried, p.PortCounters)
	}
	check(t, l.sw.Remove(g.ID))
	old := l.sw.Ports()[3]
	l.sw.RemovePorts([]string{old.Name})
	check(t, l.Box.Do(func() error { return l.sw.AddPorts([]string{"later"}, make([]dataplane.Egress, 1)) }))
	if p := l.sw.Ports()[3]; p.ID != old.ID || p.Name != "later" || p.PortCounters != (dataplane.PortCounters{}) {
		t.Errorf("%+v", p)
	}
}
