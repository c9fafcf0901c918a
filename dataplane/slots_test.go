package dataplane_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// talk lets the source of a group send some packets.
type talk struct {
	t     *testing.T
	net   *porttest.Net
	now   *feedback.Tick
	group *mft.Group
	next  roce.PSN
}

func (w *talk) send(packets int) {
	w.t.Helper()
	for range packets {
		*w.now += feedback.Tick(20 * time.Microsecond)
		p := write(w.next, []byte("data"))
		p.dst = w.group.IP
		w.net.Ports[0].Put(p.frame(w.t))
		w.net.Poll()
		for port := 1; port <= 3; port++ {
			if out := w.net.Ports[port].Take(); len(out) != 1 {
				w.t.Fatalf("PSN %d of %v: %d copies at port %d", w.next, w.group.IP, len(out), port)
			}
		}
		w.next = w.next.Next()
	}
}

func (w *talk) engine() dataplane.EngineState {
	st, _ := w.net.Switch.GroupState(w.group.ID)
	return st.Engine
}

// Two groups share a slot in the engine. The one that has it keeps it as long as it talks, and the
// other one asks more and more seldom. When it has been silent from one question to the next, the
// other one gets the slot.
func TestASilentGroupLosesItsSlot(t *testing.T) {
	now := new(feedback.Tick)
	net := porttest.NewFanOutAt(4, func() feedback.Tick { return *now })
	net.FanOut.Slots = 1
	join := func(ip netip.Addr) *talk {
		g := group()
		at(g, ip)
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		return &talk{t, net, now, g, firstPSN}
	}
	a, b := join(ipGroup), join(netip.MustParseAddr("10.77.0.101"))
	expect := func(holder *talk, refused uint64) {
		t.Helper()
		for _, w := range []*talk{a, b} {
			if e := w.engine(); e.Kernel != (w == holder) || e.Kernel != (e.Reason == "") {
				t.Errorf("%v: carried by the engine: %v, %q", w.group.IP, e.Kernel, e.Reason)
			}
		}
		if n := counter(t, net.Switch, "fan-out-refused"); n != refused {
			t.Errorf("refused %d times, want %d", n, refused)
		}
	}
	a.send(15)
	expect(nil, 0)
	a.send(1)
	expect(a, 0)
	b.send(15)
	expect(a, 0)
	b.send(1)
	expect(a, 1)
	if why := b.engine().Reason; !strings.Contains(why, "busy") {
		t.Errorf("the reason is %q", why)
	}
	a.send(1)
	b.send(31)
	expect(a, 1)
	b.send(1)
	expect(a, 2)
	b.send(63)
	expect(a, 2)
	b.send(1)
	expect(b, 2)
	a.send(1)
	expect(b, 2)
	a.send(15) // it begins anew, and asks for the slot
	expect(b, 3)
}

// A group that is removed leaves its slot to others.
func TestARemovedGroupLeavesItsSlot(t *testing.T) {
	now := new(feedback.Tick)
	net := porttest.NewFanOutAt(4, func() feedback.Tick { return *now })
	net.FanOut.Slots = 1
	for range 2 {
		g := group()
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		w := &talk{t, net, now, g, firstPSN}
		if w.send(16); !w.engine().Kernel {
			t.Errorf("not carried by the engine: %s", w.engine().Reason)
		}
		net.Switch.Remove(g.ID)
	}
}

// A group that no engine carries says why, and is forwarded all the same.
func TestNoEngine(t *testing.T) {
	for name, c := range map[string]struct {
		engine bool
		edit   func(*mft.Group)
		why    string
	}{
		"no engine":        {false, func(*mft.Group) {}, "the daemon's config says engine: afxdp"},
		"not wanted":       {true, func(g *mft.Group) { g.Engine = mft.EngineAFXDP }, "engine is afxdp"},
		"too many regions": {true, fiveRegions, "memory regions"},
		"not for long yet": {true, func(*mft.Group) {}, "after 16 plain packets"},
	} {
		now := new(feedback.Tick)
		clock := func() feedback.Tick { return *now }
		net := porttest.NewAt(4, clock)
		if c.engine {
			net = porttest.NewFanOutAt(4, clock)
		}
		g := group()
		c.edit(g)
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		w := &talk{t, net, now, g, firstPSN}
		if name == "not for long yet" {
			w.send(15)
		} else {
			w.send(40)
		}
		if e := w.engine(); e.Kernel || !strings.Contains(e.Reason, c.why) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func fiveRegions(g *mft.Group) {
	ranges := []mft.VirtualRegion{memory.Range(0)}
	for k := range mft.BlockRegions {
		ranges = append(ranges, mft.VirtualRegion{VA: uint64(k), Length: 1})
	}
	remember(g, mft.MustMemory(ranges...))
}

// remember gives the group another memory. The receivers keep what they had where it was.
func remember(g *mft.Group, next *mft.Memory) {
	for i := range g.Paths {
		r := &g.Paths[i].Regions
		*r = r.Follow(g.Memory, next, func(v mft.VirtualRegion) mft.Region { return mft.Region(v) })
	}
	g.Memory = next
}
