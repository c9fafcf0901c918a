package dataplane_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

var everything = dataplane.CaptureConfig{Kinds: dataplane.CaptureAll, Snap: dataplane.SnapLeast}

// only is everything of one group.
func only(g *mft.Group) dataplane.CaptureConfig {
	c := everything
	c.One, c.Group = true, g.ID
	return c
}

func capture(t testing.TB, s *dataplane.Switch, c dataplane.CaptureConfig) *dataplane.Capture {
	t.Helper()
	began, err := s.Capture(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(began.Close)
	return began
}

// seen returns a line for each frame captured: the event, counted from 1 in each call, the port,
// and what became of the frame.
func seen(c *dataplane.Capture) (lines []string) {
	events := map[uint64]int{}
	c.Read(func(f *dataplane.Captured) {
		if events[f.Event] == 0 {
			events[f.Event] = len(events) + 1
		}
		port := fmt.Sprint(f.Port)
		if f.Port == mft.NoPort {
			port = "to " + f.To.Dst.String()
		}
		lines = append(lines, fmt.Sprintf("%d: %s %s %s", events[f.Event], port, f.Verdict(), f.Why()))
	})
	return lines
}

func expectSeen(t *testing.T, c *dataplane.Capture, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, seen(c)); diff != "" {
		t.Error(diff)
	}
}

// A capture has every frame that was received, what became of it, and everything that was sent
// because of it.
func TestACaptureHasWhatBecameOfEachFrame(t *testing.T) {
	g := group()
	net := newNet(t, g)
	c := capture(t, net.Switch, only(g))
	say(t, net, write(firstPSN, []byte("x")))
	expectSeen(t, c, "1: 0 forward forwarded", "1: 1 send copy", "1: 2 send copy", "1: 3 send copy")
	for i, want := range [][]string{
		{"1: 1 absorb absorbed"}, {"1: 2 absorb absorbed"}, {"1: 3 forward merged", "1: 0 send reply"},
	} {
		say(t, net, ack(g.Paths[i].Dst, g.Paths[i].FirstPSN, roce.SyndromeUnlimited))
		expectSeen(t, c, want...)
	}
	say(t, net, cnp(ipB))
	expectSeen(t, c, "1: 1 forward cnp-passed", "1: 0 send reply")

	net.Ports[1].Put(damaged(ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeUnlimited).frame(t)))
	net.Ports[0].Put(with(write(firstPSN, nil), func(p *packet) { p.bth.DestQPN = 999 }).frame(t))
	net.Ports[2].Put(write(firstPSN+1, nil).frame(t))
	net.Poll()
	expectSeen(t, c, "1: 0 drop unknown-qpn", "2: 1 drop bad-icrc", "3: 2 drop wrong-port")
	if c.Lost() != 0 || c.Gone() {
		t.Errorf("%d lost, gone %t", c.Lost(), c.Gone())
	}
}

// Frames of one batch are told apart: each copy and each reply belongs to its frame.
func TestFramesOfOneBatchAreToldApart(t *testing.T) {
	g := group()
	g.Paths = g.Paths[:1]
	net := newNet(t, g)
	c := capture(t, net.Switch, only(g))
	for psn := roce.PSN(firstPSN); psn < firstPSN+3; psn++ {
		net.Ports[0].Put(write(psn, nil).frame(t))
	}
	net.Poll()
	expectSeen(t, c, "1: 0 forward forwarded", "2: 0 forward forwarded", "3: 0 forward forwarded",
		"1: 1 send copy", "2: 1 send copy", "3: 1 send copy")
	for psn := roce.PSN(0xFFFFF2); psn < 0xFFFFF4; psn++ {
		net.Ports[1].Put(ack(ipB, psn, roce.SyndromeUnlimited).frame(t))
	}
	net.Poll()
	// The second merged ACK has taken the place of the first one.
	expectSeen(t, c, "1: 1 forward merged", "2: 1 forward merged", "2: 0 send reply")
	net.Ports[0].Put(write(firstPSN, nil).frame(t))
	net.Ports[0].Put(write(firstPSN+1, nil).frame(t))
	net.Poll()
	expectSeen(t, c, "1: 0 absorb filtered", "2: 0 absorb filtered", "2: 0 send reply")
}

// What was to be sent and was not is captured with the reason.
func TestACaptureHasWhatIsNotSent(t *testing.T) {
	g := group()
	g.Paths[1].Port = mft.NoPort
	net := newNet(t, g)
	c := capture(t, net.Switch, only(g))
	net.Ports[3].Full = true
	say(t, net, write(firstPSN, nil))
	expectSeen(t, c, "1: 0 forward forwarded", "1: to 10.77.0.3 drop unsent", "1: 1 send copy", "1: 3 drop tx-lost")

	size := len(write(firstPSN, nil).frame(t))
	b := bounded(t, dataplane.Egress{LimitBytes: 2 * size}) // of which repairs have a half
	c = capture(t, b.Switch, only(b.group))
	b.Ports[1].Waiting = 2 * size
	for psn := roce.PSN(firstPSN); psn < firstPSN+2; psn++ {
		b.send(write(psn, nil))
		expectSeen(t, c, "1: 0 forward forwarded", "1: 1 drop queue-full", "1: 2 send copy", "1: 3 send copy")
	}
	b.Ports[1].Waiting = 0
	b.answer(0, firstPSN, roce.NAKSequence)
	expectSeen(t, c, "1: 1 forward repaired", "1: 1 drop repair-put-off", "1: 1 send repair")
}

// The record of a frame has the first bytes of it, its length and its ICRC; that of a copy has the
// copy's.
func TestARecordHasTheBytes(t *testing.T) {
	g := group()
	g.PathMTU = 4096
	net := newNet(t, g)
	long := write(firstPSN, bytes.Repeat([]byte("payload."), 512))
	for _, snap := range []int{dataplane.SnapLeast, 300, dataplane.SnapMost} {
		config := only(g)
		config.Snap = snap
		c, err := net.Switch.Capture(config)
		if err != nil {
			t.Fatal(err)
		}
		for i := range net.Ports {
			net.Ports[i].Take()
		}
		say(t, net, long)
		sent := [][]byte{long.frame(t)}
		for i := range g.Paths {
			sent = append(sent, net.Ports[i+1].Take()...)
		}
		n := 0
		c.Read(func(f *dataplane.Captured) {
			b := sent[n]
			var v roce.View
			if err := v.Decode(b, len(b)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(f.Bytes, b[:min(snap, len(b))]) || f.Length != len(b) || f.ICRC != v.StoredICRC([][]byte{b}) {
				t.Errorf("snap %d, frame %d: %d of %d bytes, ICRC %#x", snap, n, len(f.Bytes), f.Length, f.ICRC)
			}
			if f.Table.Group(f.Group) != g {
				t.Errorf("the group of frame %d is %v", n, f.Group)
			}
			n++
		})
		if n != len(sent) || n != 4 {
			t.Errorf("%d frames captured, %d sent", n, len(sent))
		}
		c.Close()
		long.bth.PSN++
	}
}

// A capture has only the kinds and the group that it was asked for. Each frame has one kind.
func TestACaptureHasWhatItWasAskedFor(t *testing.T) {
	g, other := group(), numbered(1)
	net := newNet(t, g)
	if _, err := net.Switch.Add(other); err != nil {
		t.Fatal(err)
	}
	kinds := func(config dataplane.CaptureConfig, kind dataplane.CaptureKind) *dataplane.Capture {
		config.Kinds = kind
		return capture(t, net.Switch, config)
	}
	data, feedback := kinds(only(g), dataplane.CaptureData), kinds(only(g), dataplane.CaptureFeedback)
	drops, both := kinds(everything, dataplane.CaptureDrop), kinds(only(other), dataplane.CaptureAll)
	net.Ports[3].Full = true
	say(t, net, write(firstPSN, nil))
	for _, p := range g.Paths {
		say(t, net, ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited))
	}
	net.Ports[0].Put(damaged(write(firstPSN, nil).frame(t)))
	net.Ports[3].Full = false
	net.Ports[0].Put(dataOf(t, 1))
	elsewhere := with(write(firstPSN, nil), func(p *packet) { p.dst, p.bth.DestQPN = ipGroup, 7 })
	net.Ports[0].Put(elsewhere.frame(t))
	net.Poll()
	expectSeen(t, data, "1: 0 forward forwarded", "1: 1 send copy", "1: 2 send copy")
	expectSeen(t, feedback, "1: 1 absorb absorbed", "2: 2 absorb absorbed", "3: 3 forward merged", "3: 0 send reply")
	expectSeen(t, drops, "1: 3 drop tx-lost", "2: 0 drop bad-icrc", "3: 0 drop unknown-qpn")
	expectSeen(t, both, "1: 0 forward forwarded", "2: 0 drop unknown-qpn", "1: 1 send copy", "1: 2 send copy", "1: 3 send copy")

	if _, err := net.Switch.Capture(everything); !errors.Is(err, dataplane.ErrCaptures) {
		t.Errorf("a fifth capture: %v", err)
	}
	if _, err := net.Switch.Capture(dataplane.CaptureConfig{One: true, Group: 77}); err == nil || errors.Is(err, dataplane.ErrCaptures) {
		t.Errorf("a capture of a group that does not exist: %v", err)
	}
}

// A frame to another IP than the group's is not the group's, even if the box takes it.
func TestACaptureOfAGroupHasNoFramesToOtherGroups(t *testing.T) {
	g, other := group(), group()
	at(other, ipGroup.Next())
	net := newNet(t, g)
	if _, err := net.Switch.Add(other); err != nil {
		t.Fatal(err)
	}
	c := capture(t, net.Switch, only(g))
	stray := with(write(firstPSN, nil), func(p *packet) { p.dst, p.bth.DestQPN = other.IP, 7 })
	say(t, net, stray)
	if n := counter(t, net.Switch, "unknown-qpn"); n != 1 {
		t.Fatalf("the box took %d frames", n)
	}
	expectSeen(t, c)
}

// Frames that find the ring full are lost and counted, and what comes afterwards is captured again.
func TestAFullCaptureCountsWhatItLoses(t *testing.T) {
	g := group()
	net := newNet(t, g)
	config := only(g)
	config.Snap, config.Kinds = dataplane.SnapMost, dataplane.CaptureDrop
	c := capture(t, net.Switch, config)
	const room = 512 // a power of two of 4608 bytes in 4 MiB
	bad := damaged(ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeUnlimited).frame(t))
	for range room + 3 {
		net.Ports[1].Put(bad)
	}
	net.Poll()
	if n := len(seen(c)); n != room || c.Lost() != 3 {
		t.Errorf("captured %d, lost %d", n, c.Lost())
	}
	net.Ports[1].Put(bad)
	net.Poll()
	expectSeen(t, c, "1: 1 drop bad-icrc")
	if c.Lost() != 3 {
		t.Errorf("lost %d", c.Lost())
	}
}

// A sample has about one in so many received frames, and everything that is sent because of those.
func TestASampleHasWholeEvents(t *testing.T) {
	g := group()
	net := newNet(t, g)
	config := only(g)
	config.Sample = 4
	c := capture(t, net.Switch, config)
	data, whole := 0, 0
	for psn := roce.PSN(firstPSN); psn < firstPSN+400; psn++ {
		say(t, net, write(psn, nil))
		for _, p := range g.Paths { // one event in four is data, and one frame in four is to be had
			say(t, net, ack(p.Dst, p.FirstPSN.Add(psn.Sub(firstPSN)), roce.SyndromeUnlimited))
		}
		lines := strings.Join(seen(c), "\n")
		if strings.Contains(lines, "forwarded") {
			data++
			if strings.Count(lines, "copy") == 3 {
				whole++
			}
		} else if strings.Contains(lines, "copy") {
			t.Errorf("copies of a frame that is not captured:\n%s", lines)
		}
	}
	if data < 80 || data > 120 || whole != data {
		t.Errorf("of 400 packets %d are captured, %d of them with all copies", data, whole)
	}
}

// While a capture runs, its groups' packets come to the worker, and the engine's state says why.
// Afterwards the engine gets the group again, no later than if there had been no capture.
func TestACaptureKeepsTheEngineAway(t *testing.T) {
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		b, psn := newCarriedBench(t, func(g *mft.Group) { g.Policy.Repair = repair })
		other := numbered(1)
		b.add(other)
		elsewhere := capture(t, b.Switch, only(other))
		b.expectEngine(true)
		c, err := b.Switch.Capture(only(b.group))
		if err != nil {
			t.Fatal(err)
		}
		round := func() {
			b.send(quiet(psn))
			for path := range b.group.Paths {
				b.answer(path, psn, roce.SyndromeUnlimited)
			}
			psn = psn.Next()
		}
		for range 2 * calmPackets {
			round()
			if lines := seen(c); len(lines) != 4+4 || !strings.HasSuffix(lines[0], "forwarded") {
				t.Fatalf("captured %q", lines)
			}
		}
		if st, _ := b.Switch.GroupState(b.group.ID); st.Engine.Kernel || !strings.Contains(st.Engine.Reason, "rocast capture") {
			t.Errorf("%+v", st.Engine)
		}
		c.Close()
		if st, _ := b.Switch.GroupState(b.group.ID); strings.Contains(st.Engine.Reason, "capture") {
			t.Errorf("after the capture: %+v", st.Engine)
		}
		for range calmPackets {
			b.expectEngine(false)
			round()
		}
		b.expectEngine(true)
		if lines := seen(elsewhere); len(lines) > 0 {
			t.Errorf("a capture of another group has %q", lines)
		}
	}
}

// A group that was calm enough before the capture began is not armed any more.
func TestAGroupIsNotArmedWhenACaptureHasBegun(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.plain(g, calmPackets)
	if dataplane.Noted(b.core) != 1 {
		t.Fatal("the group is not to be armed")
	}
	dataplane.CaptureEverything(b.core)
	b.core.Arm(0, &b.out)
	if e, n := dataplane.EngineOf(b.core, g.ID), dataplane.Fans(b.core); e.Kernel || !strings.Contains(e.Reason, "capture") || n.Refused != 0 {
		t.Errorf("%+v, %+v", e, n)
	}
}

// What the engine carried before the capture is merged, and nothing is sent twice.
func TestACaptureBeginsWhileTheEngineHasPackets(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn), quiet(psn.Next()))
	before, _ := b.Switch.GroupState(b.group.ID)
	c := capture(t, b.Switch, everything)
	after, _ := b.Switch.GroupState(b.group.ID)
	if before.Group != b.Switch.Table().Group(b.group.ID) {
		t.Errorf("the state is of %+v", before.Group)
	}
	if before.Sent != after.Sent || after.Sent != psn.Next() || after.Engine.Kernel {
		t.Errorf("sent %d before and %d afterwards; %+v", before.Sent, after.Sent, after.Engine)
	}
	if lines := seen(c); len(lines) != 0 {
		t.Errorf("%q", lines)
	}
}

// A capture takes a group back before a receiver has acknowledged anything of what the engine sent.
// When the source sends it again after the capture, the engine is not blamed for that.
func TestACaptureIsNoSignThatTheEngineFails(t *testing.T) {
	b, psn := newCarriedBench(t, func(g *mft.Group) { g.Policy.Repair = feedback.RepairOff })
	capture(t, b.Switch, everything).Close()
	for range calmPackets { // so that the engine begins anew
		b.send(quiet(psn))
		for path := range b.group.Paths {
			b.answer(path, psn, roce.SyndromeUnlimited)
		}
		psn = psn.Next()
	}
	b.expectEngine(true)
	b.send(quiet(psn), quiet(psn.Next()))
	capture(t, b.Switch, everything).Close()
	b.send(quiet(psn))
	if st, _ := b.Switch.GroupState(b.group.ID); st.Counters[feedback.Resent].Value != 1 || strings.Contains(st.Engine.Reason, "acknowledged nothing") {
		t.Errorf("%d packets were sent again; %s", st.Counters[feedback.Resent].Value, st.Engine.Reason)
	}
}

// What time causes is no part of the event of the frame before.
func TestWhatTimeCausesIsAnEventOfItsOwn(t *testing.T) {
	b := newRepairBench(t, 64)
	c := capture(t, b.Switch, only(b.group))
	b.send(write(firstPSN, nil))
	expectSeen(t, c, "1: 0 forward forwarded", "1: 1 send copy", "1: 2 send copy", "1: 3 send copy")
	b.answer(0, firstPSN, roce.SyndromeUnlimited)
	var lines []string
	events := map[uint64]bool{}
	for i := 0; len(lines) < 3 && i < 10000; i++ {
		b.now += feedback.Tick(time.Millisecond)
		b.Poll()
		c.Read(func(f *dataplane.Captured) {
			lines = append(lines, f.Verdict()+" "+f.Why())
			events[f.Event] = true
		})
	}
	if len(lines) < 3 || lines[0] != "absorb absorbed" || lines[1] != "send repair" || len(events) < 2 {
		t.Errorf("%q in %d events", lines, len(events))
	}
}

// A frame is captured by the worker that owns its group, or where it is lost on the way there.
func TestACaptureOfSeveralWorkers(t *testing.T) {
	net, g := ofSecond(t)
	c := capture(t, net.Switch, only(g))
	net.Queues[0][0].Put(write(firstPSN, nil).frame(t))
	net.Queues[0][0].Put(write(firstPSN+1, make([]byte, dataplane.HandoffBytes)).frame(t))
	net.Switch.Workers()[0].Poll()
	net.Switch.Workers()[1].Poll()
	expectSeen(t, c, "1: 0 drop over-mtu", "2: 0 forward forwarded", "2: 1 send copy", "2: 2 send copy", "2: 3 send copy")
	for range dataplane.HandoffFrames + 1 {
		net.Queues[0][0].Put(write(firstPSN+1, nil).frame(t))
	}
	for net.Switch.Workers()[0].Poll() > 0 {
	}
	expectSeen(t, c, "1: 0 drop handoff-full")
}

// The group is removed while it is captured: the capture says so, and has the frames that were on
// their way.
func TestTheCapturedGroupIsRemoved(t *testing.T) {
	g := group()
	net := newNet(t, g)
	c, all := capture(t, net.Switch, only(g)), capture(t, net.Switch, everything)
	say(t, net, write(firstPSN, nil))
	if err := net.Switch.Remove(g.ID); err != nil {
		t.Fatal(err)
	}
	if !c.Gone() || all.Gone() {
		t.Errorf("gone: %t, and the capture of everything %t", c.Gone(), all.Gone())
	}
	c.Read(func(f *dataplane.Captured) {
		if got := f.Table.Group(f.Group); got != g {
			t.Errorf("the removed group is %v", got)
		}
	})
}

// Captures begin, read and end while workers forward, and when they have ended.
func TestCapturesWhileWorkersRun(t *testing.T) {
	r := newRunning(t, 2, false)
	g := group()
	if _, err := r.Add(g); err != nil {
		t.Fatal(err)
	}
	frame := damaged(ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeUnlimited).frame(t))
	stop := make(chan struct{})
	var feed sync.WaitGroup
	feed.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				for i := range r.waits {
					if l := r.lines[i][1]; l.waiting() < 64 {
						l.put(frame)
					}
					r.waits[i].Wake()
				}
				runtime.Gosched()
			}
		}
	})
	captured := func() {
		c, err := r.Capture(everything)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for n, end := 0, time.Now().Add(20*time.Second); n < 100; {
			c.Read(func(f *dataplane.Captured) {
				if n++; f.Why() != "bad-icrc" && f.Why() != "handoff-full" || !bytes.Equal(f.Bytes, frame) {
					t.Errorf("captured %s, %d bytes", f.Why(), len(f.Bytes))
				}
			})
			runtime.Gosched()
			if time.Now().After(end) {
				t.Error("nothing is captured")
				return
			}
		}
	}
	var readers sync.WaitGroup
	for range dataplane.MaxCaptures {
		readers.Go(captured)
	}
	readers.Wait()
	c, err := r.Capture(everything)
	if err != nil {
		t.Fatal(err)
	}
	close(stop)
	feed.Wait()
	r.stop()
	within(t, "reading and closing", func() { c.Read(func(*dataplane.Captured) {}); c.Close() })
	within(t, "a capture of a switch that has ended", func() { capture(t, r.Switch, everything) })
}

// To capture does not allocate, whether there is room or not.
func TestCapturingAllocatesNothing(t *testing.T) {
	w, ports, g := newLoops(t, 1024, feedback.RepairOff)
	s := ports[0].sw
	c := capture(t, s, only(g))
	w.Poll()
	if n := testing.AllocsPerRun(1000, func() { w.Poll() }); n != 0 {
		t.Errorf("%v allocations per round with room", n)
	}
	for c.Lost() == 0 {
		w.Poll()
	}
	if n := testing.AllocsPerRun(1000, func() { w.Poll() }); n != 0 {
		t.Errorf("%v allocations per round without room", n)
	}
	if n := len(seen(c)); n < 1000 {
		t.Errorf("captured %d", n)
	}
}

// BenchmarkCapture measures what BenchmarkRound does: eight frames, four of them received.
func BenchmarkCapture(b *testing.B) {
	for name, config := range map[string]*dataplane.CaptureConfig{
		"none": nil, "all": {Kinds: dataplane.CaptureAll, Snap: dataplane.SnapLeast},
		"drops":   {Kinds: dataplane.CaptureDrop, Snap: dataplane.SnapLeast},
		"1in1000": {Kinds: dataplane.CaptureAll, Snap: dataplane.SnapLeast, Sample: 1000},
	} {
		b.Run(name, func(b *testing.B) {
			w, ports, _ := newLoops(b, 1024, feedback.RepairOff)
			read := func() {}
			if config != nil {
				c := capture(b, ports[0].sw, *config)
				read = func() { c.Read(func(*dataplane.Captured) {}) }
			}
			for i := 0; b.Loop(); i++ {
				if w.Poll(); i%1024 == 0 {
					read()
				}
			}
		})
	}
}
