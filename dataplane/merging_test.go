package dataplane_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// merges shows an ACK of path i, of everything that was sent, to the engine: it has to take it.
func (b *engineBench) merges(g *mft.Group, i int) (told []dataplane.Reply) {
	b.t.Helper()
	var out dataplane.Outputs
	if !b.Answer(b.frame(b.ack(g, i, roce.SyndromeUnlimited)), &out) {
		b.t.Fatalf("the engine does not merge the ACK of path %d", i)
	}
	return out.Replies
}

// The engine of an armed group merges the ACKs, and the core learns of that before the group's next
// event: here a NAK right behind what the source was told.
func TestTheCoreLearnsWhatTheEngineMerged(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.mustCarry(g, 3)
	for i, want := range []int{0, 0, 1} {
		if told := b.merges(g, i); len(told) != want || want == 1 && told[0].PSN != b.next[g.ID].Prev() {
			t.Fatalf("path %d: the source hears %+v", i, told)
		}
	}
	b.mustCarry(g, 1)
	if r := b.handle(b.ack(g, 1, roce.NAKSequence)); r != dataplane.Reason(feedback.Merged) {
		t.Errorf("a NAK behind the merged ACK: %v", r)
	}
	if len(b.out.Replies) != 1 || b.out.Replies[0].PSN != b.next[g.ID].Prev() || b.out.Replies[0].AETH.Syndrome != roce.NAKSequence {
		t.Errorf("the source hears %+v", b.out.Replies)
	}
	if b.armed(g) {
		t.Error("the group is armed")
	}
	var out dataplane.Outputs
	if b.Answer(b.frame(b.ack(g, 2, roce.SyndromeUnlimited)), &out) {
		t.Error("the engine merges for a group that is not armed")
	}
}

// An answer that the core handles, and a look at the group, end the merging for that moment only.
func TestTheEngineMergesOn(t *testing.T) {
	for name, happens := range map[string]func(b *engineBench, g *mft.Group){
		"nothing": func(*engineBench, *mft.Group) {},
		"an ACK":  func(b *engineBench, g *mft.Group) { b.handle(b.ack(g, 0, roce.SyndromeUnlimited)) },
		"a CNP":   func(b *engineBench, g *mft.Group) { b.handle(cnp(ipC)) },
		"a bad answer": func(b *engineBench, g *mft.Group) {
			p := b.ack(g, 0, 0)
			p.dst = ipA
			b.core.Handle(0, b.table, b.frameOf(p, g), &b.out)
		},
		"a second": func(b *engineBench, g *mft.Group) {
			for now := feedback.Tick(0); now < feedback.Tick(3e9); now += feedback.Tick(1e8) {
				b.core.Tick(now, &b.out)
			}
		},
	} {
		g := group()
		b := newEngineBench(t, g)
		b.arm(g)
		b.mustCarry(g, 3)
		b.merges(g, 2)
		happens(b, g)
		b.mustCarry(g, 2)
		b.merges(g, 1)
		b.merges(g, 2)
		if told := b.merges(g, 0); len(told) != 1 || told[0].PSN != b.next[g.ID].Prev() {
			t.Errorf("%s: the source hears %+v", name, told)
		}
	}
}

// frameOf is a frame that the classifier attributes to a group although the group has no such
// address.
func (b *engineBench) frameOf(p packet, g *mft.Group) *dataplane.Frame {
	raw := p.frame(b.t)
	f := &dataplane.Frame{Group: g.ID, Kind: dataplane.KindFeedback, Buf: raw, FragmentCount: 1}
	f.Port, f.Fragments[0] = mft.PortID(portOf[p.src]), raw
	return f
}

// The engine merges nothing between its last word about the packets and that about the ACKs: the
// core hears of no ACK of a packet that it does not know.
func TestNothingIsMergedWhileTheCoreLooks(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.mustCarry(g, 3)
	b.onLoad = func() {
		b.onLoad = nil
		b.mustCarry(g, 1)
		for i := range g.Paths {
			var out dataplane.Outputs
			b.Answer(b.frame(b.ack(g, i, roce.SyndromeUnlimited)), &out)
		}
	}
	b.handle(cnp(ipB))
	s := dataplane.SnapshotOf(b.core, g.ID)
	for i, p := range s.Paths {
		if p.Acked.After(s.Sent) {
			t.Errorf("path %d has acknowledged %d, and only %d was sent", i, p.Acked, s.Sent)
		}
	}
}

// The engine may be stopped between the last ACK that it merges and the ACK to the source: then the
// core tells the source, once.
func TestTheCoreTellsWhatTheEngineDoesNotTellAnyMore(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.untold = &feedback.Progress{PSN: firstPSN - 1}
	b.mustCarry(g, 3)
	for i := range g.Paths {
		b.merges(g, i)
	}
	b.handle(cnp(ipC))
	if n := len(b.out.Replies); n != 2 || b.out.Replies[0].CNP || b.out.Replies[0].PSN != b.next[g.ID].Prev() || !b.out.Replies[1].CNP {
		t.Errorf("the source hears %+v", b.out.Replies)
	}
	b.handle(cnp(ipC))
	if n := len(b.out.Replies); n != 1 {
		t.Errorf("the source hears %+v", b.out.Replies)
	}
}

// Every other answer is the core's: the twin of the kernel gives it back.
func TestOtherAnswersAreTheCores(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.mustCarry(g, 3)
	refused := func(name string, p packet, change func(f *dataplane.Frame)) {
		f := b.frameOf(p, g)
		f.Port = mft.PortID(portOf[g.Paths[0].Dst])
		change(f)
		var out dataplane.Outputs
		if b.Answer(f, &out) {
			t.Errorf("the engine merges %s", name)
		}
	}
	for name, change := range map[string]func(p *packet){
		"a NAK":               func(p *packet) { p.aeth.Syndrome = roce.NAKSequence },
		"an RNR NAK":          func(p *packet) { p.aeth.Syndrome = roce.SyndromeRNR(1) },
		"a READ response":     func(p *packet) { p.bth.Opcode = 0x10 },
		"another QPN":         func(p *packet) { p.bth.DestQPN++ },
		"another receiver":    func(p *packet) { p.src = netip.MustParseAddr("10.77.0.9") },
		"another destination": func(p *packet) { p.dst = ipA },
		"MigReq":              func(p *packet) { p.bth.MigReq = true },
		"not sent yet":        func(p *packet) { p.bth.PSN++ },
	} {
		p := b.ack(g, 0, roce.SyndromeUnlimited)
		change(&p)
		refused(name, p, func(*dataplane.Frame) {})
	}
	for name, change := range map[string]func(f *dataplane.Frame){
		"another port": func(f *dataplane.Frame) { f.Port++ },
		"damaged":      func(f *dataplane.Frame) { f.Buf[len(f.Buf)-1] ^= 1 },
		"a tag":        func(f *dataplane.Frame) { f.Fragments[0] = slices.Insert(slices.Clone(f.Buf), 12, 0x81, 0, 0, 5) },
		"half of it":   func(f *dataplane.Frame) { f.Fragments[0] = f.Buf[:50] },
		"two buffers": func(f *dataplane.Frame) {
			f.FragmentCount, f.Fragments[0], f.Fragments[1] = 2, f.Buf[:60], f.Buf[60:]
		},
	} {
		refused(name, b.ack(g, 0, roce.SyndromeUnlimited), change)
	}
	b.merges(g, 0)
}

// A member that has left the group while it was the source sends nothing any more, and its PSNs are
// nobody's.
func TestAGroupWhoseSourceHasLeftIsNotArmed(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		g := group()
		g.Paths = append(g.Paths[:2:2], both(3, ipD, 7))
		b := newEngineBench(t, g)
		for psn := roce.PSN(7); psn < 7+calmPackets+1; psn++ {
			p := write(psn, []byte("data"))
			p.src, p.bth.DestQPN = ipD, g.QPN
			if r := b.handle(p); r != dataplane.Reason(feedback.Forwarded) {
				t.Fatalf("data of the new source: %v", r)
			}
		}
		next := *g
		if leaves {
			next.Paths = g.Paths[:2]
		}
		table, err := b.table.Replace(g.ID, &next)
		if err != nil {
			t.Fatal(err)
		}
		b.table = table
		b.core.Adopt(0, &next, &b.out)
		b.core.Arm(0, &b.out)
		if e := dataplane.EngineOf(b.core, g.ID); e.Kernel == leaves {
			t.Errorf("the source has left: %v, and the group is armed: %v (%s)", leaves, e.Kernel, e.Reason)
		}
	}
}

// A source may be far ahead before the first answers come, which show the MigReq bit of the
// receivers: ConnectX sets it, and rxe does not. The engine merges the answers that come.
func TestTheEngineMergesWhatTheReceiversSend(t *testing.T) {
	for early := range 4 { // so many receivers have answered when the group is armed
		g := group()
		b := newEngineBench(t, g)
		answer := func(i int) packet {
			p := b.ack(g, i, roce.SyndromeUnlimited)
			p.bth.MigReq = true
			return p
		}
		b.handle(b.data(g))
		for i := range early {
			b.handle(answer(i))
		}
		b.plain(g, calmPackets)
		b.core.Arm(0, &b.out)
		b.mustCarry(g, 3)
		if why := dataplane.EngineOf(b.core, g.ID).Answers; (why == "") != (early%3 == 0) {
			t.Errorf("%d early answers: %q", early, why)
		}
		for i := range g.Paths[min(early, 3):] {
			b.handle(answer(early + i))
		}
		b.handle(cnp(ipC))
		if b.armed(g) != (early == 3) {
			t.Errorf("%d early answers: the group is armed: %v", early, b.armed(g))
		}
		if early < 3 {
			b.plain(g, calmPackets)
			b.core.Arm(0, &b.out)
		}
		b.mustCarry(g, 3)
		var out dataplane.Outputs
		for i := range g.Paths {
			if !b.Answer(b.frame(answer(i)), &out) {
				t.Errorf("%d early answers: the engine does not merge that of path %d", early, i)
			}
		}
		if n := len(out.Replies); n == 0 || out.Replies[n-1].PSN != b.next[g.ID].Prev() || !out.Replies[n-1].MigReq {
			t.Errorf("%d early answers: the source hears %+v", early, out.Replies)
		}
	}
}

// The limit of what the engine may carry follows what it merged, without an answer that reaches the
// core.
func TestTheLimitFollowsWhatIsMerged(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.mustCarry(g, 5)
	for i := range g.Paths {
		b.merges(g, i)
	}
	b.core.Tick(0, &b.out)
	b.core.Tick(feedback.Tick(2e9), &b.out)
	s := dataplane.SnapshotOf(b.core, g.ID)
	for i, p := range s.Paths {
		if p.Acked != b.next[g.ID].Prev() {
			t.Errorf("path %d is at %d, want %d", i, p.Acked, b.next[g.ID].Prev())
		}
	}
	if s.Merged != b.next[g.ID].Prev() || len(b.out.Replies) != 0 {
		t.Errorf("merged %d, and the source hears %+v", s.Merged, b.out.Replies)
	}
}

// Where an ACK needs the core, the engine merges none, and the group says why.
func TestWhoseAnswersGoToTheCore(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *mft.Group)
		why    string
	}{
		"acknowledged by all": {func(*mft.Group) {}, ""},
		"a quorum":            {func(g *mft.Group) { g.Policy.Ack = 2 }, "a quorum"},
		"credits":             {func(g *mft.Group) { g.Policy.Credits = feedback.CreditsMerge }, "credits"},
		"repair":              {func(g *mft.Group) { g.Policy.Repair = feedback.RepairLocal }, ""},
		"as many receivers as a block has": {func(g *mft.Group) {
			for i := range mft.BlockPaths - 3 {
				g.Paths = append(g.Paths, receiver(1, netip.AddrFrom4([4]byte{10, 77, 1, byte(i)})))
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := group()
			c.change(g)
			b := newEngineBench(t, g)
			b.arm(g)
			e := dataplane.EngineOf(b.core, g.ID)
			if !e.Kernel || (c.why == "") != (e.Answers == "") || !strings.Contains(e.Answers, c.why) {
				t.Errorf("%+v, want %q", e, c.why)
			}
			for i := range g.Paths {
				b.handle(b.ack(g, i, roce.SyndromeUnlimited)) // with repair, of what the core sent last
			}
			b.mustCarry(g, 1)
			var out dataplane.Outputs
			if b.Answer(b.frame(b.ack(g, 0, roce.SyndromeUnlimited)), &out) != (c.why == "") {
				t.Errorf("the engine merges: %v", c.why != "")
			}
		})
	}
}

// An engine that cannot merge carries the packets all the same, and tells the source nothing,
// wherever in the PSN space the group is.
func TestAnEngineThatCannotMerge(t *testing.T) {
	g := group()
	g.Source.FirstPSN = 0xFFFF00
	b := newEngineBench(t, g)
	b.deaf = errDeaf
	b.arm(g)
	b.mustCarry(g, 1)
	if e := dataplane.EngineOf(b.core, g.ID); !e.Kernel || e.Answers != errDeaf.Error() {
		t.Errorf("%+v", e)
	}
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
	if len(b.out.Replies) != 1 || b.out.Replies[0].PSN != b.next[g.ID].Prev() {
		t.Errorf("the source hears %+v", b.out.Replies)
	}
	if !b.armed(g) {
		t.Error("the group is not armed any more")
	}
}

// A merged ACK of the engine equals that of the core byte for byte.
func TestAMergedACKIsTheCoresOwn(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	b.mustCarry(g, 1)
	var engine, core []byte
	for i := range g.Paths {
		for _, r := range b.merges(g, i) {
			engine = mustAppend(t, &r)
		}
	}
	plain := group()
	c := newEngineBench(t, plain)
	for range calmPackets + 1 {
		c.handle(c.data(plain))
	}
	for i := range plain.Paths {
		c.handle(c.ack(plain, i, roce.SyndromeUnlimited))
		for _, r := range c.out.Replies {
			core = mustAppend(t, &r)
		}
	}
	if engine == nil || !slices.Equal(engine, core) {
		t.Errorf("the engine's\n%x\nthe core's\n%x", engine, core)
	}
}

func mustAppend(t *testing.T, r *dataplane.Reply) []byte {
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What the engine merges of a path counts for that path, also where a group has more paths than the
// block.
func TestTheEngineMergesForThePathsThatAreLeft(t *testing.T) {
	g := group()
	g.Policy.OnFatal = feedback.FatalEvict
	for len(g.Paths) < 257 {
		n := len(g.Paths)
		g.Paths = append(g.Paths, receiver(1, netip.AddrFrom4([4]byte{10, 77, byte(1 + n/200), byte(n % 200)})))
	}
	b := newEngineBench(t, g)
	b.handle(b.data(g))
	for i := 1; i < 256; i++ {
		if r := b.handle(b.ack(g, i, roce.NAKRemoteAccess)); r != dataplane.Reason(feedback.Evicted) {
			t.Fatalf("path %d: %v", i, r)
		}
	}
	b.arm(g)
	b.mustCarry(g, 3)
	b.merges(g, 256)
	b.core.Tick(0, &b.out)
	b.core.Tick(feedback.Tick(2e9), &b.out)
	s := dataplane.SnapshotOf(b.core, g.ID)
	if s.Paths[256].Acked != b.next[g.ID].Prev() || s.Paths[0].Acked == b.next[g.ID].Prev() || len(b.out.Replies) != 0 {
		t.Errorf("paths 0 and 256 are at %d and %d, and the source hears %+v", s.Paths[0].Acked, s.Paths[256].Acked, b.out.Replies)
	}
}
