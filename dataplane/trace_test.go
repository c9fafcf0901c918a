package dataplane_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// told describes captured frames with all their bytes.
func told(frames []dataplane.Captured) (lines []string) {
	for i := range frames {
		f := &frames[i]
		lines = append(lines, fmt.Sprintf("%d %s %s %x %d %x", f.Port, f.Verdict(), f.Why(), f.ICRC, f.Length, f.Bytes))
	}
	return lines
}

// traced is a trace that is not refused.
func traced(t *testing.T, s *dataplane.Switch, port mft.PortID, frame []byte) dataplane.Trace {
	t.Helper()
	trace, err := s.Trace(port, frame)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// conversation is what happens to two equal switches. At one of them each frame is traced before it
// arrives.
type conversation struct {
	t             *testing.T
	traced, other *porttest.Net
	groups        [2]*mft.Group
	capture       *dataplane.Capture // of other
	now           feedback.Tick
}

func newConversation(t *testing.T, engine bool, repair feedback.RepairPolicy) *conversation {
	c := &conversation{t: t}
	for i, net := range []**porttest.Net{&c.traced, &c.other} {
		fanOut := porttest.NewFanOut()
		if !engine {
			fanOut = nil
		}
		*net = porttest.NewRetaining(4, 256, fanOut, func() feedback.Tick { return c.now })
		g := group()
		g.Policy.Repair, g.Policy.RepairWindow, g.Policy.SilentAfter = repair, 64, 5*time.Millisecond
		if _, err := (*net).Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		c.groups[i] = g
	}
	if !engine {
		config := everything
		config.Snap = dataplane.SnapMost
		c.capture = capture(t, c.other.Switch, config)
	}
	return c
}

// arrive lets a frame arrive at both. What the trace says is what happens.
func (c *conversation) arrive(port int, frame []byte) {
	c.t.Helper()
	c.now += feedback.Tick(50 * time.Microsecond)
	before := moved(c.traced.Switch)
	trace := traced(c.t, c.traced.Switch, mft.PortID(port), frame)
	if diff := cmp.Diff(before, moved(c.traced.Switch)); diff != "" {
		c.t.Fatalf("the trace counts: %s", diff)
	}
	c.traced.Ports[port].Put(frame)
	c.other.Ports[port].Put(frame)
	if c.capture != nil {
		c.capture.Read(func(*dataplane.Captured) {}) // what time has caused
	}
	was := c.engine()
	c.traced.Poll()
	c.other.Poll()
	if is := c.engine(); trace.Carried != (is.Carried > was.Carried) || trace.GivesBack != dataplane.IsPlain && (!was.Kernel || is.Kernel) {
		c.t.Fatalf("the trace says: carried %t, gives back %q; the engine was %+v and is %+v", trace.Carried, trace.GivesBack, was, is)
	}
	for i := range c.traced.Ports {
		got, want := c.traced.Ports[i].Take(), c.other.Ports[i].Take()
		if diff := cmp.Diff(want, got); diff != "" {
			c.t.Fatalf("port %d sends something else after a trace:\n%s", i, diff)
		}
	}
	if c.capture == nil {
		return
	}
	var happened []dataplane.Captured
	event := uint64(0)
	c.capture.Read(func(f *dataplane.Captured) {
		if f.Fate == dataplane.Received {
			event = f.Event
		}
		if f.Event != event {
			return // time has caused it
		}
		h := *f
		h.Bytes = bytes.Clone(f.Bytes)
		happened = append(happened, h)
	})
	if diff := cmp.Diff(told(happened), told(trace.Frames)); diff != "" {
		c.t.Fatalf("the trace is not what happened:\n%s", diff)
	}
}

// engine asks both switches how their engines are. The state of the one that has traced counts.
func (c *conversation) engine() dataplane.EngineState {
	_, _ = c.other.Switch.GroupState(c.groups[1].ID)
	s, _ := c.traced.Switch.GroupState(c.groups[0].ID)
	return s.Engine
}

// Whatever a group goes through, a trace says what happens next, to the last byte, and what happens
// is the same as if there had been no trace.
func TestATraceIsWhatHappens(t *testing.T) {
	testlab.Long(t)
	carried := uint64(0)
	for seed := range uint64(4) {
		engine, repair := seed%2 == 0, feedback.RepairPolicy(seed/2%2)
		c := newConversation(t, engine, repair)
		r := rand.New(rand.NewPCG(seed, 1))
		next, acked := roce.PSN(firstPSN), make([]roce.PSN, 3)
		for i := range acked {
			acked[i] = firstPSN - 1
		}
		for range 200 {
			path := r.IntN(3)
			p := &c.groups[0].Paths[path]
			psn := acked[path].Next()
			switch n := r.IntN(20); {
			case n < 8 && next.Sub(firstPSN) < 200:
				w := write(next, bytes.Repeat([]byte{byte(next)}, 64))
				w.bth.AckReq = r.IntN(2) == 0
				c.arrive(0, w.frame(t))
				next = next.Next()
			case n < 10 && next.After(firstPSN):
				c.arrive(0, write(next.Add(-1-r.Int32N(3)), []byte("again")).frame(t))
			case n == 10:
				c.arrive(0, damaged(write(next.Next(), nil).frame(t)))
			case n == 11:
				c.arrive(path+1, damaged(ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).frame(t)))
			case n == 12 && psn.Before(next):
				c.arrive(path+1, ack(p.Dst, p.FirstPSN.Add(psn.Sub(firstPSN)), roce.NAKSequence).frame(t))
			case n == 13:
				c.arrive(path+1, cnp(p.Dst).frame(t))
			case n == 14:
				c.arrive(0, with(write(next, nil), func(p *packet) { p.bth.DestQPN = 77 }).frame(t))
			case psn.Before(next):
				acked[path] = psn
				c.arrive(path+1, ack(p.Dst, p.FirstPSN.Add(psn.Sub(firstPSN)), roce.SyndromeUnlimited).frame(t))
			}
		}
		if next.Sub(firstPSN) < 30 {
			t.Errorf("seed %d: only %d packets", seed, next.Sub(firstPSN))
		}
		a, _ := c.traced.Switch.GroupState(c.groups[0].ID)
		b, _ := c.other.Switch.GroupState(c.groups[1].ID)
		a.Group, b.Group = nil, nil // they are two groups
		if diff := cmp.Diff(b, a, cmpopts.IgnoreFields(dataplane.Refused{}, "From", "To", "QPN", "Port"), addrEqual); diff != "" {
			t.Errorf("seed %d: the state is another one: %s", seed, diff)
		}
		carried += counter(t, c.traced.Switch, "fan-out-carried")
		if repair == feedback.RepairLocal && counter(t, c.traced.Switch, "repair-sent") == 0 {
			t.Errorf("seed %d: nothing was repaired", seed)
		}
	}
	if carried == 0 {
		t.Error("the engine carried nothing")
	}
}

// A trace does not end the engine's turn, and a trace of a packet that a receiver asks for again
// finds it with the engine.
func TestATraceOfAGroupThatTheEngineCarries(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn), quiet(psn.Next()))
	trace := traced(t, b.Switch, 0, quiet(psn.Add(2)).frame(t))
	if lines := strings.Join(told(trace.Frames), "\n"); !trace.Carried || !strings.Contains(lines, "forward forwarded") || strings.Count(lines, "copy") != 3 {
		t.Errorf("carried %t:\n%s", trace.Carried, lines)
	}
	again, far := quiet(psn).frame(t), with(quiet(psn.Add(2)), func(p *packet) { p.reth.RKey++ }).frame(t)
	for want, frame := range map[dataplane.NotPlain][]byte{dataplane.NotNextPSN: again, dataplane.NotItsMemory: far} {
		if trace := traced(t, b.Switch, 0, frame); trace.Carried || trace.GivesBack != want {
			t.Errorf("carried %t, gives back %q, want %q", trace.Carried, trace.GivesBack, want)
		}
	}
	p := &b.group.Paths[0]
	nak := ack(p.Dst, psn.Add(b.group.DeltaPSN(0)), roce.NAKSequence).frame(t)
	trace = traced(t, b.Switch, 1, nak)
	if lines := strings.Join(told(trace.Frames), "\n"); trace.Carried || trace.GivesBack != dataplane.IsPlain || !strings.Contains(lines, "forward repaired") || strings.Count(lines, "send repair") != 2 {
		t.Errorf("a NAK for what the engine has:\n%s", lines)
	}
	b.expectEngine(true)
	b.expectRetained(0)
}

// The copy of a group that waits for an answer, behind another group that does, has no place among
// those that wait. A trace of what makes it due earlier needs none.
func TestATraceOfAGroupThatWaits(t *testing.T) {
	b := newRepairBench(t, 64)
	other := b.withGroups(1)[1]
	b.send(asking(1000), asking(1000).to(other))
	p := &other.Paths[1]
	soon := with(ack(p.Dst, p.FirstPSN, roce.SyndromeRNR(1)), func(a *packet) { a.bth.DestQPN = other.QPN }) // to be sent again in 10 us
	trace := traced(t, b.Switch, p.Port, soon.frame(t))
	if trace.Group != other.ID || len(trace.Frames) != 1 || trace.Frames[0].Why() != "repaired" {
		t.Errorf("%s of group %d", told(trace.Frames), trace.Group)
	}
}

// The classifier's decision is part of a trace, and each refusal has its name.
func TestATraceNamesTheRefusal(t *testing.T) {
	g := group()
	net := newNet(t, g)
	data, answer := write(firstPSN, nil), ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited)
	for want, c := range map[string]struct {
		port  int
		frame []byte
	}{
		"unknown-qpn":   {0, with(data, func(p *packet) { p.bth.DestQPN = 9 }).frame(t)},
		"wrong-port":    {1, data.frame(t)},
		"wrong-vlan":    {0, tagged(data, 7).frame(t)},
		"not-member":    {0, with(data, func(p *packet) { p.src = ipD.Next() }).frame(t)},
		"not-source":    {1, with(data, func(p *packet) { p.src = ipB }).frame(t)},
		"not-receiver":  {0, with(answer, func(p *packet) { p.src = ipA }).frame(t)},
		"bad-icrc":      {1, damaged(answer.frame(t))},
		"hop-limit":     {0, with(data, func(p *packet) { p.hopLimit = 1 }).frame(t)},
		"over-mtu":      {0, write(firstPSN, make([]byte, 2048)).frame(t)},
		"refused-memor": {0, with(write(firstPSN, make([]byte, 64)), func(p *packet) { p.reth.RKey = 5 }).frame(t)},
		"outside-windo": {0, write(firstPSN+feedback.Window+5, nil).frame(t)},
	} {
		trace := traced(t, net.Switch, mft.PortID(c.port), c.frame)
		if len(trace.Frames) == 0 || trace.Class != dataplane.ToGroup || !strings.HasPrefix(trace.Frames[0].Why(), want) {
			t.Errorf("%s: %+v", want, trace)
		}
	}
	if m := moved(net.Switch); len(m) > 0 || dataplane.HasState(net.Switch.Workers()[0], g.ID) {
		t.Errorf("traces have counted %v", m)
	}
	for frame, want := range map[string]dataplane.Class{
		string(with(data, func(p *packet) { p.dst = ipB }).frame(t)):                 dataplane.ToKernel,
		string(with(data, func(p *packet) { p.src, p.dst = ipGroup, ipB }).frame(t)): dataplane.OwnSource,
		"no frame": dataplane.ToKernel,
	} {
		if trace := traced(t, net.Switch, 0, []byte(frame)); trace.Class != want || len(trace.Frames) > 0 {
			t.Errorf("%+v, want class %d", trace, want)
		}
	}
}

// No buffer of a trace takes a longer frame than any that belongs to a group.
func TestATraceOfAFrameThatIsTooLong(t *testing.T) {
	net := newNet(t, group())
	longest := make([]byte, dataplane.SnapMost)
	copy(longest, write(firstPSN, nil).frame(t))
	if trace := traced(t, net.Switch, 0, longest); len(trace.Frames) == 0 {
		t.Errorf("%+v", trace)
	}
	_, err := net.Switch.Trace(0, append(longest, 0))
	if want := "the frame has 4609 bytes, and no frame of a group has more than 4608"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
