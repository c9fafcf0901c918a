package dataplane

import (
	"net/netip"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Outputs is what the core wants sent for one frame or several. The caller
// owns it and reuses it.
type Outputs struct {
	Copies  []Copy
	Replies []Reply
	Notes   []Note
}

// Reset empties the lists and keeps their room.
func (o *Outputs) Reset() {
	o.Copies, o.Replies, o.Notes = o.Copies[:0], o.Replies[:0], o.Notes[:0]
}

// Copy is the received frame as one path is to get it.
type Copy struct {
	Path *mft.Path
	PSN  roce.PSN
	RKey uint32 // RKey and VA are for packets that have a RETH
	VA   uint64
}

// Note is news about a member for the operator. A full list drops it; the
// counters remain.
type Note struct {
	Group     mft.GroupID
	Receiver  netip.Addr // or the new source
	RemoteQPN roce.QPN   // what its QP has for a peer: tells receivers on one host apart
	What      feedback.Note
	PSN       roce.PSN      // the source's
	Syndrome  roce.Syndrome // the fatal NAK that was the reason; 0: none
}
