package dataplane_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// calmPackets is how many plain packets in a row let the core arm a group.
const calmPackets = 16

// batchFrames is how many frames a worker receives at once.
const batchFrames = 64

// engineBench is a core with an engine in front and without ports: the test decides which frames
// the engine sees, and when.
type engineBench struct {
	*porttest.FanOut
	t        *testing.T
	core     *dataplane.Core
	table    *mft.Table
	out      dataplane.Outputs
	next     map[mft.GroupID]roce.PSN // of the source
	onLoad   func()                   // called when the core has looked at the engine
	onWanted func()                   // called when the core asks what others want
	refuse   error                    // of Arm
	deaf     error                    // of Merge
	untold   *feedback.Progress       // of EndMerge: the engine was stopped before it told the source more
}

var errDeaf = errors.New("it cannot send by the source's port")

// Merge is part of dataplane.FanOut.
func (b *engineBench) Merge(id mft.GroupID, at []feedback.Progress, told feedback.Progress, span int32) error {
	if b.deaf != nil {
		return b.deaf
	}
	return b.FanOut.Merge(id, at, told, span)
}

// EndMerge is part of dataplane.FanOut.
func (b *engineBench) EndMerge(id mft.GroupID, at []feedback.Progress) feedback.Progress {
	told := b.FanOut.EndMerge(id, at)
	if b.untold != nil {
		told, b.untold = *b.untold, nil
	}
	return told
}

// Arm is part of dataplane.FanOut.
func (b *engineBench) Arm(id mft.GroupID, block *mft.Block, w dataplane.FanWord, limit roce.PSN) error {
	if b.refuse != nil {
		return b.refuse
	}
	return b.FanOut.Arm(id, block, w, limit)
}

// Load is part of dataplane.FanOut.
func (b *engineBench) Load(id mft.GroupID) dataplane.FanWord {
	w := b.FanOut.Load(id)
	if b.onLoad != nil {
		b.onLoad()
	}
	return w
}

// Wanted is part of dataplane.FanOut.
func (b *engineBench) Wanted(id mft.GroupID) dataplane.Want {
	if b.onWanted != nil {
		b.onWanted()
	}
	return b.FanOut.Wanted(id)
}

// newEngineBench has these groups, which get QPNs of their own.
func newEngineBench(t *testing.T, groups ...*mft.Group) *engineBench {
	t.Helper()
	b := &engineBench{FanOut: porttest.NewFanOut(), t: t, table: new(mft.Table), next: map[mft.GroupID]roce.PSN{}}
	b.core = dataplane.NewCore(b)
	b.core.RetainUpTo(64, nil)
	for i, g := range groups {
		g.QPN += roce.QPN(i)
		for k := range g.Paths {
			g.Paths[k].RemoteQPN = g.QPN
		}
		table, err := b.table.With(g)
		if err != nil {
			t.Fatal(err)
		}
		b.table, b.next[g.ID] = table, g.Source.FirstPSN
	}
	return b
}

// frame is a frame as the classifier attributes it.
func (b *engineBench) frame(p packet) *dataplane.Frame {
	b.t.Helper()
	raw := p.frame(b.t)
	id, kind, class := dataplane.Classify(b.table, raw)
	if class != dataplane.ToGroup {
		b.t.Fatalf("a frame of no group: %+v", p)
	}
	f := &dataplane.Frame{Group: id, Kind: kind, Buf: raw, FragmentCount: 1}
	f.Port = mft.PortID(portOf[p.src])
	if f.Port == 0 && p.aeth != nil {
		f.Port = 1 // further receivers are behind that of b
	}
	f.Fragments[0] = raw
	return f
}

// handle gives a frame to the core, as if it came out of the ring.
func (b *engineBench) handle(p packet) dataplane.Reason {
	b.t.Helper()
	b.out.Reset()
	return b.core.Handle(0, b.table, b.frame(p), &b.out)
}

// carry shows a frame to the engine, and reports whether the engine took it.
func (b *engineBench) carry(p packet) bool {
	b.t.Helper()
	var out dataplane.Outputs
	return b.Carry(b.frame(p), &out)
}

// data is the next packet of the group's source.
func (b *engineBench) data(g *mft.Group) packet {
	p := write(b.next[g.ID], []byte("data"))
	p.bth.DestQPN = g.QPN
	b.next[g.ID] = b.next[g.ID].Next()
	return p
}

// ack is the acknowledgement of everything that was sent, from path i.
func (b *engineBench) ack(g *mft.Group, i int, s roce.Syndrome) packet {
	p := &g.Paths[i]
	a := ack(p.Dst, p.FirstPSN.Add(b.next[g.ID].Prev().Sub(g.Source.FirstPSN)), s)
	a.bth.DestQPN = g.QPN
	return a
}

// arm makes the group calm, and arms it.
func (b *engineBench) arm(g *mft.Group) {
	b.t.Helper()
	for range calmPackets {
		if r := b.handle(b.data(g)); r != dataplane.Reason(feedback.Forwarded) {
			b.t.Fatalf("a plain packet: %v", r)
		}
	}
	b.core.Arm(0, &b.out)
}

func (b *engineBench) armed(g *mft.Group) bool { return b.FanOut.Load(g.ID).Armed }

// mustCarry lets the engine take the source's next packets.
func (b *engineBench) mustCarry(g *mft.Group, packets int) {
	b.t.Helper()
	for range packets {
		if !b.carry(b.data(g)) {
			b.t.Fatal("the engine does not carry the group's next packet")
		}
	}
}

// An ACK of a packet that the engine carried counts, although the core was not told of the packet.
func TestCoreLooksAtTheEngineFirst(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.mustCarry(g, 3)
	for i := range g.Paths {
		if r := b.handle(b.ack(g, i, roce.SyndromeUnlimited)); r.Verdict() == dataplane.Drop {
			t.Fatalf("the ACK of a carried packet: %v", r)
		}
	}
	if len(b.out.Replies) != 1 || b.out.Replies[0].PSN != b.next[g.ID].Prev() || !b.armed(g) {
		t.Errorf("the source hears %+v, armed %v", b.out.Replies, b.armed(g))
	}
}

// An event that ends the plain state disarms the group, and the packets that were carried until
// then count.
func TestWhatTakesAGroupBack(t *testing.T) {
	moved := func(b *engineBench, g *mft.Group) *mft.Group {
		next := *g
		next.Paths = append([]mft.Path(nil), g.Paths...)
		next.Paths[1].L2[0] ^= 2
		table, err := b.table.Replace(g.ID, &next)
		if err != nil {
			t.Fatal(err)
		}
		b.table = table
		return &next
	}
	for name, tt := range map[string]struct {
		happens func(b *engineBench, g *mft.Group)
		stays   bool
	}{
		"an ACK":           {func(b *engineBench, g *mft.Group) { b.handle(b.ack(g, 0, roce.SyndromeUnlimited)) }, true},
		"a NAK":            {func(b *engineBench, g *mft.Group) { b.handle(b.ack(g, 0, roce.NAKSequence)) }, false},
		"a receiver's end": {func(b *engineBench, g *mft.Group) { b.handle(b.ack(g, 0, roce.NAKRemoteAccess)) }, false},
		"a moved host, with a frame": {func(b *engineBench, g *mft.Group) {
			moved(b, g)
			b.handle(b.ack(g, 0, roce.SyndromeUnlimited))
		}, false},
		"a moved host, without a frame":                   {func(b *engineBench, g *mft.Group) { b.core.Adopt(0, moved(b, g), &b.out) }, false},
		"data of a member that may not be the source yet": {func(b *engineBench, g *mft.Group) { b.handle(dataOfB(g)) }, true},
		"data of a member that becomes the source": {func(b *engineBench, g *mft.Group) {
			for i := range g.Paths {
				b.handle(b.ack(g, i, roce.SyndromeUnlimited))
			}
			if r := b.handle(dataOfB(g)); r != dataplane.Reason(feedback.Forwarded) {
				b.t.Errorf("the first packet of the new source: %v", r)
			}
		}, false},
		"data that waited for the core": {func(b *engineBench, g *mft.Group) { b.handle(b.data(g)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := group()
			g.Policy.OnFatal = feedback.FatalEvict
			g.Paths[0].Sends, g.Paths[0].SendPSN = true, 7
			b := newEngineBench(t, g)
			b.arm(g)
			b.mustCarry(g, 3)
			tt.happens(b, g)
			if b.armed(g) != tt.stays {
				t.Errorf("armed: %v", b.armed(g))
			}
		})
	}
}

// dataOfB is the first packet of the receiver that may become the source.
func dataOfB(g *mft.Group) packet {
	p := write(g.Paths[0].SendPSN, nil)
	p.src = ipB
	return p
}

// A frame that is not the source's ends neither the engine's turn nor its merging, whatever PSN it
// has: neither where the engine sees it, nor where the core does.
func TestAStrangersFrameTakesNothingBack(t *testing.T) {
	stranger := netip.MustParseAddr("10.77.0.77")
	for name, tt := range map[string]struct {
		change func(f *dataplane.Frame, p *packet)
		answer bool // an ACK of b's, and not data of the source's
		want   dataplane.Reason
	}{
		"data of a stranger":          {func(_ *dataplane.Frame, p *packet) { p.src = stranger }, false, dataplane.NotMember},
		"data of a receiver":          {func(_ *dataplane.Frame, p *packet) { p.src = ipC }, false, dataplane.NotSource},
		"data by another port":        {func(f *dataplane.Frame, _ *packet) { f.Port = 3 }, false, dataplane.WrongPort},
		"data of another VLAN":        {func(_ *dataplane.Frame, p *packet) { p.tags = []uint16{7} }, false, dataplane.WrongVLAN},
		"data for another QP":         {func(_ *dataplane.Frame, p *packet) { p.bth.DestQPN = 99 }, false, dataplane.WrongQPN},
		"data for another address":    {func(_ *dataplane.Frame, p *packet) { p.dst = stranger }, false, dataplane.WrongDestination},
		"an ACK of a stranger":        {func(_ *dataplane.Frame, p *packet) { p.src = stranger }, true, dataplane.NotReceiver},
		"an ACK by another port":      {func(f *dataplane.Frame, _ *packet) { f.Port = 3 }, true, dataplane.WrongPort},
		"an ACK of another VLAN":      {func(_ *dataplane.Frame, p *packet) { p.tags = []uint16{7} }, true, dataplane.WrongVLAN},
		"an ACK for another QP":       {func(_ *dataplane.Frame, p *packet) { p.bth.DestQPN = 99 }, true, dataplane.WrongQPN},
		"a READ response":             {func(_ *dataplane.Frame, p *packet) { p.bth.Opcode = roce.OpReadRespOnly }, true, dataplane.UnmergeableResponse},
		"a CNP of a stranger":         {func(f *dataplane.Frame, p *packet) { *p = cnp(stranger); f.Kind = dataplane.KindCNP }, true, dataplane.NotReceiver},
		"data of a member that waits": {func(_ *dataplane.Frame, p *packet) { *p = write(7, nil); p.src = ipB }, false, dataplane.SourceBlocked},
	} {
		for _, ahead := range []int32{0, 1, -1} {
			g := group()
			g.Paths[0].Sends, g.Paths[0].SendPSN = true, 7
			b := newEngineBench(t, g)
			b.arm(g)
			b.mustCarry(g, 3)
			p := b.data(g)
			if tt.answer {
				p = b.ack(g, 0, roce.SyndromeUnlimited)
			}
			p.bth.PSN = p.bth.PSN.Add(ahead)
			f := &dataplane.Frame{Group: g.ID, Kind: dataplane.KindData, FragmentCount: 1}
			if tt.answer {
				f.Kind, f.Port = dataplane.KindFeedback, 1
			}
			if tt.change(f, &p); p.src == ipB || p.src == ipC {
				f.Port = max(f.Port, mft.PortID(portOf[p.src]))
			}
			f.Buf = p.frame(t)
			f.Fragments[0] = f.Buf
			var out dataplane.Outputs
			if b.Carry(f, &out) || b.Answer(f, &out) || !b.armed(g) {
				t.Errorf("%s, %+d: the engine takes it, or gives the group back (armed %v)", name, ahead, b.armed(g))
			}
			looks := b.Looks
			if r := b.core.Handle(0, b.table, f, &b.out); r != tt.want || !b.armed(g) {
				t.Errorf("%s, %+d: %v, want %v; armed %v", name, ahead, r, tt.want, b.armed(g))
			}
			if tt.want != dataplane.SourceBlocked && b.Looks != looks {
				t.Errorf("%s, %+d: the engine's merging was ended", name, ahead)
			}
			if b.next[g.ID] = calmPackets + firstPSN + 3; !b.carry(b.data(g)) {
				t.Errorf("%s, %+d: the engine does not carry the source's next packet", name, ahead)
			}
		}
	}
}

// The source of a group may be behind several next hops. Where its packet comes by another one, the
// engine gives the group back, because it may be a packet that the source sends again.
func TestASourceWithSeveralPortsTakesItsGroupBack(t *testing.T) {
	g := group()
	g.Source.Multipath, g.Uplinks = true, mft.Ports(0).With(0).With(3)
	b := newEngineBench(t, g)
	b.arm(g)
	f := b.frame(b.data(g))
	f.Port = 3
	var out dataplane.Outputs
	if b.Carry(f, &out) || b.armed(g) {
		t.Errorf("armed: %v", b.armed(g))
	}
	if r := b.core.Handle(0, b.table, f, &b.out); r != dataplane.Reason(feedback.Forwarded) {
		t.Error(r)
	}
}

// The engine may carry packets until the moment at which another member would become the source.
// They are not acknowledged, so the member waits.
func TestWhatIsCarriedMeanwhileStopsASourceSwitch(t *testing.T) {
	g := group()
	g.Paths[0].Sends, g.Paths[0].SendPSN = true, 7
	b := newEngineBench(t, g)
	b.arm(g)
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
	b.onLoad = func() { b.mustCarry(g, 1); b.onLoad = nil }
	if r := b.handle(dataOfB(g)); r != dataplane.SourceBlocked {
		t.Errorf("%v", r)
	}
}

// A group may have been plain for long enough just before control stores a turn. The engine does
// not get it then: it would carry what is not in the stored turn, and report old places to the new
// one.
func TestAGroupWhoseTurnIsStoredIsNotArmed(t *testing.T) {
	g := group()
	g.KeepsTurns, g.Paths[0].Sends, g.Paths[0].SendPSN = true, true, 7
	b := newEngineBench(t, g)
	b.plain(g, calmPackets)
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
	if r := b.handle(dataOfB(g)); r != dataplane.SourceWaits {
		t.Fatalf("%v", r)
	}
	if _, ok := b.core.NextTurn(0, g.ID, &b.out); !ok {
		t.Fatal("nobody waits for a turn")
	}
	if b.core.Arm(0, &b.out); dataplane.EngineOf(b.core, g.ID).Kernel {
		t.Error("the engine has the group")
	}
}

// A packet waits for the core when the group is armed. When the core gets to it, its source has
// sent it again: the engine must not carry the second one while the core forwards the first one.
func TestAPacketIsForwardedOnce(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	waits := b.data(g)
	carried := false
	b.onLoad = func() { carried = carried || b.carry(waits) }
	if r := b.handle(waits); r != dataplane.Reason(feedback.Forwarded) || carried || b.carry(waits) {
		t.Errorf("the core: %v; the engine carried the same packet: %v", r, carried)
	}
}

// The engine carries packets up to a window beyond what the slowest receiver has, and more when the
// core has heard more of that one.
func TestEngineKeepsToTheWindow(t *testing.T) {
	testlab.Long(t)
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	f, sent := b.frame(b.data(g)), calmPackets
	carry := func(atMost int) {
		for n := 0; n < atMost; n++ {
			psn := g.Source.FirstPSN.Add(int32(sent))
			f.Buf[51], f.Buf[52], f.Buf[53] = byte(psn>>16), byte(psn>>8), byte(psn)
			if b.out.Reset(); !b.Carry(f, &b.out) {
				return
			}
			sent++
		}
	}
	answer := func(i, packets int) {
		a := ack(g.Paths[i].Dst, g.Paths[i].FirstPSN.Add(int32(packets-1)), roce.SyndromeUnlimited)
		if r := b.handle(a); r.Verdict() == dataplane.Drop {
			t.Fatalf("an answer: %v", r)
		}
	}
	carry(3 * feedback.Window / 4)
	slowest := sent - 1000
	answer(0, sent)
	answer(1, sent)
	answer(2, slowest)
	carry(1)
	answer(1, sent) // the core looks at the engine again
	carry(feedback.Window)
	if sent != slowest+feedback.Window || b.armed(g) {
		t.Errorf("%d packets were carried beyond what the slowest receiver has, of %d; armed %v", sent-slowest, feedback.Window, b.armed(g))
	}
}

// A group that has become calm and then not plain is not armed, nor is one whose engine is AF_XDP.
func TestOnlyPlainGroupsAreArmed(t *testing.T) {
	g, own := group(), group()
	own.Engine = mft.EngineAFXDP
	b := newEngineBench(t, g, own)
	for range calmPackets {
		b.handle(b.data(g))
	}
	nak := b.ack(g, 0, roce.NAKSequence)
	nak.bth.PSN = nak.bth.PSN.Prev()
	b.handle(nak)
	b.core.Arm(0, &b.out)
	if w := b.claimed(g); w.Armed {
		t.Error("a group with a pending NAK is armed")
	}
	b.arm(own)
	if w := b.claimed(own); w.Armed {
		t.Error("a group whose engine is AF_XDP is armed")
	}
}

// claimed is where the engine is with a group, which gets a slot for that.
func (b *engineBench) claimed(g *mft.Group) dataplane.FanWord {
	b.t.Helper()
	if _, ok := b.Claim(g.ID); !ok {
		b.t.Fatal("another group has the slot")
	}
	return b.FanOut.Load(g.ID)
}

// Two groups want one slot. The one that has it keeps it while the engine carries its packets, and
// loses it when it has stood still for as long as the other one took to ask again. What was carried
// for it until then counts.
func TestAGroupThatStandsStillLosesItsSlot(t *testing.T) {
	a, c := group(), group()
	b := newEngineBench(t, a, c)
	b.Slots = 1
	b.arm(a)
	b.mustCarry(a, 3)
	b.arm(c)
	if !b.armed(a) {
		t.Fatal("a busy group lost its slot")
	}
	b.mustCarry(a, 3)
	for range 2 * calmPackets { // c was refused, so it has to be calm for longer
		b.handle(b.data(c))
	}
	b.core.Arm(0, &b.out)
	if !b.armed(a) {
		t.Fatal("a busy group lost its slot")
	}
	for range 4 * calmPackets {
		b.handle(b.data(c))
	}
	b.core.Arm(0, &b.out)
	if !b.armed(c) {
		t.Fatal("the group that stands still keeps the slot")
	}
	for i := range a.Paths {
		b.handle(b.ack(a, i, roce.SyndromeUnlimited))
	}
	if len(b.out.Replies) != 1 || b.out.Replies[0].PSN != b.next[a.ID].Prev() {
		t.Errorf("the source of the group without a slot hears %+v", b.out.Replies)
	}
}

// The state of a group has what the engine has carried until now. A group that is removed leaves
// the engine, whose last packets are counted; one that was given back before is not given back
// twice.
func TestARemovedGroupLeavesTheEngine(t *testing.T) {
	for _, armed := range []bool{true, false} {
		net := porttest.NewFanOutAt(4, nil)
		g := group()
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		next := roce.PSN(firstPSN)
		send := func(packets int) {
			for range packets {
				net.Ports[0].Put(write(next, []byte("data")).frame(t))
				net.Poll()
				next = next.Next()
			}
		}
		send(calmPackets + 5)
		st, _ := net.Switch.GroupState(g.ID)
		if e := (dataplane.EngineState{Kernel: true, Carried: 5}); st.Engine != e || st.Sent != next.Prev() {
			t.Fatalf("%+v, sent up to %d, want %d", st.Engine, st.Sent, next.Prev())
		}
		if !armed {
			nak := ack(ipB, g.Paths[0].FirstPSN, roce.NAKSequence)
			net.Ports[1].Put(nak.frame(t))
			net.Poll()
		}
		send(2)
		if err := net.Switch.Remove(g.ID); err != nil {
			t.Fatal(err)
		}
		if _, ok := net.FanOut.Claim(g.ID + 1024); !ok {
			t.Error("the slot is not free")
		}
		carried := uint64(5)
		if armed {
			carried = 7
		}
		m := moved(net.Switch)
		if m["fan-out-carried"] != carried || m["forwarded"] != calmPackets+7 || m["fan-out-armed"] != 1 || m["fan-out-disarmed"] != 1 {
			t.Errorf("armed: %v: counters %v", armed, m)
		}
	}
}

// A group is armed when no frame waits behind those that were handled, and other ports are not kept
// waiting for that for long.
func TestAGroupIsNotArmedWhileMoreFramesWait(t *testing.T) {
	for _, c := range []struct {
		name        string
		batches     int // that wait
		keepsComing bool
		handled     int // frames that are handled before those of other ports
	}{
		{"some batches", 3, false, 3 * batchFrames},
		{"batches without end", 3, true, 8 * batchFrames},
	} {
		net := porttest.NewFanOutAt(4, func() feedback.Tick { return microsecond })
		if _, err := net.Switch.Add(group()); err != nil {
			t.Fatal(err)
		}
		put := 0
		arrive := func() {
			for range batchFrames {
				net.Ports[0].PutPast(write(roce.PSN(firstPSN+put), nil).frame(t))
				put++
			}
		}
		for range c.batches {
			arrive()
		}
		net.Ports[0].Receiving = func() {
			if c.keepsComing {
				arrive()
			}
		}
		n := net.Switch.Workers()[0].Poll()
		m := moved(net.Switch)
		if n != c.handled || m["fan-out-armed"] != 1 || m["fan-out-disarmed"] != 0 {
			t.Errorf("%s: %d frames handled, want %d: %v", c.name, n, c.handled, m)
		}
	}
}

// A driver may drop what XDP redirects to its port. The source's timeout says so, and the core
// forwards many packets by itself before it tries again. A receiver that has answered, or that asks
// for what it lacks, only lost a packet. An engine that carried nothing is not to blame.
func TestAPortThatTakesNothingIsLeftAlone(t *testing.T) {
	testlab.Long(t)
	has := func(b *engineBench, g *mft.Group, s roce.Syndrome, psn roce.PSN) {
		a := b.ack(g, 2, s)
		a.bth.PSN = g.Paths[2].FirstPSN.Add(psn.Sub(firstPSN))
		b.handle(a)
	}
	for name, tt := range map[string]struct {
		carried int
		answers func(b *engineBench, g *mft.Group, from roce.PSN) // from is the first packet that was carried
		alone   bool
	}{
		"silence":               {4, nil, true},
		"silence after one":     {1, nil, true},
		"nothing was carried":   {0, nil, false},
		"an answer":             {4, func(b *engineBench, g *mft.Group, from roce.PSN) { has(b, g, roce.SyndromeUnlimited, from) }, false},
		"an answer from before": {4, func(b *engineBench, g *mft.Group, from roce.PSN) { has(b, g, roce.SyndromeUnlimited, from.Prev()) }, true},
		"a NAK":                 {4, func(b *engineBench, g *mft.Group, from roce.PSN) { has(b, g, roce.NAKSequence, from) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := group()
			b := newEngineBench(t, g)
			b.arm(g)
			from := b.next[g.ID]
			b.next[g.ID] = from.Prev()
			b.acks(g, 0, 1, 2) // nobody has the packet before the first one that is carried
			b.next[g.ID] = from
			b.mustCarry(g, tt.carried)
			b.acks(g, 0, 1)
			if tt.answers != nil {
				tt.answers(b, g, from)
			}
			b.next[g.ID] = from.Prev()
			for range tt.carried + 1 { // the source's timeout
				b.handle(b.data(g))
			}
			e := dataplane.EngineOf(b.core, g.ID)
			if blamed := strings.Contains(e.Reason, "acknowledged nothing"); e.Kernel || blamed != tt.alone {
				t.Errorf("after the timeout: %+v", e)
			}
			b.acks(g, 0, 1, 2)
			for range 4 * calmPackets {
				b.handle(b.data(g))
			}
			b.core.Arm(0, &b.out)
			if b.armed(g) == tt.alone {
				t.Fatalf("armed: %v", b.armed(g))
			}
			if tt.alone {
				b.staysSilent(g, 4*calmPackets)
			}
		})
	}
}

// A driver that has sent what was carried is not blamed for what a link, a far branch or a stranger
// did.
func TestADriverThatSendsIsNotBlamed(t *testing.T) {
	blamed := func(b *engineBench, g *mft.Group) bool {
		return strings.Contains(dataplane.EngineOf(b.core, g.ID).Reason, "acknowledged nothing")
	}
	begin := func(t *testing.T) (*engineBench, *mft.Group) {
		g := group()
		b := newEngineBench(t, g)
		b.arm(g)
		b.acks(g, 0, 1, 2)
		return b, g
	}
	again := func(b *engineBench, g *mft.Group, from roce.PSN, packets int) { // the source's timeout
		b.next[g.ID] = from
		for range packets {
			b.handle(b.data(g))
		}
	}
	armAgain := func(b *engineBench, g *mft.Group) {
		b.t.Helper()
		for range 4 * calmPackets {
			b.handle(b.data(g))
		}
		if b.core.Arm(0, &b.out); !b.armed(g) {
			b.t.Fatal("not armed again")
		}
	}
	silentAfterAnswers := func(t *testing.T, meanwhile func(b *engineBench, g *mft.Group)) bool {
		b, g := begin(t)
		b.mustCarry(g, 4)
		b.acks(g, 0, 1, 2)
		b.handle(b.data(g)) // it takes the group back
		b.acks(g, 0, 1, 2)
		meanwhile(b, g)
		armAgain(b, g)
		b.acks(g, 0, 1, 2)
		from := b.next[g.ID]
		b.mustCarry(g, 4)
		b.acks(g, 0, 1)
		again(b, g, from, 4)
		return blamed(b, g)
	}
	t.Run("a link was away", func(t *testing.T) {
		if silentAfterAnswers(t, func(*engineBench, *mft.Group) {}) {
			t.Error("a driver is blamed that has sent before")
		}
	})
	t.Run("another port", func(t *testing.T) {
		move := func(b *engineBench, g *mft.Group) {
			next := *g
			next.Paths = slices.Clone(g.Paths)
			next.Paths[2].Port = 1
			table, err := b.table.Replace(g.ID, &next)
			if err != nil {
				t.Fatal(err)
			}
			b.table = table
		}
		if !silentAfterAnswers(t, move) {
			t.Error("the driver of the port that came is not doubted")
		}
	})
	t.Run("a stranger ends the turn", func(t *testing.T) {
		b, g := begin(t)
		from := b.next[g.ID]
		b.mustCarry(g, 1)
		b.handle(b.data(g)) // it takes the group back before anybody has answered
		b.acks(g, 0, 1, 2)
		b.handle(b.data(g)) // which one receiver loses
		b.acks(g, 0, 1)
		if again(b, g, from.Add(2), 1); blamed(b, g) {
			t.Error("a driver is blamed although all receivers have what was carried")
		}
	})
	t.Run("a branch is far away", func(t *testing.T) {
		b, g := begin(t)
		from := b.next[g.ID]
		b.mustCarry(g, 4)
		b.acks(g, 0, 1)
		if again(b, g, from, 2); !blamed(b, g) {
			t.Fatal("silence is no doubt")
		}
		behind := func(packets int) {
			a := b.ack(g, 2, roce.SyndromeUnlimited)
			a.bth.PSN = g.Paths[2].FirstPSN.Add(from.Sub(firstPSN)).Add(int32(packets - 1))
			b.handle(a)
		}
		if behind(2); !blamed(b, g) {
			t.Error("what was sent again is taken for what was carried")
		}
		if behind(3); blamed(b, g) {
			t.Error("an answer to what was only carried does not end the doubt")
		}
		b.next[g.ID] = from.Add(4)
		armAgain(b, g)
	})
}

// staysSilent shows how long a group of whose receivers one is silent stays with the core: for 4096
// plain packets, of which it has had some, and then for 16 times as many.
func (b *engineBench) staysSilent(g *mft.Group, had int) {
	b.t.Helper()
	for _, needs := range []int{4096 - had, 16 * 4096} {
		for range needs - 1 {
			b.handle(b.data(g))
		}
		if b.core.Arm(0, &b.out); b.armed(g) {
			b.t.Fatalf("the group is armed after fewer packets than %d", needs)
		}
		b.handle(b.data(g))
		if b.core.Arm(0, &b.out); !b.armed(g) {
			b.t.Fatalf("the group is not armed after %d packets", needs)
		}
		b.acks(g, 0, 1, 2)
		from := b.next[g.ID]
		b.mustCarry(g, 4)
		b.next[g.ID] = from
		for range 4 { // silence again
			b.handle(b.data(g))
		}
	}
}

// acks lets receivers acknowledge everything that was sent.
func (b *engineBench) acks(g *mft.Group, paths ...int) {
	b.t.Helper()
	for _, i := range paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
}

// A group that is given back soon is armed after twice as many plain packets, and one that was
// carried for long after few. What the group needed before it got its slot counts too.
func TestAGroupThatIsGivenBackSoon(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	armedAfter := func(packets int) {
		t.Helper()
		b.plain(g, packets-1)
		if b.core.Arm(0, &b.out); dataplane.EngineOf(b.core, g.ID).Kernel {
			t.Fatalf("armed after fewer packets than %d", packets)
		}
		b.plain(g, 1)
		if b.core.Arm(0, &b.out); !dataplane.EngineOf(b.core, g.ID).Kernel {
			t.Fatalf("not armed after %d packets", packets)
		}
	}
	b.plain(g, calmPackets)
	b.handle(b.ack(g, 0, roce.NAKSequence))
	b.core.Arm(0, &b.out) // refused, because of the NAK
	b.acks(g, 0, 1, 2)
	armedAfter(2 * calmPackets)
	b.mustCarry(g, 1)
	b.plain(g, 1) // waited for the core, and counts already
	armedAfter(4*calmPackets - 1)
	b.mustCarry(g, 4*4*calmPackets+1)
	b.plain(g, 1)
	armedAfter(calmPackets - 1)
}

// The core has looked at the engine, and the engine carries a packet before a fatal NAK takes the
// group back. The source's QP ends with that packet, because all before it are acknowledged: the
// source hears so at once.
func TestANAKThatWaitsForACarriedPacket(t *testing.T) {
	g := group()
	g.Policy.Ack = 2
	b := newEngineBench(t, g)
	b.arm(g)
	b.acks(g, 0, 1)
	nak := b.ack(g, 2, roce.NAKRemoteAccess)
	last := b.next[g.ID]
	b.onLoad = func() { b.onLoad = nil; b.mustCarry(g, 1) }
	b.handle(nak)
	if len(b.out.Replies) != 1 || b.out.Replies[0].PSN != last || b.out.Replies[0].AETH.Syndrome != roce.NAKRemoteAccess {
		t.Errorf("the source hears %+v", b.out.Replies)
	}
}

// A look at an engine that has carried nothing since the last look changes nothing: where the core
// has copied each packet once, a NAK for what is acknowledged proves that its receiver is behind.
func TestALookThatFindsNothing(t *testing.T) {
	g := group()
	g.Policy.Ack = 2
	b := newEngineBench(t, g)
	b.arm(g)
	b.acks(g, 0, 1)
	if r := b.handle(b.ack(g, 2, roce.NAKSequence)); r != dataplane.Reason(feedback.Behind) {
		t.Errorf("the NAK of a receiver that is behind: %v", r)
	}
}

// A group is not armed when something had to be decided for it since it was noted, even if it is
// plain again.
func TestAGroupHasToBeCalmStill(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	for range calmPackets {
		b.handle(b.data(g))
	}
	b.handle(b.ack(g, 0, roce.NAKSequence)) // asks for the newest packet
	b.handle(b.data(g))
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
	b.core.Arm(0, &b.out)
	if b.claimed(g).Armed {
		t.Error("the group is armed right behind a NAK")
	}
}

// The core looks at the engine before it looks at the time.
func TestTimeComesBehindWhatWasCarried(t *testing.T) {
	g := group()
	g.Policy.SilentAfter = time.Second
	b := newEngineBench(t, g)
	b.arm(g)
	b.core.Tick(1, &b.out) // the turn of the groups that the engine carries comes once a second
	b.mustCarry(g, 1)
	looked := false
	b.onLoad = func() { looked = true }
	if b.core.Tick(1+feedback.TimerPeriod, &b.out); !looked {
		t.Error("time passed for a group whose newest packet the core does not know")
	}
}

// A group that is taken back because a next hop has changed has its data in flight to the core.
func TestATakenBackGroupIsInFlightToTheCore(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.carry(b.data(g))
	next := *g
	next.Paths = slices.Clone(g.Paths)
	next.Paths[1].L2[0] ^= 2
	table, err := b.table.Replace(g.ID, &next)
	if err != nil {
		t.Fatal(err)
	}
	b.core.Adopt(0, table.Group(g.ID), &b.out)
	if toCore, byEngine, settled := dataplane.InFlight(b.core); toCore != 1 || byEngine != 0 || settled != 0 {
		t.Errorf("%d groups have data in flight to the core, %d to the engine, and %d none", toCore, byEngine, settled)
	}
}
