package hosts

import (
	"math/bits"

	"github.com/rocast/rocast/bench/workload"
)

const (
	// Window is the largest number of unacknowledged packets, unless Options say less. A veth queue
	// holds this many, so that a burst never overflows it, and it is more than two batches of any
	// forwarder, so that none of them waits for packets.
	Window = 256
	// acksPerWindow packets of a window ask for an ACK. With the usual window that is every 64th
	// packet: rxe sends at most this many without asking (RXE_MAX_PKT_PER_ACK of rxe_req.c).
	acksPerWindow = 4
	// carefulWindow is the window while every copy goes up to user space, or while one packet is
	// sent at a time: if a packet is lost, few are sent again.
	carefulWindow = 32

	hotGroups = 16
	psnMask   = 1<<24 - 1
)

// requester is the source's side of RC for all groups together. It knows which packet is next,
// which packets are unacknowledged, and which are to be sent again. On a NAK or a timeout it goes
// back to the oldest unacknowledged packet, like a NIC. It sends nothing itself.
//
//	base            cursor          next
//	 | unacknowledged |  to be sent   |  new, up to base+window
//	 |                |  again        |
type requester struct {
	window   uint64
	ackEvery uint64 // every this many packets of a queue, one asks for an ACK
	groups   int
	hot      bool
	seed     uint64

	following          []uint32 // K of each group's next packet
	lanes              []lane   // by queue
	sent               [Window]workload.Packet
	base, cursor, next uint64 // numbers of packets, counted over all groups

	// marks are the unacknowledged packets that ask for an ACK, oldest first. The ACK of one
	// acknowledges all packets before it on its queue, of every group: no forwarder lets packets
	// overtake each other on a queue.
	marks []mark
	all   uint64 // first value of mark.missing: a bit for each party that answers

	resent, backs uint64
	stuck         bool // the source went back, and base has not changed since
}

// lane is one queue of the source's interface: every group belongs to one.
type lane struct {
	sent  uint64 // packets
	acked uint64 // all packets of the lane before this one are acknowledged
}

type mark struct {
	seq     uint64
	group   int
	k       uint32
	missing uint64
}

// newRequester makes a requester that gets answers from this many parties: from each receiver, or
// from one party if the forwarder merges answers.
func newRequester(groups int, hot bool, queues, parties, window int) *requester {
	q := &requester{
		groups: groups, hot: hot, seed: 0x9E3779B97F4A7C15,
		following: make([]uint32, groups), lanes: make([]lane, queues),
		marks: make([]mark, 0, Window), all: 1<<parties - 1,
	}
	q.setWindow(window)
	return q
}

// setWindow changes the window. Packets that are already unacknowledged beyond it are not affected.
func (q *requester) setWindow(packets int) {
	q.window, q.ackEvery = uint64(packets), uint64(max(packets/acksPerWindow, 1))
}

// take returns the next packet to send, or false if the window is closed.
func (q *requester) take() (workload.Packet, bool) {
	if q.cursor < q.next {
		p := q.sent[q.cursor%Window]
		q.cursor++
		q.resent++
		return p, true
	}
	if q.next-q.base >= q.window {
		return workload.Packet{}, false
	}
	g := q.choose()
	l := q.lane(g)
	p := workload.Packet{Group: g, K: q.following[g], AckReq: l.sent%q.ackEvery == q.ackEvery-1}
	q.following[g]++
	l.sent++
	if p.AckReq {
		q.marks = append(q.marks, mark{seq: q.next, group: g, k: p.K, missing: q.all})
	}
	q.sent[q.next%Window] = p
	q.next++
	q.cursor = q.next
	return p, true
}

func (q *requester) lane(group int) *lane { return &q.lanes[group%len(q.lanes)] }

// choose returns the group of the next packet: a few groups in turn, or a random one (xorshift64).
func (q *requester) choose() int {
	if q.groups == 1 {
		return 0
	}
	if q.hot {
		return int(q.next % uint64(min(q.groups, hotGroups)))
	}
	q.seed ^= q.seed << 13
	q.seed ^= q.seed >> 7
	q.seed ^= q.seed << 17
	high, _ := bits.Mul64(q.seed, uint64(q.groups))
	return int(high)
}

// acknowledge records that a party has all packets of a group up to packet k.
func (q *requester) acknowledge(party, group int, k uint32) {
	for i := range q.marks {
		m := &q.marks[i]
		if m.group == group && (k-m.k)&psnMask < 1<<23 {
			m.missing &^= 1 << party
		}
	}
	open := q.marks[:0]
	for _, m := range q.marks {
		switch l := q.lane(m.group); {
		case m.seq < l.acked: // the answers to a later packet acknowledged this one
		case m.missing != 0:
			open = append(open, m)
		default:
			l.acked = m.seq + 1
		}
	}
	q.marks = open
	for q.base < q.next && q.base < q.lane(q.sent[q.base%Window].Group).acked {
		q.base++
		q.cursor, q.stuck = max(q.cursor, q.base), false
	}
}

// goBack begins again with the oldest unacknowledged packet. The NAKs of several receivers for one
// loss count once: until a packet is acknowledged, only a timeout goes back again.
func (q *requester) goBack(timeout bool) {
	if q.base == q.next || q.stuck && !timeout {
		return
	}
	q.cursor = q.base
	q.stuck = true
	q.backs++
}
