package dataplane

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// tap is one worker's part of a capture: a bounded ring of records. The worker puts, and the reader
// of the capture takes; neither waits for the other. A frame that finds the ring full is counted as
// lost.
//
// Records become visible only when the worker has sent everything that it had collected
// (Worker.flush). So a reader that sees a received frame sees all that was sent because of it.
type tap struct {
	want  CaptureConfig
	hosts []netip.Addr // of one group: the addresses that its members have as peer
	slots []tapped     // a power of two
	bytes []byte       // want.Snap for each slot

	next      uint32 // the worker's: records that it has put; free-running
	overflown uint64 // the worker's: frames that found the ring full
	head      atomic.Uint32
	lost      atomic.Uint64
	tail      atomic.Uint32 // written by the reader
}

// tapped is one record.
type tapped struct {
	at     feedback.Tick
	event  uint64
	group  mft.GroupID
	port   mft.PortID
	reason Reason
	fate   Fate
	path   *mft.Path // of LostNoHop: the frame does not say for whom the copy was
	length int
	icrc   uint32
	n      int // bytes that were kept
}

const (
	// tapBytes bounds the memory of one worker's ring.
	tapBytes = 4 << 20
	// tapSlotsMax bounds its records: more than a worker forwards between two reads.
	tapSlotsMax = 1 << 14
)

// tapRoom is how many records a tap of a capture has room for: a power of two.
func tapRoom(snap int) int {
	n := 1
	for n < tapSlotsMax && 2*n*snap <= tapBytes {
		n *= 2
	}
	return n
}

// newTap returns a tap with room for at least that many records, for the frames of g; nil: of all
// groups.
func newTap(c CaptureConfig, g *mft.Group, room int) *tap {
	n := 1
	for n < room {
		n *= 2
	}
	t := &tap{want: c, slots: make([]tapped, n), bytes: make([]byte, n*c.Snap)}
	if g != nil {
		for _, l := range g.Legs() {
			if !slices.Contains(t.hosts, l.Src) {
				t.hosts = append(t.hosts, l.Src)
			}
		}
	}
	return t
}

// captures reports whether the group is one of those that are captured.
func (t *tap) captures(id mft.GroupID) bool { return !t.want.One || id == t.want.Group }

// sampled chooses events, not records: what was sent because of a frame is captured with it. The
// events are multiplied with the golden ratio (Knuth vol. 3, 6.4), so that a pattern of frames that
// repeats is not always met at the same place.
func (t *tap) sampled(event uint64) bool {
	return t.want.Sample <= 1 || event*0x9E3779B97F4A7C15>>32 < 1<<32/uint64(t.want.Sample)
}

// wants reports whether a frame is to be captured. to is its destination, for a frame of no group.
func (t *tap) wants(kind CaptureKind, event uint64, id mft.GroupID, to netip.Addr) bool {
	return t.want.Kinds&kind != 0 && t.sampled(event) &&
		(t.captures(id) || id == mft.NoGroup && slices.Contains(t.hosts, to))
}

// put adds a record. The frame's bytes are those of fragments.
func (t *tap) put(r *tapped, fragments [][]byte) {
	if t.next-t.tail.Load() == uint32(len(t.slots)) {
		t.overflown++
		return
	}
	i := int(t.next) & (len(t.slots) - 1)
	r.n = 0
	for _, b := range fragments {
		r.n += copy(t.bytes[i*t.want.Snap+r.n:(i+1)*t.want.Snap], b)
	}
	t.slots[i] = *r
	t.next++
}

// publish makes everything that was put visible to the reader.
func (t *tap) publish() {
	t.lost.Store(t.overflown)
	t.head.Store(t.next)
}

// taps are the taps of one worker, one for each running capture.
type taps []*tap

// capture reports whether a capture wants the group's packets. The engine would carry them past the
// worker.
func (all taps) capture(id mft.GroupID) bool {
	return slices.ContainsFunc(all, func(t *tap) bool { return t.captures(id) })
}

// open adds a tap. Groups that it captures leave the engine.
func (w *Worker) open(t *tap) {
	w.core.taps = append(w.core.taps, t)
	for _, st := range w.core.engine.holders.groups {
		if st.fan.at.Armed && t.captures(st.group.ID) {
			w.core.surrender(w.now(), st, &w.out)
			w.flush()
			w.core.PutBack()
		}
	}
}

// close removes a tap.
func (w *Worker) close(t *tap) {
	w.core.taps = slices.DeleteFunc(w.core.taps, func(other *tap) bool { return other == t })
}

// The methods below are called only while there are taps.

// sawFrame tells the taps of a received frame. Its copies have not been written into it yet.
func (w *Worker) sawFrame(f *Frame, r Reason) {
	w.event++
	for i := len(w.out.Replies) - 1; i >= 0 && w.out.Replies[i].event == 0; i-- {
		w.out.Replies[i].event = w.event
	}
	kind := CaptureData
	switch {
	case r.Verdict() == Drop:
		kind = CaptureDrop
	case f.Kind != KindData:
		kind = CaptureFeedback
	}
	w.record(kind, &tapped{event: w.event, group: f.Group, port: f.Port, reason: r}, f.Bytes())
}

// sawSent tells the taps of the frames that a port was given, of which it sent the first n.
func (w *Worker) sawSent(port mft.PortID, out []Outgoing, n int) {
	for i := range out {
		if i >= n {
			out[i].fate = LostByPort
		}
		w.sawOutgoing(port, &out[i])
	}
}

// sawOutgoing tells the taps what became of a frame that was to be sent.
func (w *Worker) sawOutgoing(port mft.PortID, o *Outgoing) {
	f, kind := o.Frame, CaptureData
	switch o.fate {
	case SentCopy, SentRepair:
	case SentReply:
		kind = CaptureFeedback
	default:
		kind = CaptureDrop
	}
	fragments := f.Fragments
	fragments[0] = f.Buf[o.Start : f.Start+len(f.Fragments[0])]
	w.record(kind, &tapped{event: o.event, group: f.Group, port: port, fate: o.fate}, fragments[:f.FragmentCount])
}

// sawUnreachable tells the taps of a copy that has no next hop. It is never written: the record has
// the frame that it would be a copy of.
func (w *Worker) sawUnreachable(f *Frame, p *mft.Path) {
	r := tapped{event: w.event, group: f.Group, port: mft.NoPort, fate: LostNoHop, path: p}
	w.record(CaptureDrop, &r, f.Bytes())
}

func (w *Worker) record(kind CaptureKind, r *tapped, fragments [][]byte) {
	var v roce.View
	var to netip.Addr
	for _, b := range fragments {
		r.length += len(b)
	}
	if err := v.Decode(fragments[0], r.length); err == nil {
		r.icrc, to = v.StoredICRC(fragments), v.DstIP(fragments[0])
	} else if err == roce.ErrOpcode {
		to = v.DstIP(fragments[0])
	}
	r.at = w.polled
	r.event = r.event*uint64(len(w.peers)) + uint64(w.index) // no other worker's number
	for _, t := range w.core.taps {
		if t.wants(kind, r.event, r.group, to) {
			t.put(r, fragments)
		}
	}
}

// tapsPublish makes the records of an event visible: everything that the event caused was sent.
func (w *Worker) tapsPublish() {
	for _, t := range w.core.taps {
		t.publish()
	}
	w.event++
}
