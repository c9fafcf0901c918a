package softroce

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/roce"
)

// Where the box repairs what is lost on the receivers' legs, the source gets no NAK and sends
// nothing again. There is one exception, by rule 14 of merging: a source that is silent inside a
// message, although it may send, is called back to its newest packet when the receivers have that.
// A guest that gets no CPU of this machine for a while is such a source, and the box does right.
//
// The frames tell this exception from a fault of the box, however long and however often a guest
// gets no CPU. So a story needs no quiet machine, and excuses nothing else. Other patience that a
// guest may need is given to it: see patient.

const (
	// silence is how long a source has to be silent before the box calls it back (muteAfter of
	// package feedback).
	silence = 4 * time.Millisecond
	// window is how many packets rxe sends beyond what it has an ACK for (RXE_MAX_UNACKED_PSNS).
	window = 128
	// manyRepairs are more than guests without CPU delay.
	manyRepairs = 8
)

// hop is a place on the way of a group's frame.
type hop uint8

const (
	uplink   hop = iota // data from the source to the box
	copied              // data from the box to a receiver
	response            // ACK or NAK from a receiver to the box
	merged              // ACK or NAK from the box to the source
)

// passage is what a frame of a group says where it passes a hop.
type passage struct {
	at       time.Duration
	hop      hop
	receiver int   // of a copy or a response
	offset   int32 // PSN minus the first PSN of the turn
	ackReq   bool
	aeth     roce.AETH // of an ACK or NAK
	lost     bool
}

// acknowledged is the last packet that an ACK or NAK acknowledges. A NAK acknowledges all packets
// before its own.
func (p *passage) acknowledged() int32 {
	if p.aeth.Syndrome.IsACK() {
		return p.offset
	}
	return p.offset - 1
}

// notices is what a source has noticed, and what it might have noticed.
type notices struct {
	naks    []string        // those that the exception does not explain
	resent  []string        // the packets from which on it sent again although no excused NAK said so
	excused int             // NAKs that the exception explains
	repairs []time.Duration // from a receiver's NAK until it was sent the packet again
}

// noticed goes through the frames of one turn of a group. A packet is acknowledged to the source
// when enough receivers have it.
func noticed(receivers, enough int, frames []passage) notices {
	w := witness{waits: make([]waits, receivers), enough: enough, paused: -1}
	for i := range frames {
		w.see(&frames[i])
	}
	slices.Sort(w.repairs)
	return w.notices
}

// usual is the median of the repairs: a box or a guest that gets no CPU delays few of them. It is 0
// where there are too few repairs to say so.
func (n *notices) usual() time.Duration {
	if len(n.repairs) < manyRepairs {
		return 0
	}
	return n.repairs[len(n.repairs)/2]
}

// unbidden returns the packets that a source sent again although no NAK came since it had sent them
// before: its timer made it do so.
func unbidden(frames []passage) (offsets []int32) {
	sent, called := map[int32]int{}, -1
	for i, p := range frames {
		switch p.hop {
		case uplink:
			if before, again := sent[p.offset]; again && called < before {
				offsets = append(offsets, p.offset)
			}
			sent[p.offset] = i
		case merged:
			if !p.lost && !p.aeth.Syndrome.IsACK() {
				called = i
			}
		}
	}
	return offsets
}

// pulse knows for how long this process got no CPU. The box and the guests want the same CPUs, so
// what they do late behind such a pause says nothing of the box.
type pulse struct {
	late atomic.Int64 // the longest pause, ns
}

const beat = 10 * time.Millisecond

func newPulse() *pulse {
	p := &pulse{}
	go func() { // until the tests end
		for last := time.Now(); ; {
			time.Sleep(beat)
			now := time.Now()
			p.feel(now.Sub(last))
			last = now
		}
	}()
	return p
}

// feel takes the time between two beats.
func (p *pulse) feel(between time.Duration) {
	p.late.Store(max(p.late.Load(), int64(between-beat)))
}

// starved says that the machine was too busy to judge what may take the time, or "". A fifth of the
// time is much: whoever is judged waits for a CPU several times.
func (p *pulse) starved(may time.Duration) string {
	if late := time.Duration(p.late.Load()); late >= may/5 {
		return fmt.Sprintf("not judged, because the machine gave this process no CPU for %v", late.Round(time.Millisecond))
	}
	return ""
}

// witness knows at each frame what every host has, and what it may do.
type witness struct {
	notices
	waits  []waits // of each receiver
	enough int

	sent   int32         // the number of packets that the source has sent
	heard  int32         // the number of packets for which it has an ACK
	asks   bool          // the newest packet asks for an ACK
	last   int32         // the packet that it sent last
	since  time.Duration // when it sent that, or when an ACK allowed it to go on
	paused int32         // the last packet behind which it was silent for too long
	calls  []int32       // the packets to which excused NAKs call it back, as long as it is not there
}

// waits is what a receiver waits for.
type waits struct {
	next  int32 // the packet that it has to acknowledge next
	asked bool  // it has sent a NAK for this packet
	at    time.Duration
}

func (w *witness) see(p *passage) {
	if p.lost && p.hop != uplink {
		return
	}
	switch p.hop {
	case uplink:
		w.sends(p)
	case copied:
		if r := &w.waits[p.receiver]; r.asked && p.offset == r.next {
			w.repairs, r.asked = append(w.repairs, p.at-r.at), false
		}
	case response:
		w.answers(p)
	case merged:
		if !p.aeth.Syndrome.IsACK() {
			w.called(p)
		}
		if w.full() {
			w.since = p.at
		}
		w.heard = max(w.heard, p.acknowledged()+1)
	}
}

// sends takes a packet of the source.
func (w *witness) sends(p *passage) {
	if w.silent(p.at) {
		w.paused = w.last
	}
	switch called := slices.Index(w.calls, p.offset); {
	case p.offset >= w.sent:
		w.sent, w.asks = p.offset+1, p.ackReq
	case called >= 0:
		w.calls = slices.Delete(w.calls, called, called+1)
	case p.offset != w.last+1: // else it follows one that was sent again, too
		w.resent = append(w.resent, fmt.Sprintf("packet %d at %v", p.offset, p.at))
	}
	w.last, w.since = p.offset, p.at
}

// silent reports whether the source has been silent behind its newest packet for so long that the
// box may call it back, although it may send.
func (w *witness) silent(now time.Duration) bool {
	return w.last == w.sent-1 && !w.asks && !w.full() && now-w.since >= silence
}

// full reports whether the source has to wait for an ACK before its next packet.
func (w *witness) full() bool { return w.sent-w.heard >= window }

// answers takes an ACK or NAK of a receiver.
func (w *witness) answers(p *passage) {
	r := &w.waits[p.receiver]
	if next := p.acknowledged() + 1; next > r.next {
		r.next, r.asked = next, false
	}
	if p.offset == r.next && !r.asked {
		r.asked, r.at = true, p.at
	}
}

// called judges a NAK to the source.
func (w *witness) called(p *passage) {
	have := 0
	for _, r := range w.waits {
		if r.next > p.offset {
			have++
		}
	}
	newest := p.offset == w.paused || p.offset == w.last && w.silent(p.at)
	if again := slices.Contains(w.calls, p.offset); have >= w.enough && (newest || again) {
		w.excused++
		w.calls = append(w.calls, p.offset)
		return
	}
	w.naks = append(w.naks, fmt.Sprintf("%v for packet %d at %v", p.aeth.Syndrome, p.offset, p.at))
}
