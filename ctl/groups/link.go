package groups

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// Link is a link of a group to a neighbour that carries the group to the members behind it. To this
// box, the neighbour is one receiver. The links of a group change only together with the group; a
// request works on a copy.
type Link struct {
	Box     string         `json:"box"`
	Members []groupfile.ID `json:"members"` // those behind the neighbour
	// Later are the members that joined while the group was running, or came from another box.
	Later  []Later     `json:"later,omitempty"`
	Weight int         `json:"weight"` // the receivers that a quorum counts; it never grows
	Local  api.LinkEnd `json:"local"`
	First  uint32      `json:"first,omitempty"` // see FirstQPN
	Remote api.LinkEnd `json:"remote"`
	// Relays has each member behind the link with its QPN on the link, if the neighbour passes
	// frames on. nil: it merges. Which of both a link does is so for its whole life.
	Relays  []Relayed `json:"relays,omitempty"`
	Version uint64    `json:"version"`
	Begun   bool      `json:"begun"` // see api.Branch

	Absent  []api.Absent `json:"-"` // the members behind the link that the group waits for
	Problem string       `json:"-"` // why the neighbour could not be asked, or refuses; "" if the branch is set up
	Asked   time.Time    `json:"-"` // the last request
	// Due says that the link is to be renewed at once: something has happened that the last request
	// may not say, or its answer not tell, because that request may still be under way.
	Due bool `json:"-"`
}

// Relayed is a member whose frames the box behind a link passes on. To this box the member is a
// receiver at the link's other end, and QPN is its queue pair there and its peer here.
type Relayed struct {
	groupfile.ID
	QPN roce.QPN `json:"qpn"`
	// Shares: the box behind maps copies for several members to this one too. That is so for those
	// with whom the link begins, and for the packets of the first turn: the PSNs of their files go
	// together.
	Shares bool `json:"shares,omitempty"`
}

// Passes reports whether the box behind the link passes frames on, and does not merge.
func (l *Link) Passes() bool { return l.Relays != nil }

// relayOf returns a member behind the link as it is named there; its QPN is 0 if it is none.
func (l *Link) relayOf(id groupfile.ID) Relayed {
	for _, r := range l.Relays {
		if r.ID == id {
			return r
		}
	}
	return Relayed{}
}

// EndOf returns the ID by which this box's part of the group has a member behind the link: that of
// the link, or of its own if the neighbour passes frames on.
func (l *Link) EndOf(f *groupfile.File, id groupfile.ID) groupfile.ID {
	if l.Passes() {
		return groupfile.ID{IP: AddrOf(l.Remote.IP), RemoteQPN: l.relayOf(id).QPN}
	}
	m := l.Member(f)
	return m.ID()
}

// ends returns what takes the place of the members behind the link.
func (l *Link) ends(f *groupfile.File) (list []groupfile.Member) {
	if !l.Passes() {
		return []groupfile.Member{l.Member(f)}
	}
	for _, m := range f.Receivers {
		if qpn := l.relayOf(m.ID()).QPN; qpn != 0 {
			m.IP, m.QPN, m.RemoteIP, m.RemoteQPN = AddrOf(l.Remote.IP), qpn, AddrOf(l.Local.IP), qpn
			m.Via, m.Confirm, m.Relayed = "", false, true
			list = append(list, m)
		}
	}
	return list
}

// Branch says for which upper box this box carries a group. The upper box's end of the link is the
// group's first source.
type Branch struct {
	Upper   string        `json:"upper"`
	Root    string        `json:"root"`
	Epoch   uint64        `json:"epoch"`
	Claim   int64         `json:"claim,omitempty"` // see api.Branch
	Visited []string      `json:"visited"`
	Version uint64        `json:"version"`
	Lease   time.Duration `json:"lease"`
	Link    api.LinkEnd   `json:"link"`            // the upper box's end
	First   uint32        `json:"first,omitempty"` // see api.Branch
	Own     api.LinkEnd   `json:"own"`
	Service bool          `json:"service,omitempty"` // see api.Branch.OfService

	Above   string    `json:"-"` // why the box above does not carry the group at present, or ""
	Expires time.Time `json:"-"` // when the branch ends, unless it is renewed
	Sent    roce.PSN  `json:"-"` // the highest PSN forwarded when the lease was looked at last
	Packets uint64    `json:"-"` // the packets passed on then
}

// FirstQPN returns the QPN that Local had when the link was new: see api.Branch.
func (l *Link) FirstQPN() uint32 { return cmp.Or(l.First, l.Local.QPN) }

// IsTold reports whether the box behind the link has answered the last request.
func (l *Link) IsTold() bool { return !l.Asked.IsZero() && l.Problem == "" }

// IsBy reports whether a request of an upper box is about the link of the branch. The link may have
// another queue pair meanwhile; its first one identifies it.
func (b *Branch) IsBy(asked *api.Branch) bool {
	return b.Link.QPN == asked.Link.QPN || cmp.Or(b.First, b.Link.QPN) == asked.First
}

// LinkOf returns the link to the box that a member is behind, or nil.
func LinkOf(links []*Link, id groupfile.ID) *Link {
	for _, l := range links {
		if slices.Contains(l.Members, id) {
			return l
		}
	}
	return nil
}

// LinkTo returns the link to a box, or nil.
func LinkTo(links []*Link, box string) *Link {
	if at := slices.IndexFunc(links, func(l *Link) bool { return l.Box == box }); at >= 0 {
		return links[at]
	}
	return nil
}

// MaxAbsent bounds the list of those that a box waits for: one is enough to say why a group waits.
const MaxAbsent = 16

// hasConfirmed reports whether the program of a member behind the link has said at a box there that
// its QP is ready. It is not known while a box there lists itself and no members, because it cannot
// carry the group or does not answer, or while the list is full.
func (l *Link) hasConfirmed(id groupfile.ID) bool {
	return l.IsTold() && len(l.Absent) < MaxAbsent && !slices.ContainsFunc(l.Absent, func(a api.Absent) bool {
		return a.Member == "" || a.Member == id.IP.String()
	})
}

func absentText(a api.Absent) string { return AbsentName(a) + ": " + a.Reason }

// AbsentName names a member or a box that a group waits for.
func AbsentName(a api.Absent) string {
	if a.Member == "" {
		return "box " + a.Box
	}
	return fmt.Sprintf("%s at box %s", a.Member, a.Box)
}

// AddrOf parses an address that another box has sent, which has been checked.
func AddrOf(text string) netip.Addr {
	addr, _ := netip.ParseAddr(text) // zero where it cannot be read: both boxes check what the other one sends
	return addr
}

// IsBoth reports whether a member may become the source.
func IsBoth(m groupfile.Member) bool { return m.Role == groupfile.Both }

// NextVersion returns a version that is higher than last, and higher than those of an earlier group
// of the same name.
func NextVersion(last uint64, now time.Time) uint64 { return max(last+1, uint64(now.UnixMicro())) }

// Member returns the neighbour's end of the link as a member of the group. It may become the source
// if a member behind it may.
func (l *Link) Member(f *groupfile.File) groupfile.Member {
	m := groupfile.Member{
		IP: AddrOf(l.Remote.IP), QPN: roce.QPN(l.Remote.QPN), FirstPSN: roce.PSN(l.Local.PSN),
		RemoteIP: AddrOf(l.Local.IP), RemoteQPN: roce.QPN(l.Local.QPN), Behind: uint16(l.Weight),
		Regions: groupfile.SameRegions(f.Memory), Line: f.Lines["members"],
	}
	if slices.ContainsFunc(l.MembersIn(f), IsBoth) {
		m.Role, m.SendPSN = groupfile.Both, roce.PSN(l.Remote.PSN)
	}
	return m
}

// MembersIn returns the members of a file that are behind the link, as the box behind it is told of
// them: via names a neighbour of this box.
func (l *Link) MembersIn(f *groupfile.File) (list []groupfile.Member) {
	for _, m := range f.Receivers {
		if slices.Contains(l.Members, m.ID()) {
			relay := l.relayOf(m.ID())
			m.Via, m.RelayQPN, m.RelayShares = "", relay.QPN, relay.Shares
			list = append(list, m)
		}
	}
	return list
}

// State returns how the branch behind the link stands, and why.
func (l *Link) State() (state, reason string) {
	switch {
	case l.Problem != "":
		return api.Degraded, l.Problem
	case len(l.Absent) > 0:
		return api.Waiting, absentText(l.Absent[0])
	}
	return api.Ready, ""
}
