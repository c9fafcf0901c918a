package groups

import (
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// Membership is since when a receiver takes part: the PSN of this box's source with which the
// receiver's QP expects the psn of its file. A receiver that moves to another box has to be sent
// PSNs that follow from it. The zero Membership is that of a receiver that is still joining.
type Membership struct {
	Since roce.PSN
	Known bool // Since is valid
	Out   bool // it takes no part any more
}

// Later says since when a receiver behind a link takes part, if not since the link's first packet.
type Later struct {
	groupfile.ID
	Since *roce.PSN `json:"since,omitempty"` // on the link, as in api.Later
	Out   bool      `json:"out,omitempty"`   // it takes no part any more
}

func laterIn(a api.Later) Later {
	m := Later{ID: groupfile.ID{IP: AddrOf(a.IP), RemoteQPN: roce.QPN(a.RemoteQPN)}, Out: a.Out}
	if a.Since != nil && *a.Since < 1<<24 && !a.Out {
		psn := roce.PSN(*a.Since)
		m.Since = &psn
	}
	return m
}

// MembershipsIn returns what an upper box states of receivers. Its PSNs on the link are those of
// this box's source.
func MembershipsIn(list []api.Later) map[groupfile.ID]Membership {
	all := map[groupfile.ID]Membership{}
	for _, a := range list {
		m := laterIn(a)
		p := Membership{Out: m.Out}
		if m.Since != nil {
			p.Since, p.Known = *m.Since, true
		}
		all[m.ID] = p
	}
	return all
}

// MembershipOf returns the membership of a receiver here or behind a link.
func (v *Version) MembershipOf(id groupfile.ID) Membership {
	l := LinkOf(v.Links, id)
	if l == nil {
		return v.OwnMembership(id)
	}
	if l.Passes() {
		return v.OwnMembership(l.EndOf(v.Wanted, id))
	}
	at := v.LinkMembership(l)
	if m := l.LaterOf(id); at.Known && m != nil {
		return m.membership(l, at)
	}
	return at // it is there as long as the link
}

// LinkMembership returns since when a link takes part: the PSN of the first packet on it.
func (v *Version) LinkMembership(l *Link) Membership {
	if l.Passes() {
		return v.Origin()
	}
	m := l.Member(v.Wanted)
	return v.OwnMembership(m.ID())
}

// OwnMembership returns the membership of a receiver or a link of this box.
func (v *Version) OwnMembership(id groupfile.ID) Membership {
	switch s := v.Past.Standing(id); {
	case s == "":
		return v.Origin()
	case s == chronicle.Joined:
		return Membership{Since: v.Past.Since(id), Known: true}
	default:
		return Membership{Out: s.IsOut()}
	}
}

// Origin is the membership of a receiver that takes part since the source's first packet.
func (v *Version) Origin() Membership {
	return Membership{Since: v.Wanted.Source.FirstPSN, Known: true}
}

// AnswerLater returns what the upper box hears about receivers in this box's part of the tree that
// have not taken part from the first packet on.
func (v *Version) AnswerLater() (list []api.Later) {
	if v.File.IsRelayed() {
		return nil // the box above knows of each by itself
	}
	add := func(id groupfile.ID, p Membership) {
		if p != v.Origin() {
			m := Later{ID: id, Out: p.Out}
			if p.Known {
				m.Since = &p.Since
			}
			list = append(list, m.Message())
		}
	}
	for i := range v.File.Receivers {
		if m := &v.File.Receivers[i]; !m.RemoteIP.IsValid() {
			add(m.ID(), v.OwnMembership(m.ID()))
		}
	}
	for _, l := range v.Links {
		if v.LinkMembership(l) != v.Origin() {
			for _, id := range l.Members {
				add(id, v.MembershipOf(id))
			}
			continue
		}
		for _, m := range l.Later {
			add(m.ID, v.MembershipOf(m.ID))
		}
	}
	return list
}

// Enter puts a receiver with this membership into the chronicle of a box that did not have it.
func (p Membership) Enter(past *chronicle.Chronicle, id groupfile.ID) {
	if p.Known {
		past.Came(id, p.Since)
	} else {
		past.LeaveOut(id, chronicle.Lost)
	}
}

// IsUnknown reports whether a receiver is still joining.
func (m Later) IsUnknown() bool { return m.Since == nil && !m.Out }

// Equal reports whether both say the same.
func (m Later) Equal(n Later) bool {
	return m.ID == n.ID && m.Out == n.Out && (m.Since == n.Since || m.Since != nil && n.Since != nil && *m.Since == *n.Since)
}

// membership returns the membership of a receiver behind link l, which takes part since at.
func (m Later) membership(l *Link, at Membership) Membership {
	if m.Since == nil {
		return Membership{Out: m.Out}
	}
	return Membership{Since: at.Since.Add(m.Since.Sub(roce.PSN(l.Local.PSN))), Known: true}
}

// LaterAt is the reverse of Later.membership.
func (l *Link) LaterAt(id groupfile.ID, p, at Membership) Later {
	m := Later{ID: id, Out: p.Out}
	if p.Known {
		psn := roce.PSN(l.Local.PSN).Add(p.Since.Sub(at.Since))
		m.Since = &psn
	}
	return m
}

// Message returns the form for requests and answers between boxes.
func (m Later) Message() api.Later {
	a := api.Later{MemberID: api.MemberID{IP: m.IP.String(), RemoteQPN: uint32(m.RemoteQPN)}, Out: m.Out}
	if m.Since != nil {
		psn := uint32(*m.Since)
		a.Since = &psn
	}
	return a
}

// LaterOf returns what is known of a member that joined later, or nil.
func (l *Link) LaterOf(id groupfile.ID) *Later {
	for i := range l.Later {
		if l.Later[i].ID == id {
			return &l.Later[i]
		}
	}
	return nil
}

// Hear enters what the box behind a link answers about its members.
func (l *Link) Hear(answer []api.Later) {
	next := make([]Later, 0, len(l.Later))
	heard := map[groupfile.ID]Later{}
	for _, a := range answer {
		m := laterIn(a)
		heard[m.ID] = m
	}
	for _, m := range l.Later {
		if h, is := heard[m.ID]; is {
			m = h
		}
		delete(heard, m.ID)
		next = append(next, m)
	}
	for _, id := range l.Members { // in order
		if m, is := heard[id]; is {
			next = append(next, m)
		}
	}
	l.Later = next
}
