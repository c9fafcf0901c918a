//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/wire"
)

// groupSpec says which group a story needs. Guests are indices into Lab.Guests.
type groupSpec struct {
	name       string
	addressing mft.Addressing
	ip         netip.Addr // the peer of the source's QP
	qpn        roce.QPN
	pathMTU    int
	bytes      int // of memory; at least one message
	source     int
	receivers  []int
	connect    ConnectOptions // of all QPs; the MTU is replaced by pathMTU

	nak         string // the policy of this name
	repair      string // the policy of this name
	policy      string // further lines of the group file
	quorum      int    // the quorum in these lines; 0: all receivers
	both        bool   // every member may become the source
	late        int    // the receiver that joins later; 0: none
	wrongKeyOf  int    // the receiver whose R_Key is wrong in the group file; or noReceiver
	shortMemory int    // bytes that the last receiver has registered; 0: all
}

const noReceiver = -1

var groupIP = netip.MustParseAddr("10.77.0.100")

// ordinary is a group whose source is the first guest and whose receivers are all other guests. Its
// QPs retry for ever, as those of perftest do. If rocast does not repair a loss, the story hangs
// and its time limit reports that.
func ordinary() groupSpec {
	return groupSpec{
		name: "g1", ip: groupIP, qpn: 1, pathMTU: 1024, bytes: 1 << 20, source: 0, receivers: []int{1, 2, 3},
		connect: DefaultConnect(), nak: "hold", repair: *repair, wrongKeyOf: noReceiver,
	}
}

// repaired is a group whose losses on the receivers' legs the box repairs.
func repaired() groupSpec {
	s := ordinary()
	s.repair = "local"
	return s
}

// finiteRetries lets the source give up after three timeouts of 4.096 us * 2^17 = 0.54 s. A guest
// or a box that gets no CPU for a while does not end it.
func (s groupSpec) finiteRetries() groupSpec {
	s.connect.Timeout, s.connect.Retry = 17, 3
	return s
}

// The first PSNs. Those of the source wrap after 64 packets. Those of the receivers wrap earlier,
// later, or not at all.
const sourcePSN roce.PSN = 0xFFFFC0

var receiverPSNs = []roce.PSN{5, 0xFFFFF1, 0xFFFF00}

var (
	// The first PSNs of members with role both: those that a receiver sends, and those that the
	// source expects.
	receiverSends          = []roce.PSN{0xFFFFF8, 7, 0x800000}
	sourceExpects roce.PSN = 0xFFFFD0
)

const (
	// The memory that the source WRITEs to. The address is not aligned, so a switch that ORs the
	// offset in, instead of adding it, is noticed.
	virtualVA  = 0x70003
	virtualKey = 0x77
)

// group is a group in the box, and the QPs of its members.
type group struct {
	unseenLoss bool // frames may be lost where the judge does not see them, on the last link to the source
	groupSpec
	from *QP   // the source
	to   []*QP // the receivers

	// The first PSNs of this turn: those that the source sends, and those that each receiver
	// expects.
	sends   roce.PSN
	expects []roce.PSN
	turns   map[*QP]turn // of members with role both

	// What the judge has seen, guarded by its lock. Offsets are counted from the first PSN of the
	// turn.
	offered   int32                 // the highest packet that the source sent, also if it was lost
	sent      int32                 // the highest packet that got to the box
	opcodes   map[int32]roce.Opcode // of the packets that the source sent
	acked     []int32
	ackedUpTo int32  // the highest ACK that the source got
	excluded  []bool // receivers for which the group does not wait
	copies    []int
	alone     int // copies for one receiver, beside those that receivers share
	answers   int // ACKs and NAKs that were sent to the source
	lost      int
	naks      int // NAKs and RNR NAKs that the source got
	resent    int // packets that the source sent again
}

// addGroup opens and connects the QPs, creates the group and fills the memories. The source gets
// other random bytes than the receivers.
func (s *stage) addGroup(t *testing.T, ctx context.Context, spec groupSpec) *group {
	t.Helper()
	g := &group{
		groupSpec: spec, sends: sourcePSN, expects: slices.Clone(receiverPSNs),
		copies: make([]int, len(spec.receivers)), excluded: make([]bool, len(spec.receivers)),
	}
	g.excluded[spec.late] = spec.late > 0
	g.begin()
	g.connect.MTU = spec.pathMTU
	s.removeAtEnd(t, ctx, g)
	must(t, s.open(ctx, g))
	g.turns = map[*QP]turn{g.from: {sourcePSN, sourceExpects}}
	for i, q := range g.to {
		g.turns[q] = turn{receiverSends[i], receiverPSNs[i]}
	}
	s.locked(func() { s.groups = append(s.groups, g) })
	must(t, s.create(ctx, g))
	must(t, g.connectAll(ctx))
	return g
}

// begin resets what the judge has seen of a turn.
func (g *group) begin() {
	g.opcodes = map[int32]roce.Opcode{}
	g.offered, g.sent, g.ackedUpTo, g.acked = -1, -1, -1, slices.Repeat([]int32{-1}, len(g.receivers))
}

// switchSource makes a receiver the source after a turn. The source takes the place of this
// receiver. All members continue with their next PSN.
func (s *stage) switchSource(g *group, to int) {
	s.locked(func() {
		packets := g.sent + 1
		g.turns[g.from] = turn{sends: g.sends.Add(packets), expects: g.turns[g.from].expects}
		for i, q := range g.to {
			g.turns[q] = turn{sends: g.turns[q].sends, expects: g.expects[i].Add(packets)}
		}
		g.from, g.to[to] = g.to[to], g.from
		g.sends = g.turns[g.from].sends
		for i, q := range g.to {
			g.expects[i] = g.turns[q].expects
		}
		g.begin()
	})
}

// turn holds the next PSN that a member sends and the next PSN that it expects.
type turn struct{ sends, expects roce.PSN }

func (s *stage) open(ctx context.Context, g *group) (err error) {
	g.from, err = s.Guests[g.source].OpenQP(ctx, QPOptions{
		PSN: sourcePSN, RegionBytes: g.bytes, Spare: 1, Addr: g.addressOf(s.Guests[g.source]),
	})
	for i, guest := range g.receivers {
		if err != nil {
			return err
		}
		var q *QP
		q, err = s.Guests[guest].OpenQP(ctx, QPOptions{
			PSN: receiverSends[i], RegionBytes: g.realBytes(i), Spare: 2 * (i + 1), VA: 0x1_0000_0000 * uint64(i+1),
			Addr: g.addressOf(s.Guests[guest]),
		})
		if err == nil {
			g.to = append(g.to, q)
		}
	}
	return err
}

// addressOf is the address of a guest that has the IP version of the group.
func (g *group) addressOf(guest *Guest) netip.Addr {
	if g.ip.Is6() {
		return guest.Addr6
	}
	return guest.Addr
}

func (g *group) realBytes(receiver int) int {
	if g.shortMemory != 0 && receiver == len(g.receivers)-1 {
		return g.shortMemory
	}
	return g.bytes
}

// groupFile is the file that a person would write for these QPs.
func (g *group) groupFile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\naddressing: %v\nip: %v\nqpn: %d\nmtu: %d\nnak: %s\nrepair: %s\n%s",
		g.name, g.addressing, g.ip, g.qpn, g.pathMTU, g.nak, g.repair, g.policy)
	fmt.Fprintf(&b, "memory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n", virtualVA, g.bytes, virtualKey)
	if g.both {
		b.WriteString(g.memberBoth(g.from, sourceExpects, sourcePSN))
	} else {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", g.from.Addr, g.from.QPN, sourcePSN)
	}
	for i, q := range g.to {
		switch {
		case g.excluded[i]:
		case g.both:
			b.WriteString(g.memberBoth(q, receiverPSNs[i], receiverSends[i]))
		case i == g.wrongKeyOf:
			b.WriteString(g.memberReceiver(q, receiverPSNs[i], q.RKey^0xFF))
		default:
			b.WriteString(g.memberReceiver(q, receiverPSNs[i], q.RKey))
		}
	}
	return b.String()
}

func (g *group) memberReceiver(q *QP, expects roce.PSN, rkey uint32) string {
	return fmt.Sprintf("  - {ip: %v, qpn: %d, psn: %d, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
		q.Addr, q.QPN, expects, q.VA, g.bytes, rkey)
}

func (g *group) memberBoth(q *QP, expects, sends roce.PSN) string {
	return fmt.Sprintf("  - {ip: %v, qpn: %d, psn: %d, sendPSN: %d, role: both, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
		q.Addr, q.QPN, expects, sends, q.VA, g.bytes, q.RKey)
}

// connectAll connects every member to the group, as a program does that does not know of the other
// members.
func (g *group) connectAll(ctx context.Context) error {
	peer := Local{Addr: g.receiversSee(), QPN: g.qpn}
	for i, q := range g.to {
		peer.PSN = receiverPSNs[i]
		if err := q.Connect(ctx, peer, g.connect); err != nil {
			return err
		}
		if err := q.Fill(ctx, uint64(2+i)); err != nil {
			return err
		}
	}
	peer.Addr, peer.PSN = g.ip, sourceExpects
	if err := g.from.Connect(ctx, peer, g.connect); err != nil {
		return err
	}
	return g.from.Fill(ctx, 1)
}

// removeAtEnd removes the group and its QPs when the story ends. If the story has failed, it
// reports the failure first.
func (s *stage) removeAtEnd(t *testing.T, ctx context.Context, g *group) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if t.Failed() {
			s.reportFailure(t, ctx, g.name)
		}
		s.removeGroup(t, ctx, g)
	})
}

// removeGroup removes a group and its QPs. It may be called twice.
func (s *stage) removeGroup(t *testing.T, ctx context.Context, g *group) {
	t.Helper()
	s.lose()
	_ = s.Remove(ctx, g.name) // the story may have removed it
	if s.far != nil {
		_ = s.far.Remove(ctx, g.name)
	}
	s.locked(func() { s.groups = slices.DeleteFunc(s.groups, func(other *group) bool { return other == g }) })
	for _, q := range append(g.to, g.from) {
		if q != nil {
			_ = q.Close(ctx) // fails if the guest is off
		}
	}
	g.from, g.to = nil, nil
}

// receiversSee is the peer IP of the receivers' QPs.
func (g *group) receiversSee() netip.Addr {
	if g.addressing == mft.ByVirtualQPN {
		return g.from.Addr
	}
	return g.ip
}

// attribute finds out whether a frame on the wire of a guest belongs to this group, and at which
// hop it is seen.
func (g *group) attribute(guest *Guest, d wire.Direction, v *roce.View, frame []byte) (s sighting, mine bool) {
	s = sighting{group: g, opcode: v.Opcode, passage: passage{ackReq: v.AckReq(frame)}}
	if v.Opcode == roce.OpAck {
		s.aeth = v.AETH(frame)
	}
	data, psn := v.Opcode.IsRequest(), v.PSN(frame)
	if guest == g.from.guest && data == (d == wire.ToBox) && g.between(g.from, g.ip, d, v, frame) {
		s.hop, s.offset = merged, psn.Sub(g.sends)
		if data {
			s.hop = uplink
		}
		return s, true
	}
	for i, q := range g.to {
		if guest == q.guest && data == (d == wire.ToGuest) && g.between(q, g.receiversSee(), d, v, frame) {
			s.hop, s.receiver, s.offset = response, i, psn.Sub(g.expects[i])
			if data {
				s.hop = copied
				g.alone++
			}
			return s, true
		}
		if guest == q.guest && d == wire.ToGuest && data && v.SrcIP(frame) == g.receiversSee() && v.DstIP(frame).IsMulticast() {
			s.hop, s.receiver, s.offset = copied, i, psn.Sub(g.sends) // the host's edge maps it
			return s, true
		}
	}
	return s, false
}

// between reports whether a frame belongs to the connection between the QP of a member and the
// group.
func (g *group) between(q *QP, peer netip.Addr, d wire.Direction, v *roce.View, frame []byte) bool {
	if d == wire.ToBox {
		return v.DstIP(frame) == peer && v.DestQPN(frame) == g.qpn
	}
	return v.SrcIP(frame) == peer && v.DestQPN(frame) == q.QPN
}

// claims reports whether a frame on its way to a guest looks like a frame of this group, although
// attribute did not accept it: it is for the QP of a member, or it has an address that only the box
// uses.
func (g *group) claims(guest *Guest, v *roce.View, frame []byte) bool {
	for _, q := range append([]*QP{g.from}, g.to...) {
		if q.guest == guest && q.QPN == v.DestQPN(frame) {
			return true
		}
	}
	return g.addressing != mft.ByVirtualQPN && (v.SrcIP(frame) == g.ip || v.DstIP(frame) == g.ip)
}

// transfer describes messages to the group. It names no receiver.
func (g *group) transfer(op string, bytes, count int) Transfer {
	return Transfer{
		Op: op, Peer: Local{VA: virtualVA, RKey: virtualKey}, Bytes: bytes, Count: count, Depth: min(count, 16),
	}
}

// run runs a transfer. The transfer has to succeed.
func (g *group) run(t *testing.T, ctx context.Context, transfer Transfer) {
	t.Helper()
	result, err := g.from.Transfer(ctx, transfer)
	must(t, err)
	g.succeeded(t, transfer, result)
}

func (g *group) succeeded(t *testing.T, transfer Transfer, result Result) {
	t.Helper()
	if result.Status != Success || result.OK != transfer.Count {
		t.Fatalf("%s: %d of %d messages succeeded, status %q", transfer.Op, result.OK, transfer.Count, result.Status)
	}
}

// await waits for the end of a transfer that was started. The transfer has to succeed.
func (g *group) await(t *testing.T, ctx context.Context, transfer Transfer) {
	t.Helper()
	result, err := g.from.AwaitTransfer(ctx)
	must(t, err)
	g.succeeded(t, transfer, result)
}

// fails waits for the end of a transfer that was started. The transfer has to end with this status.
// fails returns how many messages the source counts as done.
func (g *group) fails(t *testing.T, ctx context.Context, status string) (done int) {
	t.Helper()
	result, err := g.from.AwaitTransfer(ctx)
	must(t, err)
	if result.Status != status {
		t.Errorf("the source ended with %q after %d messages, want %q", result.Status, result.OK, status)
	}
	return result.OK
}

// holds checks that receivers have the first bytes of the source's memory.
func (g *group) holds(t *testing.T, ctx context.Context, bytes int, receivers ...*QP) {
	t.Helper()
	want, err := g.from.Hash(ctx, bytes)
	must(t, err)
	for _, q := range receivers {
		got, err := q.Hash(ctx, bytes)
		must(t, err)
		if got != want {
			t.Errorf("receiver at %v: the first %d bytes differ from the source's", q.Addr, bytes)
		}
	}
}

// inState checks the states of queue pairs.
func inState(t *testing.T, ctx context.Context, want string, qs ...*QP) {
	t.Helper()
	for _, q := range qs {
		if got, err := q.State(ctx); err != nil || got != want {
			t.Errorf("the QP at %v is in state %s, want %s; error %v", q.Addr, got, want, err)
		}
	}
}

// delivered checks what most stories end with: all receivers have the data, and every QP is alive.
func (g *group) delivered(t *testing.T, ctx context.Context, bytes int) {
	t.Helper()
	g.holds(t, ctx, bytes, g.to...)
	inState(t, ctx, "RTS", append(g.to, g.from)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
