package groups

import (
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// Place is since when a receiver takes part: the PSN of this box's source with which the receiver's
// QP expects the psn of its file. A receiver that moves to another box has to be sent PSNs that
// follow from it. The zero place is that of a receiver that is still joining.
type Place struct {
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

// PlacesIn returns the places that an upper box states. Its PSNs on the link are those of this
// box's source.
func PlacesIn(list []api.Later) map[groupfile.ID]Place {
	places := map[groupfile.ID]Place{}
	for _, a := range list {
		m := laterIn(a)
		p := Place{Out: m.Out}
		if m.Since != nil {
			p.Since, p.Known = *m.Since, true
		}
		places[m.ID] = p
	}
	return places
}

// PlaceOf returns the place of a receiver here or behind a link.
func (v *Version) PlaceOf(id groupfile.ID) Place {
	l := LinkOf(v.Links, id)
	if l == nil {
		return v.OwnPlace(id)
	}
	at := v.LinkPlace(l)
	if m := l.LaterOf(id); at.Known && m != nil {
		return m.place(l, at)
	}
	return at // it is there as long as the link
}

// LinkPlace returns the place of the first packet on a link.
func (v *Version) LinkPlace(l *Link) Place {
	m := l.Member(v.Wanted)
	return v.OwnPlace(m.ID())
}

// OwnPlace returns the place of a receiver or a link of this box.
func (v *Version) OwnPlace(id groupfile.ID) Place {
	switch s := v.Past.Standing(id); {
	case s == "":
		return v.Origin()
	case s == chronicle.Joined:
		return Place{Since: v.Past.Since(id), Known: true}
	default:
		return Place{Out: s.IsOut()}
	}
}

// Origin returns the place of a receiver that takes part since the source's first packet.
func (v *Version) Origin() Place { return Place{Since: v.Wanted.Source.FirstPSN, Known: true} }

// AnswerLater returns what the upper box hears about receivers in this box's part of the tree that
// have not taken part from the first packet on.
func (v *Version) AnswerLater() (list []api.Later) {
	add := func(id groupfile.ID, p Place) {
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
			add(m.ID(), v.OwnPlace(m.ID()))
		}
	}
	for _, l := range v.Links {
		if v.LinkPlace(l) != v.Origin() {
			for _, id := range l.Members {
				add(id, v.PlaceOf(id))
			}
			continue
		}
		for _, m := range l.Later {
			add(m.ID, v.PlaceOf(m.ID))
		}
	}
	return list
}

// Enter puts a receiver with this place into the chronicle of a box that did not have it.
func (p Place) Enter(past *chronicle.Chronicle, id groupfile.ID) {
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

// place returns the place of a receiver behind link l, whose first packet has place at.
func (m Later) place(l *Link, at Place) Place {
	if m.Since == nil {
		return Place{Out: m.Out}
	}
	return Place{Since: at.Since.Add(m.Since.Sub(roce.PSN(l.Local.PSN))), Known: true}
}

// LaterAt is the reverse of Later.place.
func (l *Link) LaterAt(id groupfile.ID, p, at Place) Later {
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
