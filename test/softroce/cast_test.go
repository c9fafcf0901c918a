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

// script says what group a story needs. Guests are indices into Lab.Guests.
type script struct {
	name       string
	addressing mft.Addressing
	ip         netip.Addr // the peer of the source's QP
	qpn        roce.QPN
	pathMTU    int
	bytes      int // of memory; a message has to fit
	source     int
	receivers  []int
	connect    ConnectOptions // of all QPs; the MTU is pathMTU

	nak         string // policy
	policy      string // further lines of the group file
	quorum      int    // what those lines say of it; 0: all
	both        bool   // every member may become the source
	late        int    // this receiver is not in the group at first; 0: all are
	wrongKeyOf  int    // the receiver whose R_Key the group file has wrong
	shortMemory int    // bytes that the last receiver has registered, if not all
}

const nobody = -1

var groupIP = netip.MustParseAddr("10.77.0.100")

// ordinary is a group of the first guest and all others. Retry is for ever, as with perftest: what is not repaired hangs,
// and the story's limit tells.
func ordinary() script {
	return script{
		name: "g1", ip: groupIP, qpn: 1, pathMTU: 1024, bytes: 1 << 20, source: 0, receivers: []int{1, 2, 3},
		connect: DefaultConnect(), nak: "hold", wrongKeyOf: nobody,
	}
}

// mortal lets the source give up: 4.096 us * 2^13 = 34 ms, three times.
func (s script) mortal() script {
	s.connect.Timeout, s.connect.Retry = 13, 3
	return s
}

// Where PSNs start: the source's wrap after 64 packets, one receiver's earlier and one's later, one's not at all.
const sourcePSN roce.PSN = 0xFFFFC0

var receiverPSNs = []roce.PSN{5, 0xFFFFF1, 0xFFFF00}

// Where PSNs start of members that are both: those that a receiver sends, and those that the source expects.
var (
	receiverSends          = []roce.PSN{0xFFFFF8, 7, 0x800000}
	sourceExpects roce.PSN = 0xFFFFD0
)

// What the source WRITEs to. The address is not aligned, so that an offset is seen to be added and not masked in.
const (
	virtualVA  = 0x70003
	virtualKey = 0x77
)

// cast is a group in the box and its members' QPs.
type cast struct {
	script
	from *QP   // the source
	to   []*QP // the receivers

	// Where this turn's PSNs begin: those of the source, and of the copies for each receiver.
	sends   roce.PSN
	expects []roce.PSN
	turns   map[*QP]turn // of members that are both

	// The judge's books, under its lock; offsets are counted from the turn's first PSN.
	sent   int32
	acked  []int32
	told   int32  // the highest ACK for the source
	away   []bool // receivers that nobody waits for any more
	copies []int
	lost   int
}

// enter opens and connects the QPs, creates the group and fills the memories: the source's with one random text, the
// receivers' with another.
func (s *stage) enter(t *testing.T, ctx context.Context, what script) *cast {
	t.Helper()
	c := &cast{
		script: what, sends: sourcePSN, expects: slices.Clone(receiverPSNs),
		copies: make([]int, len(what.receivers)), away: make([]bool, len(what.receivers)),
	}
	c.away[what.late] = what.late > 0
	c.begin()
	c.connect.MTU = what.pathMTU
	s.leaveAtEnd(t, ctx, c)
	must(t, s.open(ctx, c))
	c.turns = map[*QP]turn{c.from: {sourcePSN, sourceExpects}}
	for i, q := range c.to {
		c.turns[q] = turn{receiverSends[i], receiverPSNs[i]}
	}
	s.books(func() { s.casts = append(s.casts, c) })
	must(t, s.Create(ctx, c.name, c.groupFile()))
	must(t, c.link(ctx))
	return c
}

// begin opens the judge's books of a turn.
func (c *cast) begin() {
	c.sent, c.told, c.acked = -1, -1, slices.Repeat([]int32{-1}, len(c.receivers))
}

// handOver makes a receiver the source, and the source a receiver in its place, when the turn is over. Everybody's PSNs go on
// where they were.
func (s *stage) handOver(c *cast, to int) {
	s.books(func() {
		packets := c.sent + 1
		c.turns[c.from] = turn{sends: c.sends.Add(packets), expects: c.turns[c.from].expects}
		for i, q := range c.to {
			c.turns[q] = turn{sends: c.turns[q].sends, expects: c.expects[i].Add(packets)}
		}
		c.from, c.to[to] = c.to[to], c.from
		c.sends = c.turns[c.from].sends
		for i, q := range c.to {
			c.expects[i] = c.turns[q].expects
		}
		c.begin()
	})
}

// turn is where a member that is both goes on in its two streams.
type turn struct{ sends, expects roce.PSN }

func (s *stage) open(ctx context.Context, c *cast) (err error) {
	c.from, err = s.Guests[c.source].OpenQP(ctx, QPOptions{
		PSN: sourcePSN, RegionBytes: c.bytes, Spare: 1, Addr: c.addressOf(s.Guests[c.source]),
	})
	for i, guest := range c.receivers {
		if err != nil {
			return err
		}
		var q *QP
		q, err = s.Guests[guest].OpenQP(ctx, QPOptions{
			PSN: receiverSends[i], RegionBytes: c.realBytes(i), Spare: 2 * (i + 1), VA: 0x1_0000_0000 * uint64(i+1),
			Addr: c.addressOf(s.Guests[guest]),
		})
		if err == nil {
			c.to = append(c.to, q)
		}
	}
	return err
}

// addressOf is the guest's address in the group's family.
func (c *cast) addressOf(g *Guest) netip.Addr {
	if c.ip.Is6() {
		return g.Addr6
	}
	return g.Addr
}

func (c *cast) realBytes(receiver int) int {
	if c.shortMemory != 0 && receiver == len(c.receivers)-1 {
		return c.shortMemory
	}
	return c.bytes
}

// groupFile is the file a person would write for these QPs.
func (c *cast) groupFile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\naddressing: %v\nip: %v\nqpn: %d\nmtu: %d\nnak: %s\n%s",
		c.name, c.addressing, c.ip, c.qpn, c.pathMTU, c.nak, c.policy)
	fmt.Fprintf(&b, "memory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n", virtualVA, c.bytes, virtualKey)
	if c.both {
		b.WriteString(c.memberBoth(c.from, sourceExpects, sourcePSN))
	} else {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", c.from.Addr, c.from.QPN, sourcePSN)
	}
	for i, q := range c.to {
		switch {
		case c.away[i]:
		case c.both:
			b.WriteString(c.memberBoth(q, receiverPSNs[i], receiverSends[i]))
		case i == c.wrongKeyOf:
			b.WriteString(c.memberReceiver(q, receiverPSNs[i], q.RKey^0xFF))
		default:
			b.WriteString(c.memberReceiver(q, receiverPSNs[i], q.RKey))
		}
	}
	return b.String()
}

func (c *cast) memberReceiver(q *QP, expects roce.PSN, rkey uint32) string {
	return fmt.Sprintf("  - {ip: %v, qpn: %d, psn: %d, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
		q.Addr, q.QPN, expects, q.VA, c.bytes, rkey)
}

func (c *cast) memberBoth(q *QP, expects, sends roce.PSN) string {
	return fmt.Sprintf("  - {ip: %v, qpn: %d, psn: %d, sendPSN: %d, role: both, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
		q.Addr, q.QPN, expects, sends, q.VA, c.bytes, q.RKey)
}

// link connects every member to the group, as programs do that know of nothing else.
func (c *cast) link(ctx context.Context) error {
	peer := Local{Addr: c.receiversSee(), QPN: c.qpn}
	for i, q := range c.to {
		peer.PSN = receiverPSNs[i]
		if err := q.Connect(ctx, peer, c.connect); err != nil {
			return err
		}
		if err := q.Fill(ctx, uint64(2+i)); err != nil {
			return err
		}
	}
	peer.Addr, peer.PSN = c.ip, sourceExpects
	if err := c.from.Connect(ctx, peer, c.connect); err != nil {
		return err
	}
	return c.from.Fill(ctx, 1)
}

// leaveAtEnd takes everything away when the story ends, after saying what is known when it has failed.
func (s *stage) leaveAtEnd(t *testing.T, ctx context.Context, c *cast) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if t.Failed() {
			s.tell(t, ctx, c.name)
		}
		s.leave(t, ctx, c)
	})
}

// leave takes a group and its QPs away. It may be called again.
func (s *stage) leave(t *testing.T, ctx context.Context, c *cast) {
	t.Helper()
	s.lose()
	_ = s.Remove(ctx, c.name) // the story may have done so
	s.books(func() { s.casts = slices.DeleteFunc(s.casts, func(other *cast) bool { return other == c }) })
	for _, q := range append(c.to, c.from) {
		if q != nil {
			_ = q.Close(ctx) // its guest may be off
		}
	}
	c.from, c.to = nil, nil
}

// receiversSee is the peer of the receivers' QPs.
func (c *cast) receiversSee() netip.Addr {
	if c.addressing == mft.ByVirtualQPN {
		return c.from.Addr
	}
	return c.ip
}

// attribute says what a frame on a guest's wire is to this group.
func (c *cast) attribute(g *Guest, d wire.Direction, v *roce.View, frame []byte) (s sight, mine bool) {
	s = sight{group: c, opcode: v.Opcode, ackReq: v.AckReq(frame)}
	if v.Opcode == roce.OpAck {
		s.aeth = v.AETH(frame)
	}
	data, psn := v.Opcode.IsRequest(), v.PSN(frame)
	if g == c.from.guest && data == (d == wire.ToBox) && c.between(c.from, c.ip, d, v, frame) {
		s.hop, s.offset = merged, psn.Sub(c.sends)
		if data {
			s.hop = uplink
		}
		return s, true
	}
	for i, q := range c.to {
		if g == q.guest && data == (d == wire.ToGuest) && c.between(q, c.receiversSee(), d, v, frame) {
			s.hop, s.receiver, s.offset = answer, i, psn.Sub(c.expects[i])
			if data {
				s.hop = copied
			}
			return s, true
		}
	}
	return s, false
}

// between says whether a frame belongs to the connection of a member's QP with its peer, which is the group.
func (c *cast) between(q *QP, peer netip.Addr, d wire.Direction, v *roce.View, frame []byte) bool {
	if d == wire.ToBox {
		return v.DstIP(frame) == peer && v.DestQPN(frame) == c.qpn
	}
	return v.SrcIP(frame) == peer && v.DestQPN(frame) == q.QPN
}

// claims says whether a frame on the way to a guest, which attribute did not find, should be this group's all the same: it
// is for a member's QP, or it has the group's own address.
func (c *cast) claims(g *Guest, v *roce.View, frame []byte) bool {
	for _, q := range append([]*QP{c.from}, c.to...) {
		if q.guest == g && q.QPN == v.DestQPN(frame) {
			return true
		}
	}
	return c.addressing != mft.ByVirtualQPN && (v.SrcIP(frame) == c.ip || v.DstIP(frame) == c.ip)
}

// transfer describes messages to the group. It says nothing about any receiver.
func (c *cast) transfer(op string, bytes, count int) Transfer {
	return Transfer{
		Op: op, Peer: Local{VA: virtualVA, RKey: virtualKey}, Bytes: bytes, Count: count, Depth: min(count, 16),
	}
}

// run runs a transfer that has to succeed.
func (c *cast) run(t *testing.T, ctx context.Context, transfer Transfer) {
	t.Helper()
	result, err := c.from.Transfer(ctx, transfer)
	must(t, err)
	c.succeeded(t, transfer, result)
}

func (c *cast) succeeded(t *testing.T, transfer Transfer, result Result) {
	t.Helper()
	if result.Status != Success || result.OK != transfer.Count {
		t.Fatalf("%s: %d of %d messages succeeded, status %q", transfer.Op, result.OK, transfer.Count, result.Status)
	}
}

// await waits for the end of a transfer that has to succeed.
func (c *cast) await(t *testing.T, ctx context.Context, transfer Transfer) {
	t.Helper()
	result, err := c.from.AwaitTransfer(ctx)
	must(t, err)
	c.succeeded(t, transfer, result)
}

// fails runs a transfer to its end, which has to be this status, and returns how many messages the source counts as done.
func (c *cast) fails(t *testing.T, ctx context.Context, status string) (done int) {
	t.Helper()
	result, err := c.from.AwaitTransfer(ctx)
	must(t, err)
	if result.Status != status {
		t.Errorf("the source ended with %q after %d messages, want %q", result.Status, result.OK, status)
	}
	return result.OK
}

// hold checks that these receivers have the first bytes of the source's memory.
func (c *cast) hold(t *testing.T, ctx context.Context, bytes int, receivers ...*QP) {
	t.Helper()
	want, err := c.from.Hash(ctx, bytes)
	must(t, err)
	for _, q := range receivers {
		got, err := q.Hash(ctx, bytes)
		must(t, err)
		if got != want {
			t.Errorf("receiver at %v: the first %d bytes differ from the source's", q.Addr, bytes)
		}
	}
}

// stand checks the states of queue pairs.
func stand(t *testing.T, ctx context.Context, want string, qs ...*QP) {
	t.Helper()
	for _, q := range qs {
		if got, err := q.State(ctx); err != nil || got != want {
			t.Errorf("the QP at %v is in state %s, want %s; error %v", q.Addr, got, want, err)
		}
	}
}

// complete is what most stories end with: all receivers have the data and every QP lives.
func (c *cast) complete(t *testing.T, ctx context.Context, bytes int) {
	t.Helper()
	c.hold(t, ctx, bytes, c.to...)
	stand(t, ctx, "RTS", append(c.to, c.from)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
