package branches

import (
	"maps"
	"math/rand/v2"
	"net/netip"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// below returns a file as the boxes behind this one get it, with another policy.
//
// A quorum counts all receivers behind a box or none of them. So a box behind acknowledges only
// what all its receivers have, and it never goes on without one of them by its own decision. A box
// behind also has a shorter silent-after: it finds a silent receiver before this box takes the
// whole link for silent. It does not hear of the quorum, so its file names repair if the group must
// not be without.
func below(f *groupfile.File) *groupfile.File {
	next := *f
	p := &next.Policy
	if f.NeedsRepair() != "" {
		next.Lines = maps.Clone(f.Lines)
		next.Lines[feedback.KeyRepair] = f.Lines["name"]
	}
	if p.Ack != feedback.AckAll {
		p.Ack, p.OnFatal, p.Evict = feedback.AckAll, feedback.FatalFail, false
	}
	*p = p.Below()
	return &next
}

// passedOn returns a file as a box gets it that passes frames on: this box has the policy.
func passedOn(f *groupfile.File) *groupfile.File {
	next := *f
	next.Policy, next.Lines = feedback.Policy{}, maps.Clone(f.Lines)
	next.Lines[feedback.KeyRepair] = f.Lines["name"] // else a box takes the default
	return &next
}

// newEnd returns an end of a link on this box.
func newEnd(ip netip.Addr, psn roce.PSN) api.LinkEnd {
	return api.LinkEnd{IP: ip.String(), QPN: uint32(drawQPN()), PSN: uint32(psn)}
}

// drawQPN returns a QPN for a link of this box. It is random, because it must differ from the QPNs
// of earlier links, also of those before a restart: frames of such a link may still be on their
// way.
func drawQPN() roce.QPN {
	const first, count = 1 << 12, 1<<24 - 1<<12 - 1 // not the small numbers that users choose, nor the multicast QPN
	return roce.QPN(first + rand.Uint32N(count))
}
