package dataplane

import (
	"net/netip"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Outputs is what the core wants to be sent because of one frame or several. The caller owns it and
// reuses it.
type Outputs struct {
	Copies  []Copy
	Replies []Reply
	Notes   []Note
	Repairs []Repair
}

// Reset empties the lists and keeps their capacity.
func (o *Outputs) Reset() {
	o.Copies, o.Replies, o.Notes, o.Repairs = o.Copies[:0], o.Replies[:0], o.Notes[:0], o.Repairs[:0]
}

// another appends an empty copy and returns it. The caller fills it in there, which is faster than
// to copy a complete one.
func (o *Outputs) another() *Copy {
	o.Copies = append(o.Copies, Copy{})
	return &o.Copies[len(o.Copies)-1]
}

// reply appends r. If the last reply is an ACK for the same leg and r is an ACK of a later PSN, r
// replaces it: an ACK acknowledges everything below it too (docs/wire.md#aeth), and the source has
// one frame less to handle. An ACK that the merging sends twice stays two frames: one may be lost.
func (o *Outputs) reply(r Reply) {
	if n := len(o.Replies); n > 0 {
		last := &o.Replies[n-1]
		if last.Leg == r.Leg && last.isACK() && r.isACK() && r.PSN.After(last.PSN) {
			*last = r
			return
		}
	}
	o.Replies = append(o.Replies, r)
}

func (r *Reply) isACK() bool { return !r.CNP && !r.Question && r.AETH.Syndrome.IsACK() }

// Copy is the received frame as one path's receiver expects it. Where the core has handled several
// frames at once, it stands for the copies of all of them: see OfNext.
type Copy struct {
	Path     *mft.Path
	PSN      roce.PSN
	Retained bool // the frame is a retained one
	AckReq   bool // only with Retained: the receiver is asked for an answer, whatever the source asked
	First    bool // only with Retained: the receiver waits for it, and takes nothing behind it before
	Edit     *roce.Edit
}

// Repair is a copy of a retained frame. Copies of received frames that are still to be sent go
// first: the retained frame may be one of them. The frame stays as it is until Core.PutBack.
type Repair struct {
	Copy
	Frame *Frame
}

// Note is an event of a member, for control and the operator. When control takes none, notes are
// dropped: counters still count, and control asks for what it must know (ctl/watch/notes.go).
type Note struct {
	Group     mft.GroupID
	Receiver  netip.Addr // or the new source
	RemoteQPN roce.QPN   // what its QP has as peer; distinguishes receivers on one host
	What      feedback.Note
	PSN       roce.PSN      // the source's
	Syndrome  roce.Syndrome // the fatal NAK that caused it; 0: none
}
