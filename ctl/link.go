package ctl

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// keptTree is the state of a group's tree as the state directory keeps it, besides the group file.
type keptTree struct {
	Epoch  uint64         `json:"epoch"`
	Branch *groups.Branch `json:"branch,omitempty"`
	Links  []*groups.Link `json:"links,omitempty"`
}

func (g *group) treeText() ([]byte, error) {
	if g.Branch == nil && len(g.Links) == 0 {
		return nil, nil
	}
	return json.MarshalIndent(keptTree{g.epoch, g.Branch, g.Links}, "", "  ")
}

// recallTree reads the state of a group's tree that the state directory has kept.
func (g *group) recallTree(text []byte, now time.Time) error {
	if text == nil {
		return nil
	}
	var k keptTree
	if err := json.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("the state that was kept of its links cannot be read (%w); remove the group and create it again", err)
	}
	g.epoch, g.Branch = k.Epoch, k.Branch
	if b := g.Branch; b != nil {
		b.Expires, b.Sent = now.Add(b.Lease), roce.PSN(b.Link.PSN).Prev()
	}
	for _, l := range k.Links {
		// The daemon may have ended before it stored the last version that it sent.
		l.Version = groups.NextVersion(l.Version, now)
	}
	g.SetLinks(k.Links)
	return nil
}

// below returns the file for the boxes behind this one.
//
// A quorum counts a box as the number of receivers behind it, all of them or none. So a box behind
// acknowledges what all its receivers have, and none of them may leave it on its own. A box behind
// also finds out that a receiver is silent before this box takes the whole link for silent.
func below(f *groupfile.File) *groupfile.File {
	next := *f
	p := &next.Policy
	if p.Ack != feedback.AckAll {
		p.Ack, p.OnFatal, p.Evict = feedback.AckAll, feedback.FatalFail, false
	}
	if p.SilentAfter > 0 {
		p.SilentAfter = max(feedback.MinSilentAfter, p.SilentAfter/2)
	}
	return &next
}

// newEnd returns an end of a link on this box. Its QPN is drawn, because it must differ from that
// of earlier links: frames of such a link may still be on their way.
func newEnd(ip netip.Addr, psn roce.PSN) api.LinkEnd {
	const first, count = 1 << 12, 1<<24 - 1<<12 - 1 // not the small numbers that users choose, nor the multicast QPN
	return api.LinkEnd{IP: ip.String(), QPN: first + rand.Uint32N(count), PSN: uint32(psn)}
}
