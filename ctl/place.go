package ctl

import (
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// place is since when a receiver takes part: the PSN of this box's source with which the receiver's
// QP expects the psn of its file. A receiver that moves to another box has to be sent PSNs that
// follow from it. The zero place is that of a receiver that is still joining.
type place struct {
	since roce.PSN
	known bool
	out   bool // it takes no part any more
}

// placeOf returns the place of a receiver here or behind a link.
func (g *version) placeOf(id groupfile.ID) place {
	l := linkOf(g.links, id)
	if l == nil {
		return g.ownPlace(id)
	}
	at := g.linkPlace(l)
	if m := l.later(id); at.known && m != nil {
		return m.place(l, at)
	}
	return at // it is there as long as the link
}

// linkPlace returns the place of the first packet on a link.
func (g *version) linkPlace(l *link) place {
	m := l.member(g.wanted)
	return g.ownPlace(m.ID())
}

// ownPlace returns the place of a receiver or a link of this box.
func (g *version) ownPlace(id groupfile.ID) place {
	switch s := g.past.Standing(id); {
	case s == "":
		return g.origin()
	case s == chronicle.Joined:
		return place{since: g.past.Since(id), known: true}
	default:
		return place{out: s.IsOut()}
	}
}

// origin is the place of a receiver that takes part since the source's first packet.
func (g *version) origin() place { return place{since: g.wanted.Source.FirstPSN, known: true} }

// enter puts a receiver with this place into the chronicle of a box that did not have it.
func (p place) enter(past *chronicle.Chronicle, id groupfile.ID) {
	if p.known {
		past.Came(id, p.since)
	} else {
		past.LeaveOut(id, chronicle.Lost)
	}
}

// later says since when a receiver behind a link takes part, if not since the link's first packet.
type later struct {
	groupfile.ID
	Since *roce.PSN `json:"since,omitempty"` // on the link, as in api.Later
	Out   bool      `json:"out,omitempty"`
}

func (m later) isUnknown() bool { return m.Since == nil && !m.Out }

func (m later) equal(n later) bool {
	return m.ID == n.ID && m.Out == n.Out && (m.Since == n.Since || m.Since != nil && n.Since != nil && *m.Since == *n.Since)
}

// place returns the place of a receiver behind link l, whose first packet has place at.
func (m later) place(l *link, at place) place {
	if m.Since == nil {
		return place{out: m.Out}
	}
	return place{since: at.since.Add(m.Since.Sub(roce.PSN(l.Local.PSN))), known: true}
}

// laterAt is the reverse of later.place.
func (l *link) laterAt(id groupfile.ID, p, at place) later {
	m := later{ID: id, Out: p.out}
	if p.known {
		psn := roce.PSN(l.Local.PSN).Add(p.since.Sub(at.since))
		m.Since = &psn
	}
	return m
}

func (m later) message() api.Later {
	a := api.Later{MemberID: api.MemberID{IP: m.IP.String(), RemoteQPN: uint32(m.RemoteQPN)}, Out: m.Out}
	if m.Since != nil {
		psn := uint32(*m.Since)
		a.Since = &psn
	}
	return a
}

func laterIn(a api.Later) later {
	m := later{ID: groupfile.ID{IP: addrOf(a.IP), RemoteQPN: roce.QPN(a.RemoteQPN)}, Out: a.Out}
	if a.Since != nil && *a.Since < 1<<24 && !a.Out {
		psn := roce.PSN(*a.Since)
		m.Since = &psn
	}
	return m
}

// placesIn returns the places that an upper box states. Its PSNs on the link are those of this
// box's source.
func placesIn(list []api.Later) map[groupfile.ID]place {
	places := map[groupfile.ID]place{}
	for _, a := range list {
		m := laterIn(a)
		p := place{out: m.Out}
		if m.Since != nil {
			p.since, p.known = *m.Since, true
		}
		places[m.ID] = p
	}
	return places
}

// later returns what is known of a member that joined later, or nil.
func (l *link) later(id groupfile.ID) *later {
	for i := range l.Later {
		if l.Later[i].ID == id {
			return &l.Later[i]
		}
	}
	return nil
}

// hear takes what the box behind a link says of its members.
func (l *link) hear(answer []api.Later) {
	next := make([]later, 0, len(l.Later))
	heard := map[groupfile.ID]later{}
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

// answerLater says to the upper box what this box knows of the receivers in its part of the tree.
func (g *version) answerLater() (list []api.Later) {
	add := func(id groupfile.ID, p place) {
		if p != g.origin() {
			m := later{ID: id, Out: p.out}
			if p.known {
				m.Since = &p.since
			}
			list = append(list, m.message())
		}
	}
	for i := range g.file.Receivers {
		if m := &g.file.Receivers[i]; !m.RemoteIP.IsValid() {
			add(m.ID(), g.ownPlace(m.ID()))
		}
	}
	for _, l := range g.links {
		if g.linkPlace(l) != g.origin() {
			for _, id := range l.Members {
				add(id, g.placeOf(id))
			}
			continue
		}
		for _, m := range l.Later {
			add(m.ID, g.placeOf(m.ID))
		}
	}
	return list
}

// everywhere returns the chronicle that a box needs which takes the whole group over: with the
// receivers behind other boxes, which this box's own chronicle does not have. Such a box cannot
// take over a group whose source has switched: what it hears of the turns may be late.
func (g *group) everywhere() chronicle.Chronicle {
	all := g.past.Next(g.file, g.file)
	all.Switched, all.Turn = all.Switched || g.switches, nil
	for _, l := range g.links {
		for _, id := range l.Members {
			if p := g.placeOf(id); p != g.origin() {
				p.enter(&all, id)
			}
		}
	}
	return all
}
