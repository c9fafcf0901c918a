package dataplane_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

var ipAll = netip.MustParseAddr("239.77.0.1")

const generation = 901

// edgeBench is a group whose three receivers are behind port 1, share a leg, and behave as hosts
// with an edge in front of the NIC.
type edgeBench struct {
	*repairBench
	hosts []*edgeHost
	// shared and own are the frames that left: to all, and to each receiver.
	shared int
	own    []int
	// loses reports whether a packet is lost on its way to a receiver; -1: before the network
	// replicates the shared copy.
	loses func(path int, psn roce.PSN, shared bool) bool
}

// edgeHost is a receiver. Its NIC takes packets in order, asks once for the one behind a gap, and
// acknowledges what it has again.
type edgeHost struct {
	next  roce.PSN // in the source's PSNs
	dead  bool     // its edge maps nothing
	deaf  bool     // the host does nothing for now
	asked bool
	taken int // packets that came in order by the shared leg
	// isBox: it is a box, which says in its answers whether what is answered, or a later packet,
	// was a shared copy, and answers once when it is no longer deaf.
	isBox  bool
	shared roce.PSN // the newest; 0: none
	waited [][]byte
}

func sharingGroup() *mft.Group {
	g := group()
	var members []mft.QP
	for i := range g.Paths {
		g.Paths[i].Port = 1
		members = append(members, g.Paths[i].QP())
	}
	g.Shares = []mft.Share{g.Paths[0].Shared(ipAll, generation, members)}
	return g
}

func newEdgeBench(t *testing.T, options ...func(*mft.Group)) *edgeBench {
	t.Helper()
	return newEdgeBenchOf(t, 64, options...)
}

// newEdgeBenchOf returns one with buffers to retain so many packets.
func newEdgeBenchOf(t *testing.T, retains int, options ...func(*mft.Group)) *edgeBench {
	t.Helper()
	options = append([]func(*mft.Group){func(g *mft.Group) {
		shared := sharingGroup()
		g.Paths, g.Shares = shared.Paths, shared.Shares
	}}, options...)
	b := &edgeBench{repairBench: newRepairBench(t, retains, options...), own: make([]int, 3)}
	for range b.group.Paths {
		b.hosts = append(b.hosts, &edgeHost{next: firstPSN})
	}
	return b
}

// deliver gives the hosts what has left for them, until nothing leaves any more.
func (b *edgeBench) deliver() {
	b.t.Helper()
	for {
		frames := b.Ports[1].Take()
		if len(frames) == 0 {
			return
		}
		for _, f := range frames {
			d := decode(b.t, f)
			if !d.ICRCValid || !d.ChecksumValid || d.Src != ipGroup {
				b.t.Fatalf("%+v", d)
			}
			asks := f[14+20+8+8]&0x80 != 0
			if d.Dst == ipAll {
				b.takeShared(f, d, asks)
				continue
			}
			i := slices.IndexFunc(b.group.Paths, func(p mft.Path) bool { return p.Dst == d.Dst })
			b.own[i]++
			if psn := d.PSN.Add(-b.group.DeltaPSN(i)); b.loses == nil || !b.loses(i, psn, false) {
				b.hosts[i].receive(b, i, psn, asks, false)
			}
		}
	}
}

// takeShared checks a shared copy, and maps it to the hosts with an edge.
func (b *edgeBench) takeShared(f []byte, d decoded, asks bool) {
	b.t.Helper()
	b.shared++
	if want := (roce.MAC{0x01, 0, 0x5e, 77, 0, 1}); d.DstMAC != want || d.QPN != generation || d.VA != memoryVA+64 || d.RKey != memoryKey {
		b.t.Fatalf("%+v", d)
	}
	if b.loses != nil && b.loses(-1, d.PSN, true) {
		return
	}
	for i, h := range b.hosts {
		if !h.dead && (b.loses == nil || !b.loses(i, d.PSN, true)) {
			h.receive(b, i, d.PSN, asks, true)
		}
	}
}

func (h *edgeHost) receive(b *edgeBench, path int, psn roce.PSN, asks, shared bool) {
	if shared {
		h.shared = max(h.shared, psn)
	}
	switch d := psn.Sub(h.next); {
	case d == 0:
		h.next, h.asked = h.next.Next(), false
		if shared {
			h.taken++
		}
	case d > 0 && !h.asked:
		h.asked = true
		h.say(b, path, h.next, roce.NAKSequence)
		return
	case d > 0:
		return
	}
	if asks {
		h.say(b, path, h.next.Prev(), roce.SyndromeUnlimited)
	}
}

func (h *edgeHost) say(b *edgeBench, path int, psn roce.PSN, s roce.Syndrome) {
	p := &b.group.Paths[path]
	said := ack(p.Dst, psn.Add(b.group.DeltaPSN(path)), s)
	if said.port = 0xC000 | uint16(p.RemoteQPN); h.isBox && psn <= h.shared {
		said.port ^= 1
	}
	answer := said.frame(b.t)
	if h.deaf && h.isBox {
		h.waited = [][]byte{answer}
		return
	}
	if h.deaf {
		h.waited = append(h.waited, answer)
		return
	}
	b.Ports[1].Put(answer)
	b.Poll()
}

// wakes lets a host answer what it has kept its answers back to.
func (h *edgeHost) wakes(b *edgeBench) {
	h.deaf = false
	for _, f := range h.waited {
		b.Ports[1].Put(f)
		b.Poll()
	}
	h.waited = nil
}

// message sends a packet that asks for an ACK, and lets time pass until all receivers have it.
func (b *edgeBench) message(psn roce.PSN) (took time.Duration) {
	b.t.Helper()
	p := quiet(psn)
	p.bth.AckReq = true
	began := b.now
	b.send(p)
	for b.deliver(); b.behind(psn); b.deliver() {
		if b.now-began > feedback.Tick(time.Second) {
			b.t.Fatalf("packet %d: the receivers are at %+v", psn, b.places())
		}
		b.pass(time.Millisecond)
	}
	return time.Duration(b.now - began)
}

// ends lets a receiver answer packet psn, which is new, with a NAK that ends its QP. What has left
// until then does not count for expectLeft.
func (b *edgeBench) ends(path int, psn roce.PSN) {
	b.t.Helper()
	b.send(quiet(psn))
	b.answer(path, psn, roce.NAKRemoteOperational)
	b.hosts[path].next = psn + 1000 // nothing reaches it
	b.deliver()
	b.shared, b.own = 0, make([]int, len(b.own))
}

// sendsAs lets the receiver of a path send a packet as the source.
func (b *edgeBench) sendsAs(path int, psn roce.PSN) {
	b.t.Helper()
	p := write(psn, []byte("of another source"))
	p.src = b.group.Paths[path].Dst
	b.Ports[1].Put(p.frame(b.t))
	b.Poll()
}

func (b *edgeBench) behind(psn roce.PSN) bool {
	return slices.ContainsFunc(b.hosts, func(h *edgeHost) bool { return !h.deaf && !h.next.After(psn) })
}

func (b *edgeBench) places() (list []roce.PSN) {
	for _, h := range b.hosts {
		list = append(list, h.next)
	}
	return list
}

func (b *edgeBench) pass(d time.Duration) {
	b.now += feedback.Tick(d)
	b.Poll()
}

// notes returns the notes about edges: "edge-lost 3".
func (b *edgeBench) notes() (list []string) {
	for {
		select {
		case n := <-b.Switch.Notes():
			list = append(list, fmt.Sprint(n.What, " ", n.Receiver.As4()[3]))
		default:
			return list
		}
	}
}

func (b *edgeBench) expectNotes(want ...string) {
	b.t.Helper()
	if got := b.notes(); !slices.Equal(got, want) {
		b.t.Errorf("notes %q, want %q", got, want)
	}
}

func (b *edgeBench) state() dataplane.GroupState {
	st, _ := b.Switch.GroupState(b.group.ID)
	return st
}

// expectLeft checks how many copies left by the shared leg and for each receiver since the last
// call.
func (b *edgeBench) expectLeft(shared int, own ...int) {
	b.t.Helper()
	if b.shared != shared || !slices.Equal(b.own, own) {
		b.t.Errorf("%d shared copies and %v own ones, want %d and %v", b.shared, b.own, shared, own)
	}
	b.shared, b.own = 0, make([]int, len(b.own))
}

// One copy of a new packet leaves for all receivers that share a leg, also of a train, and the
// source hears what it would hear without sharing.
func TestOneCopyForAllThatShare(t *testing.T) {
	b := newEdgeBench(t)
	for psn := roce.PSN(firstPSN); psn < firstPSN+4; psn++ {
		b.message(psn)
	}
	b.send(quiet(1004), quiet(1005), quiet(1006)) // a train
	b.deliver()
	b.message(1007)
	b.expectLeft(8, 0, 0, 0)
	b.expectSource("ACK 1000", "ACK 1001", "ACK 1002", "ACK 1003", "ACK 1007")
	b.expectNotes()
	st := b.state()
	if want := (dataplane.ShareState{ShareCounts: dataplane.ShareCounts{Packets: 8, Saved: 16}, Working: 3}); st.Shares[0] != want {
		t.Errorf("%+v, want %+v", st.Shares[0], want)
	}
	if st.Traffic.Copies != 8 {
		t.Errorf("%d copies left", st.Traffic.Copies)
	}
	if st.Edges[1] != (dataplane.EdgeState{Shares: true}) {
		t.Errorf("%+v", st.Edges[1])
	}
}

// A receiver that loses a packet gets it by a copy of its own, and goes on sharing. What it
// acknowledges of the shared copies that came meanwhile is true.
func TestSharingGoesOnBesideARepair(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.loses = func(path int, psn roce.PSN, shared bool) bool { return path == 1 && psn == 1001 && shared }
	b.send(quiet(1001), quiet(1002), quiet(1003))
	b.deliver()
	b.message(1004)
	b.expectLeft(5, 0, 3, 0) // 1001 to 1003
	b.expectNotes()
	if m := moved(b.Switch); m["beyond-sent"] != 0 || m["repaired"] != 1 {
		t.Errorf("%v", m)
	}
	b.expectSource("ACK 1000", "ACK 1004")
}

// While a path is being repaired a shared copy may bring it all that it lacks behind the repair: it
// acknowledges more than it was sent alone.
func TestAPathUnderRepairAcknowledgesSharedCopies(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.hosts[1].dead = true
	b.send(quiet(1001))
	b.deliver()
	b.hosts[1].dead = false
	b.Ports[1].Put(ack(ipC, b.group.Paths[1].FirstPSN.Next(), roce.SyndromeRNR(1)).frame(t)) // it rests
	b.Poll()
	b.send(quiet(1002))
	b.Ports[1].Take()
	b.answer(1, 1002, roce.SyndromeUnlimited) // by the shared copies
	if m := moved(b.Switch); m["beyond-sent"] != 0 {
		t.Errorf("%v", m)
	}
	if got := snapshot(t, b.Switch, b.group).Paths[1].Acked; got != 1002 {
		t.Errorf("the path has come to %d", got)
	}
}

// An edge that dies costs three probes. Then its receiver gets copies of its own beside those of
// the others, which goes as quickly as before. It is tried again after 1, 2, 4 s, and back when it
// works.
func TestADeadEdgeIsFound(t *testing.T) {
	b := newEdgeBench(t)
	psn := roce.PSN(firstPSN)
	messages := func(n int) (took time.Duration) {
		for range n {
			took += b.message(psn)
			psn = psn.Next()
		}
		return took
	}
	messages(10)
	b.expectLeft(10, 0, 0, 0)
	b.hosts[1].dead = true
	if took := messages(100); took > 100*time.Millisecond {
		t.Errorf("100 messages took %v", took)
	}
	b.expectLeft(100, 0, 100, 0)
	b.expectNotes("edge-lost 3")
	if e := b.state().Edges[1]; !e.Lost || e.After <= 0 || e.After > time.Second {
		t.Errorf("%+v", e)
	}
	if s := b.state().Shares[0]; s.Working != 2 || s.Saved != 20+2*3+97 {
		t.Errorf("%+v", s)
	}
	for pause := 2 * time.Second; pause <= 4*time.Second; pause *= 2 {
		b.pass(pause / 2) // it is tried, with one packet
		messages(1)
		b.expectNotes()
		if e := b.state().Edges[1]; e.After <= pause/2 || e.After > pause {
			t.Errorf("it is tried again after %v, want %v", e.After, pause)
		}
	}
	b.expectLeft(2, 0, 2, 0)
	b.pass(4 * time.Second)
	b.hosts[1].dead = false
	messages(10)
	b.expectLeft(10, 0, 0, 0)
	b.expectNotes("edge-works 3")
	if e := b.state().Edges[1]; e.Lost {
		t.Errorf("%+v", e)
	}
	b.hosts[1].dead = true
	messages(10)
	if e := b.state().Edges[1]; !e.Lost || e.After > time.Second {
		t.Errorf("an edge that has worked is tried again after %v", e.After)
	}
}

// An edge that comes back while its receiver gets copies of its own shows at once: the receiver
// acknowledges each packet twice.
func TestAnEdgeThatIsBackNeedsNoTrial(t *testing.T) {
	b := newEdgeBench(t)
	b.hosts[1].dead = true
	psn := roce.PSN(firstPSN)
	for ; psn < firstPSN+10; psn++ {
		b.message(psn)
	}
	b.expectNotes("edge-lost 3")
	b.hosts[1].dead = false
	b.message(psn)
	b.expectNotes("edge-works 3")
	b.expectLeft(11, 0, 11, 0)
	b.message(psn.Next())
	b.expectLeft(1, 0, 0, 0)
}

// A host that is slow to answer is no dead edge: its answers come, twice where it was probed.
func TestALateReceiverKeepsItsEdge(t *testing.T) {
	b := newEdgeBench(t)
	psn := roce.PSN(firstPSN)
	for range 20 {
		b.hosts[1].deaf = true
		b.message(psn)
		b.pass(10 * time.Millisecond)
		b.deliver()
		b.hosts[1].wakes(b)
		b.deliver()
		psn = psn.Next()
	}
	b.expectNotes()
	if b.shared != 20 {
		t.Errorf("%d shared copies", b.shared)
	}
}

// belowBench is an edgeBench whose second receiver is a box below. It has said that shared copies
// come there.
func belowBench(t *testing.T) *edgeBench {
	t.Helper()
	b := newEdgeBench(t, func(g *mft.Group) { g.Paths[1].Box = mft.BoxBelow })
	b.hosts[1].isBox = true
	b.message(firstPSN)
	b.expectLeft(1, 0, 0, 0)
	return b
}

// A box answers when its slowest receiver has, and then once. However late that is, it is no dead
// edge, because the answer says that shared copies have come.
func TestALateBoxKeepsItsShare(t *testing.T) {
	b := belowBench(t)
	psn := roce.PSN(firstPSN + 1)
	for range 20 {
		b.hosts[1].deaf = true
		b.message(psn)
		psn = psn.Next()
		b.pass(100 * time.Millisecond)
		b.deliver()
		b.hosts[1].wakes(b)
		b.deliver()
	}
	b.expectNotes()
	if b.shared != 20 || b.own[1] < 20 {
		t.Errorf("%d shared copies, %d of its own", b.shared, b.own[1])
	}
}

// A box that shared copies no longer reach answers what is sent to it alone, and says nothing of
// shared ones. It gets copies of its own, and shares again as soon as it says that they come.
func TestABoxWhoseMappingIsGoneIsFound(t *testing.T) {
	b := belowBench(t)
	psn := roce.PSN(firstPSN + 1)
	b.hosts[1].dead = true
	for range 10 {
		b.message(psn)
		psn = psn.Next()
	}
	b.expectNotes("edge-lost 3")
	b.expectLeft(10, 0, 10, 0)
	// An answer that is refused, or older than the newest one, proves nothing.
	for _, of := range []roce.PSN{psn.Add(100), firstPSN} {
		said := ack(b.group.Paths[1].Dst, of.Add(b.group.DeltaPSN(1)), roce.SyndromeUnlimited)
		said.port = 0xC000 | uint16(b.group.Paths[1].RemoteQPN) ^ 1
		b.Ports[1].Put(said.frame(t))
		b.Poll()
	}
	b.expectNotes()
	b.hosts[1].dead = false
	b.message(psn)
	b.expectNotes("edge-works 3")
	b.expectLeft(1, 0, 1, 0)
	b.message(psn.Next())
	b.expectLeft(1, 0, 0, 0)
}

// A receiver without an edge that is slow is probed twice, and acknowledges the packet twice. Both
// copies were its own.
func TestTwoProbesProveNoEdge(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.hosts[1].dead = true
	for psn := roce.PSN(1001); psn < 1010; psn++ {
		b.hosts[1].deaf = true
		b.message(psn)
		for b.own[1] < 2 {
			b.pass(time.Millisecond)
			b.deliver()
		}
		b.hosts[1].wakes(b)
		b.deliver()
		if b.own[1] = 0; b.state().Edges[1].Lost {
			break
		}
	}
	b.expectNotes("edge-lost 3")
}

// A leg is retired from the beginning if one gets no data whose edge may map its copies.
func TestALegThatNoEdgeShouldMap(t *testing.T) {
	g := sharingGroup()
	g.Policy.Repair, g.Policy.RepairWindow = feedback.RepairLocal, 64
	g.Parts = []mft.Part{{QP: g.Paths[1].QP(), Part: feedback.PartGone}}
	net := porttest.NewRetaining(4, 64, nil, nil)
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	if st, _ := net.Switch.GroupState(g.ID); !st.Shares[0].Retired {
		t.Errorf("a member is gone: %+v", st.Shares[0])
	}
	g = sharingGroup()
	g.Policy.Repair, g.Policy.RepairWindow = feedback.RepairLocal, 64
	g.Parts = []mft.Part{{QP: g.Paths[2].QP(), Part: feedback.PartGone}}
	g.Shares[0].Members, g.Shares[0].Others = g.Shares[0].Members[:2], g.Shares[0].Members[2:]
	net = porttest.NewRetaining(4, 64, nil, nil)
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	if st, _ := net.Switch.GroupState(g.ID); !st.Shares[0].Retired {
		t.Errorf("one whose edge may map the copies is gone: %+v", st.Shares[0])
	}
}

// The edges of a generation map the packets of one turn. In the next one all receivers get copies
// of their own, until control gives the leg another generation for that turn. What it decided
// before the turn began comes too late.
func TestAnotherTurnRetiresTheLeg(t *testing.T) {
	both := func(g *mft.Group) { g.Paths[0].Sends, g.Paths[0].SendPSN = true, 5000 }
	b := newEdgeBench(t, both)
	b.message(1000)
	b.expectLeft(1, 0, 0, 0)
	sends := func(psn roce.PSN) (to []string) {
		b.sendsAs(0, psn)
		for _, f := range b.Ports[1].Take() {
			d := decode(t, f)
			if !d.ICRCValid || d.Dst == b.group.Paths[0].Dst {
				t.Errorf("%+v", d)
			}
			to = append(to, fmt.Sprint(d.QPN, " ", d.PSN))
		}
		slices.Sort(to)
		return to
	}
	own := func(psn roce.PSN) (to []string) {
		for i := range b.group.Paths[1:] {
			p := &b.group.Paths[1+i]
			to = append(to, fmt.Sprint(p.DestQPN, " ", p.FirstPSN.Add(1+psn.Sub(5000))))
		}
		return to
	}
	version := func(further roce.QPN, turn uint32) {
		next := sharingGroup()
		both(next)
		next.Policy = b.group.Policy
		next.Shares[0].Members = next.Shares[0].Members[1:]
		next.Shares[0].DestQPN, next.Shares[0].Turn = generation+further, turn
		if err := b.Switch.Replace(b.group.ID, next); err != nil {
			t.Fatal(err)
		}
	}
	if got := sends(5000); !slices.Equal(got, own(5000)) {
		t.Errorf("copies %q, want %q", got, own(5000))
	}
	if st := b.state(); !st.Shares[0].Retired || st.Turns != 1 || st.Edges[1].Lost {
		t.Errorf("%+v, %d turns have begun, %+v", st.Shares[0], st.Turns, st.Edges)
	}
	version(1, 0)
	if got := sends(5001); !slices.Equal(got, own(5001)) || !b.state().Shares[0].Retired {
		t.Errorf("a generation for the former turn: copies %q, want %q", got, own(5001))
	}
	version(2, 1)
	if got, want := sends(5002), fmt.Sprint(generation+2, " ", 5002); len(got) != 1 || got[0] != want {
		t.Errorf("a generation for this turn: copies %q, want %s", got, want)
	}
	if m := moved(b.Switch); m["beyond-sent"] != 0 {
		t.Errorf("%v", m)
	}
}

// A packet that no edge has brought was lost before the network replicated it, or by all. It weighs
// a third, so nine of them are needed.
func TestWhatNobodyGotWeighsLess(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.loses = func(path int, _ roce.PSN, shared bool) bool { return path == -1 }
	for n := 1; n <= 9; n++ {
		b.expectNotes()
		b.message(1000 + roce.PSN(n))
	}
	b.expectNotes("edge-lost 2", "edge-lost 3", "edge-lost 4")
	b.expectLeft(10, 9, 9, 9)
	b.message(1010) // a copy for each
	b.expectLeft(0, 1, 1, 1)
}

// A lossy link is no dead edge.
func TestALossyLinkKeepsTheEdge(t *testing.T) {
	b := newEdgeBench(t)
	n := 0
	b.loses = func(path int, _ roce.PSN, shared bool) bool {
		n++
		return path == 1 && shared && n%7 == 0
	}
	psn := roce.PSN(firstPSN)
	for range 100 {
		b.send(quiet(psn), quiet(psn+1), quiet(psn+2), quiet(psn+3))
		b.deliver()
		b.message(psn + 4)
		psn += 5
	}
	b.expectNotes()
	if b.shared != 500 || b.hosts[1].taken < 250 {
		t.Errorf("%d shared copies, of which %d reached the lossy host in order", b.shared, b.hosts[1].taken)
	}
}

// With one receiver left that shares, its own copy is worth as much as a shared one.
func TestOneAloneDoesNotShare(t *testing.T) {
	b := newEdgeBench(t)
	b.hosts[1].dead, b.hosts[2].dead = true, true
	psn := roce.PSN(firstPSN)
	for ; psn < firstPSN+20; psn++ {
		b.message(psn)
	}
	b.expectNotes("edge-lost 3", "edge-lost 4")
	b.shared, b.own = 0, make([]int, 3)
	b.message(psn)
	b.expectLeft(0, 1, 1, 1)
}

// What the source sends again goes to the receivers that lack it, each by its own leg.
func TestResentPacketsAreNotShared(t *testing.T) {
	b := newEdgeBench(t)
	b.loses = func(path int, psn roce.PSN, _ bool) bool { return psn == 1000 }
	b.send(quiet(1000))
	b.deliver()
	b.expectLeft(1, 0, 0, 0)
	b.loses = nil
	b.send(quiet(1000))
	b.deliver()
	b.expectLeft(0, 1, 1, 1)
}

// A receiver that leaves would go on getting shared copies, because its edge goes on mapping them.
// So none leaves any more until the leg has another generation.
func TestALegIsRetiredWhenAMemberLeaves(t *testing.T) {
	b := newEdgeBench(t, func(g *mft.Group) { g.Policy.OnFatal = feedback.FatalEvict })
	b.message(1000)
	b.expectLeft(1, 0, 0, 0)
	b.ends(1, 1001)
	if !b.state().Shares[0].Retired {
		t.Errorf("%+v", b.state().Shares[0])
	}
	b.message(1002)
	b.expectLeft(0, 1, 0, 1)

	next := sharingGroup()
	next.Policy = b.group.Policy
	next.Paths = slices.Delete(next.Paths, 1, 2)
	next.Shares[0].Members = slices.Delete(next.Shares[0].Members, 1, 2)
	next.Shares[0].DestQPN = generation + 1
	if err := b.Switch.Replace(b.group.ID, next); err != nil {
		t.Fatal(err)
	}
	if s := b.state().Shares[0]; s.Retired || s.Working != 2 || s.Packets != 0 {
		t.Errorf("%+v", s)
	}
	b.Ports[0].Put(quiet(1003).frame(t))
	b.Poll()
	frames := b.Ports[1].Take()
	if len(frames) != 1 || decode(t, frames[0]).QPN != generation+1 {
		t.Errorf("%d frames", len(frames))
	}
}

// The edges of a leg to a box are one box, which hears who has left. So the same generation goes on
// without the receiver that was out.
func TestALegToABoxGoesOnWithoutWhoWasOut(t *testing.T) {
	version := func(out bool) *mft.Group {
		g := sharingGroup()
		g.Policy.Repair, g.Policy.RepairWindow = feedback.RepairLocal, 64
		var members []mft.QP
		for i := range g.Paths {
			p := &g.Paths[i]
			p.Dst, p.RemoteQPN = ipLower, roce.QPN(700+i)
			members = append(members, p.QP())
		}
		if out {
			g.Parts = []mft.Part{{QP: members[1], Part: feedback.PartGone}}
		} else {
			g.Paths, members = slices.Delete(g.Paths, 1, 2), slices.Delete(members, 1, 2)
		}
		g.Shares = []mft.Share{g.Paths[0].Shared(ipLower, generation, members)}
		return g
	}
	net := porttest.NewRetaining(4, 64, nil, nil)
	id, err := net.Switch.Add(version(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []bool{true, true, false} {
		if err := net.Switch.Replace(id, version(out)); err != nil {
			t.Fatal(err)
		}
		if st, _ := net.Switch.GroupState(id); st.Shares[0].Retired != out {
			t.Errorf("one is out: %v; %+v", out, st.Shares[0])
		}
	}
}

// With a quorum copies are shared too. A receiver that lacks something is repaired alone, also when
// the source has let go of it, and goes on sharing.
func TestReceiversOfAQuorumShare(t *testing.T) {
	b := newEdgeBench(t, func(g *mft.Group) { g.Policy.Ack = 2 })
	b.message(1000)
	b.loses = func(path int, psn roce.PSN, shared bool) bool { return path == 1 && psn <= 1002 && shared }
	last := quiet(1002)
	last.bth.AckReq = true
	b.send(quiet(1001), last)
	b.deliver()
	b.expectSource("ACK 1000", "ACK 1002")
	b.message(1003)
	b.expectLeft(4, 0, 3, 0) // 1001 to 1003
	b.message(1004)
	b.expectLeft(1, 0, 0, 0)
	b.expectNotes()
	if p := snapshot(t, b.Switch, b.group).Paths[1]; p.Acked != 1004 || p.Part != feedback.PartActive {
		t.Errorf("%+v", p)
	}
}

// An edge may map the copies of a leg before it has confirmed that. The leg is retired when its
// receiver leaves, as when a member leaves.
func TestALegIsRetiredWhenOneLeavesWhoseEdgeMayMapIt(t *testing.T) {
	b := newEdgeBench(t, func(g *mft.Group) {
		g.Policy.OnFatal = feedback.FatalEvict
		s := &g.Shares[0]
		s.Members, s.Others = s.Members[:2], s.Members[2:]
	})
	b.message(1000)
	b.expectLeft(1, 0, 0, 1)
	b.ends(2, 1001)
	if !b.state().Shares[0].Retired {
		t.Errorf("%+v", b.state().Shares[0])
	}
	b.message(1002)
	b.expectLeft(0, 1, 1, 0)
}

// What is known of an edge outlives a version of the group, whatever generation its leg has.
func TestAnEdgeStaysLostInTheNextVersion(t *testing.T) {
	for _, further := range []roce.QPN{0, 1} {
		b := newEdgeBench(t)
		b.hosts[1].dead = true
		for psn := roce.PSN(firstPSN); psn < firstPSN+10; psn++ {
			b.message(psn)
		}
		before := b.state()
		next := sharingGroup()
		next.Policy = b.group.Policy
		next.Shares[0].DestQPN += further
		if err := b.Switch.Replace(b.group.ID, next); err != nil {
			t.Fatal(err)
		}
		after := b.state()
		if !after.Edges[1].Lost || after.Shares[0].Working != 2 || (after.Shares[0].Packets == before.Shares[0].Packets) != (further == 0) {
			t.Errorf("%+v, before %+v", after.Shares[0], before.Shares[0])
		}
	}
}
