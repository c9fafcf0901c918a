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
}

// Reset empties the lists and keeps their capacity.
func (o *Outputs) Reset() {
	o.Copies, o.Replies, o.Notes = o.Copies[:0], o.Replies[:0], o.Notes[:0]
}

// Copy is the received frame as one path's receiver expects it.
type Copy struct {
	Path *mft.Path
	PSN  roce.PSN
	RKey uint32 // RKey and VA: of packets that have a RETH
	VA   uint64
}

// Note is an event of a member, for the operator. When the list is full, the note is dropped; the
// counters still count.
type Note struct {
	Group     mft.GroupID
	Receiver  netip.Addr // or the new source
	RemoteQPN roce.QPN   // what its QP has as peer; distinguishes receivers on one host
	What      feedback.Note
	PSN       roce.PSN      // the source's
	Syndrome  roce.Syndrome // the fatal NAK that caused it; 0: none
}
