package ctl

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// link is a link of a group to a neighbour that carries the group to the members behind it. To this
// box, the neighbour is one receiver. The links of a group change only together with the group; a
// request works on a copy.
type link struct {
	Box     string         `json:"box"`
	Members []groupfile.ID `json:"members"` // those behind the neighbour
	// Later are the members that joined while the group was running, or came from another box.
	Later   []later     `json:"later,omitempty"`
	Weight  int         `json:"weight"` // the receivers that a quorum counts, never more than when the link was made
	Local   api.LinkEnd `json:"local"`
	Remote  api.LinkEnd `json:"remote"`
	Version uint64      `json:"version"`
	Begun   bool        `json:"begun"` // see api.Branch

	absent  []api.Absent
	problem string    // why the neighbour could not be asked, or refuses; "" if the branch stands
	asked   time.Time // the last request
}

// branch says for which upper box this box carries a group. The upper box's end of the link is the
// group's first source.
type branch struct {
	Upper   string        `json:"upper"`
	Root    string        `json:"root"`
	Epoch   uint64        `json:"epoch"`
	Claim   int64         `json:"claim,omitempty"` // see api.Branch
	Visited []string      `json:"visited"`
	Version uint64        `json:"version"`
	Lease   time.Duration `json:"lease"`
	Link    api.LinkEnd   `json:"link"` // the upper box's end
	Own     api.LinkEnd   `json:"own"`

	above   string // why the box above does not carry the group at present, or ""
	expires time.Time
	sent    roce.PSN // the highest PSN forwarded when the lease was looked at last
}

// keptTree is the state of a group's tree as the state directory keeps it, besides the group file.
type keptTree struct {
	Epoch  uint64  `json:"epoch"`
	Branch *branch `json:"branch,omitempty"`
	Links  []*link `json:"links,omitempty"`
}

func (g *group) treeText() ([]byte, error) {
	if g.branch == nil && len(g.links) == 0 {
		return nil, nil
	}
	return json.MarshalIndent(keptTree{g.epoch, g.branch, g.links}, "", "  ")
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
	g.epoch, g.branch = k.Epoch, k.Branch
	if b := g.branch; b != nil {
		b.expires, b.sent = now.Add(b.Lease), roce.PSN(b.Link.PSN).Prev()
	}
	for _, l := range k.Links {
		// The daemon may have ended before it stored the last version that it sent.
		l.Version = nextVersion(l.Version, now)
	}
	g.setLinks(k.Links)
	return nil
}

// nextVersion returns a version that is higher than last, and higher than those of an earlier group
// of the same name.
func nextVersion(last uint64, now time.Time) uint64 { return max(last+1, uint64(now.UnixMicro())) }

// setLinks makes a group's own part of the tree: each member that is behind a link is replaced by
// the link.
func (g *version) setLinks(links []*link) {
	g.links, g.file = links, g.wanted
	if len(links) == 0 {
		return
	}
	file := *g.wanted
	file.Receivers = nil
	for _, m := range g.wanted.Receivers {
		if linkOf(links, m.ID()) == nil {
			file.Receivers = append(file.Receivers, m)
		}
	}
	for _, l := range links {
		file.Receivers = append(file.Receivers, l.member(g.wanted))
	}
	g.file = &file
}

// linkOf returns the link to the box that a member is behind, or nil.
func linkOf(links []*link, id groupfile.ID) *link {
	for _, l := range links {
		if slices.Contains(l.Members, id) {
			return l
		}
	}
	return nil
}

func linkTo(links []*link, box string) *link {
	if at := slices.IndexFunc(links, func(l *link) bool { return l.Box == box }); at >= 0 {
		return links[at]
	}
	return nil
}

// member returns the neighbour's end of the link as a member of the group. It may become the source
// if a member behind it may.
func (l *link) member(f *groupfile.File) groupfile.Member {
	m := groupfile.Member{
		IP: addrOf(l.Remote.IP), QPN: roce.QPN(l.Remote.QPN), FirstPSN: roce.PSN(l.Local.PSN),
		RemoteIP: addrOf(l.Local.IP), RemoteQPN: roce.QPN(l.Local.QPN), Behind: uint16(l.Weight),
		Regions: groupfile.SameRegions(f.Memory), Line: f.Lines["members"],
	}
	if slices.ContainsFunc(l.membersIn(f), isBoth) {
		m.Role, m.SendPSN = groupfile.Both, roce.PSN(l.Remote.PSN)
	}
	return m
}

func isBoth(m groupfile.Member) bool { return m.Role == groupfile.Both }

func addrOf(text string) netip.Addr {
	addr, _ := netip.ParseAddr(text) // both boxes check what the other one sends
	return addr
}

// membersIn returns the members of a file that are behind the link, as the box behind it is told of
// them: via names a neighbour of this box.
func (l *link) membersIn(f *groupfile.File) (list []groupfile.Member) {
	for _, m := range f.Receivers {
		if slices.Contains(l.Members, m.ID()) {
			m.Via = ""
			list = append(list, m)
		}
	}
	return list
}

// state returns how the branch behind the link stands, and why.
func (l *link) state() (state, reason string) {
	switch {
	case l.problem != "":
		return api.Degraded, l.problem
	case len(l.absent) > 0:
		return api.Waiting, absentText(l.absent[0])
	}
	return api.Ready, ""
}

func absentText(a api.Absent) string { return absentName(a) + ": " + a.Reason }

func absentName(a api.Absent) string {
	if a.Member == "" {
		return "box " + a.Box
	}
	return fmt.Sprintf("%s at box %s", a.Member, a.Box)
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
