package groups

import (
	"fmt"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// AddEvent adds an event once readers can see what it tells of: a program that hears of it may ask
// at once.
func (s *Set) AddEvent(e api.Event) { s.changes.events = append(s.changes.events, e) }

// MemberEvent is Tell for an event that is about a member.
func (s *Set) MemberEvent(kind api.EventKind, g *Group, id groupfile.ID, format string, args ...any) {
	s.AddEvent(memberEvent(kind, g, id, fmt.Sprintf(format, args...)))
}

// PacketEvent is MemberEvent for an event that is about a packet of the source.
func (s *Set) PacketEvent(kind api.EventKind, g *Group, id groupfile.ID, psn roce.PSN, format string, args ...any) {
	e := memberEvent(kind, g, id, fmt.Sprintf(format, args...))
	e.PSN = new(uint32(psn))
	s.AddEvent(e)
}

func memberEvent(kind api.EventKind, g *Group, id groupfile.ID, cause string) api.Event {
	_, id = g.relayed(id)
	return api.Event{Kind: kind, Group: g.Name, Member: id.IP.String(), RemoteQPN: uint32(id.RemoteQPN), Cause: cause}
}

// updateEvents records that a group is about to get the members of the file next. New members have
// an event when they join.
func (s *Set) updateEvents(g *Group, next *groupfile.File) {
	s.AddEvent(api.Event{Kind: api.GroupUpdated, Group: g.Name, Cause: fmt.Sprintf("it has %d members, and had %d",
		len(next.Members()), len(g.Wanted.Members()))})
	cause := "the group was updated without it"
	if g.OfService() { // nobody updates the group of a connection
		cause = "it has disconnected"
	}
	for i := range g.Wanted.Receivers {
		if id := g.Wanted.Receivers[i].ID(); next.Receiver(id) < 0 {
			s.MemberEvent(api.MemberLeft, g, id, "%s", cause)
		}
	}
}
