package ctl

import (
	"fmt"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
)

// refusals are the receivers of a published group whose QPs have ended with a fatal NAK.
type refusals struct {
	in    mft.GroupID
	cause map[groupfile.ID]string
}

func (r *refusals) add(in mft.GroupID, id groupfile.ID, cause string) {
	if r.in != in || r.cause == nil {
		r.in, r.cause = in, map[groupfile.ID]string{}
	}
	r.cause[id] = cause
}

// trouble names a receiver that no longer gets all data, or that acknowledges nothing, and says
// why; "": there is none.
func (g *group) trouble() string {
	if g.file == nil || g.pace == nil {
		return ""
	}
	var l blamed
	if g.past.AnyOut() || g.pace.stalls.Any() || len(g.pace.refusals.cause) > 0 {
		for i := range g.file.Receivers {
			m := &g.file.Receivers[i]
			if why := g.troubleOf(m); why != "" {
				l.add(g.nameOf(m), why)
			}
		}
	}
	for _, link := range g.links {
		for i := range link.Later {
			if m := &link.Later[i]; m.Out && g.linkEnded(link) == nil {
				l.add(m.IP.String(), fmt.Sprintf("it takes no part any more; group show at box %s says why", link.Box))
			}
		}
	}
	return l.String()
}

// blamed is the first of the members that keep a group from being ready, and how many more there
// are.
type blamed struct {
	first string
	more  int
}

func (l *blamed) add(name, why string) {
	if l.first != "" {
		l.more++
		return
	}
	l.first = fmt.Sprintf("%s: %s", name, why)
}

func (l *blamed) String() string {
	if l.more == 0 {
		return l.first
	}
	return fmt.Sprintf("%s; and %d more", l.first, l.more)
}

func (g *group) troubleOf(m *groupfile.Member) string {
	id := m.ID()
	if r := g.ended(m); r != nil {
		return r.Why()
	}
	if cause, refused := g.pace.refusals.cause[id]; refused && g.pace.refusals.in == g.id {
		return cause
	}
	// With degraded-after 0, stalls are not looked at, so their end is not noticed.
	if g.file.DegradedAfter > 0 && g.pace.stalls.IsStalled(id) {
		return "it has stalled: it acknowledges nothing, and others are further"
	}
	return ""
}

// nameOf is the IP of a member, or the box at the other end of a link.
func (g *group) nameOf(m *groupfile.Member) string {
	for _, l := range g.links {
		if end := l.member(g.wanted); end.ID() == m.ID() {
			return "box " + l.Box
		}
	}
	return m.IP.String()
}

// addTrouble makes a group degraded of which a receiver is in trouble.
func (g *group) addTrouble(s *api.GroupSummary) {
	if s.State != api.Ready {
		return
	}
	if why := g.trouble(); why != "" {
		s.State, s.Reason, s.GoesOn = api.Degraded, why, true
	}
}
