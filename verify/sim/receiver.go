package sim

import (
	"time"

	"github.com/rocast/rocast/internal/rnic"
)

// receiver is the receiving half of a host: its memory, and the program that gives receives to its queue pair.
type receiver struct {
	regions rnic.Memory
	memory  []byte // what WRITEs go to
	want    []byte // what is to be in it
	inbox   []byte // what SENDs go to, one slot for each posted receive
	given   int    // receives
	taken   int    // receives that completed
	ending  rnic.Completion
	ends    bool // the packet just executed completes a receive, as ending
	owed    int  // receives that the program will give back

	storm   int // faults that keep it from doing so
	crashed bool
	unheard uint64 // frames that came after that
	keyLost bool

	membership membership
	behind     bool          // quorum: it gets no more data
	fatalHeard bool          // the switch took its fatal NAK
	next       []int         // by stream: the packet that it executes next
	from       []int         // and the first that it had to
	acked      int           // how far its answers that reached the switch have come, in its own PSNs
	progressAt time.Duration // when they came that far
	grant      grant
}

// membership is what a receiver is to the group.
type membership uint8

const (
	outsider membership = iota
	joining             // control has made it a member; the switch lets it in with the next message
	member
	evicted
	left
)

// counts says whether the receiver's word is waited for.
func (r *receiver) counts() bool { return r.membership == member }

// Every receiver has the memory at its own place, under its own keys; where RETHs pass unchanged, all agree.
func (w *world) keyOf(number, region int) rnic.Remote {
	if w.s.Regions == 0 {
		number = 0
	}
	return rnic.Remote{VA: uint64(number+1)<<40 | uint64(region)<<32, RKey: uint32(number+1)<<8 | uint32(region)}
}

// The sources' view of the group's memory.
const (
	virtualVA   = 0x5500_0000_0000
	virtualRKey = 0xABCD00
)

// virtual is what a source puts into the RETH of m.
func (w *world) virtual(m *Message) rnic.Remote {
	to := rnic.Remote{VA: virtualVA, RKey: virtualRKey}
	switch {
	case w.s.Regions == 0:
		to = w.keyOf(0, 0)
	case w.s.Regions == 2 && m.Place >= w.s.MemoryBytes/2:
		to.RKey++
	}
	to.VA += uint64(m.Place)
	return to
}

// span is where region r of the memory begins and ends.
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
	*r = receiver{memory: memory, want: want, inbox: inbox, next: next, from: from, acked: -1, grant: noGrant}
	if h.Receiver && !h.Outside {
		r.membership = member
	}
	return w.register(h)
}

// register makes the group's memory known, at this receiver's place and under its keys.
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

// slot is where receive number k's data goes. At most as many are posted as there are slots.
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

// repay gives back what the program owes, unless something keeps it.
func (w *world) repay(h *host) {
	for h.storm == 0 && h.owed > 0 && h.qp.State() == rnic.StateReady {
		h.owed--
		w.giveBack(h)
	}
}

// received takes the end of one receive.
func (w *world) received(h *host, c rnic.Completion) {
	if h.qp.State() == rnic.StateError {
		return // flushed
	}
	w.checkReceived(h, c)
	h.taken++
	w.schedule.add(event{at: w.now + h.RepostAfter, kind: repost, host: int32(h.number)})
}
