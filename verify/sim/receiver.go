package sim

import (
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// receiver is the receiving half of a host: its memory, and the program that posts receives.
type receiver struct {
	regions   rnic.Memory
	memory    []byte // WRITEs go here
	want      []byte // what memory must hold
	inbox     []byte // SENDs go here, to one slot for each posted receive
	given     int    // receives that were posted
	taken     int    // receives that completed
	expected  rnic.Completion
	expecting bool // the packet just executed completes a receive: expected
	owed      int  // receives that the program will post again

	storm   int // faults that keep the program from posting receives
	crashed bool
	unready bool   // its program has not said that its queue pair is ready
	unheard uint64 // frames that came after the crash or before it was ready, or that the host's edge did not map
	keyLost bool

	membership membership
	behind     bool          // the switch called it behind: it gets no more data
	outAt      time.Duration // when the switch said that it is evicted or behind
	storedOut  bool          // control has stored that
	fatalHeard bool          // the switch took its fatal NAK
	next       []int         // by stream: the packet that it executes next
	from       []int         // by stream: the first packet that it had to execute
	joinedAt   int           // the packet of the first source's first turn with which it had joined when the switch crashed; 0: none
	joinedWith roce.PSN      // the same in whichever turn it was, by its PSN, if open
	spared     int           // in a tree: packets below this one may be acknowledged without it, because it was evicted, which a crash has forgotten
	open       bool          // the source had not heard an ACK of everything before it then
	acked      int           // up to here the switch took its acknowledgements, in its own PSNs
	progressAt time.Duration // when acked moved last
	asked      int           // the packet that it had asked for when the switch started, or of which the switch has taken its NAK since; nowhere: none
	grant      grant
}

// membership is the relation of a receiver to the group.
type membership uint8

const (
	outsider    membership = iota
	unconfirmed            // control has made it a member, and the switch waits for what its program says
	joining                // control has made it a member; the switch waits for the next message
	member
	evicted
	left
)

// published returns how control publishes a receiver that is in the group.
func (m membership) published() feedback.Part {
	switch m {
	case joining:
		return feedback.PartJoining
	case unconfirmed:
		return feedback.PartWaiting
	}
	return feedback.PartActive
}

// counts reports whether the source has to wait for the receiver.
func (r *receiver) counts() bool { return r.membership == member }

// takesNothing reports whether the host takes nothing.
func (r *receiver) takesNothing() bool { return r.crashed || r.unready }

// endPart notes that the core has left the receiver out. It may have left the group already: the
// core sees a new version of the group with its next frame. A source that only sends has no part to
// end.
func (r *receiver) endPart() {
	if r.membership != left && r.membership != outsider {
		r.membership = evicted
	}
}

// keyOf returns the address and key of a region: every receiver has the memory at an address of its
// own, under keys of its own. Where RETHs pass unchanged, all receivers have the same.
func (w *world) keyOf(number, region int) rnic.Remote {
	if w.s.Regions == 0 {
		number = 0
	}
	return rnic.Remote{VA: uint64(number+1)<<40 | uint64(region)<<32, RKey: uint32(number+1)<<8 | uint32(region)}
}

// virtualVA and virtualRKey are the address and the key that sources use for the memory of the
// group.
const (
	virtualVA   = 0x5500_0000_0000
	virtualRKey = 0xABCD00
)

// virtual returns what a source puts into the RETH of m.
func (w *world) virtual(m *Message) rnic.Remote {
	to := rnic.Remote{VA: virtualVA, RKey: virtualRKey}
	switch {
	case w.s.Regions == 0:
		to = w.keyOf(0, 0)
	case w.s.Regions == 2 && m.Target >= w.s.MemoryBytes/2:
		to.RKey++
	}
	to.VA += uint64(m.Target)
	return to
}

// span returns where region r of the memory begins and ends.
func (w *world) span(r int) (from, to int) {
	switch {
	case w.s.Regions < 2:
		return 0, w.s.MemoryBytes
	case r == 0:
		return 0, w.s.MemoryBytes / 2
	}
	return w.s.MemoryBytes / 2, w.s.MemoryBytes
}

func (w *world) resetReceiver(h *host) error {
	r := &h.receiver
	memory, want := cleared(r.memory, w.s.MemoryBytes), cleared(r.want, w.s.MemoryBytes)
	inbox, next, from := cleared(r.inbox, h.Receives*w.longestSend), r.next[:0], r.from[:0]
	for range w.s.Hosts {
		next, from = append(next, 0), append(from, 0)
	}
	*r = receiver{memory: memory, want: want, inbox: inbox, next: next, from: from, acked: -1, asked: nowhere, grant: noGrant}
	if h.Receiver && !h.Outside {
		r.membership = member
	}
	return w.register(h)
}

// register makes the memory of the group known under the address and the keys of this receiver.
func (w *world) register(h *host) error {
	for k := range max(1, w.s.Regions) {
		at := w.keyOf(h.number, k)
		from, to := w.span(k)
		err := h.regions.Register(rnic.Region{VA: at.VA, RKey: at.RKey, Access: rnic.RemoteWrite, Bytes: h.memory[from:to]})
		if err != nil {
			return err
		}
	}
	return nil
}

func cleared(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	b = b[:n]
	clear(b)
	return b
}

// slot returns where the data of receive number k goes. At most as many receives are posted as
// there are slots.
func (w *world) slot(h *host, k int) []byte {
	return h.inbox[k%h.Receives*w.longestSend:][:w.longestSend]
}

// giveBack posts the next receive.
func (w *world) giveBack(h *host) {
	if err := h.qp.PostRecv(uint64(h.given), w.slot(h, h.given)); err != nil {
		panic("sim: post receive: " + err.Error()) // the program keeps to the queue's depth
	}
	h.given++
}

// repay posts the receives that the program owes, unless a fault prevents it.
func (w *world) repay(h *host) {
	for h.storm == 0 && h.owed > 0 && h.qp.State() == rnic.StateReady {
		h.owed--
		w.giveBack(h)
	}
}

// received handles the completion of one receive.
func (w *world) received(h *host, c rnic.Completion) {
	if h.qp.State() == rnic.StateError {
		return // flushed
	}
	w.checkReceived(h, c)
	h.taken++
	w.schedule.add(event{at: w.now + h.RepostAfter, kind: repost, host: int32(h.number)})
}
