package groups

import (
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Observe enters what the data path shows of a group, if it has the group.
func (s *Set) Observe(g *Group) {
	if g.Published == nil {
		return // its ID may be another group's
	}
	if state, ok := s.Switch.GroupState(g.ID); ok {
		s.Enter(g, &state)
	}
}

// Enter enters into the chronicle what the data path shows of the group: which receivers have
// joined, and since when, which are out, and who is the source. Nothing of that is taken from
// notes: they may be dropped, and one that comes late may be about a member that has left and
// joined again since.
func (s *Set) Enter(g *Group, state *dataplane.GroupState) {
	if source := groupfile.ID(state.Source); source != g.Source {
		g.Past.Switched = g.Past.Switched || source.IP.IsValid()
		g.Source = source
		s.Changed(g)
	}
	changed := false
	for i := range g.File.Receivers {
		m := &g.File.Receivers[i]
		id, at := m.ID(), g.Published.FindPath(m.IP, m.RemoteQPN)
		// The path of the source itself is out of the group while the source sends.
		if at < 0 || at >= len(state.Paths) || id == g.Source || g.Past.Ended(id) != nil {
			continue
		}
		switch p := &state.Paths[at]; {
		case p.Part == feedback.PartBehind:
			s.out(g, id, api.MemberBehind, chronicle.Behind, p.Acked.Next())
		case p.Part == feedback.PartGone:
			s.out(g, id, api.MemberEvicted, chronicle.Evicted, p.Acked.Next())
		case !p.Part.IsToCome() && g.Past.Joined(id, state.Since[at]):
			s.RenewRecord(g) // has the number of messages before the join; without it, Joined has noted the PSN
			since := g.Past.Since(id)
			s.PacketEvent(api.MemberJoined, g, id, since, "it takes part since the source's packet %d", since)
		default:
			continue
		}
		changed = true
	}
	for _, id := range g.Past.Open() {
		at := g.Published.FindPath(id.IP, id.RemoteQPN)
		if at >= 0 && at < len(state.Paths) && state.Paths[at].Part == feedback.PartActive && !state.Paths[at].Fresh {
			// So far a restart would not count this receiver for packets before it joined, because
			// the source might wait for them. Now the quorum counts it for all packets.
			g.Past.Complete(id)
			changed = true
		}
	}
	if changed {
		g.unkept = true
		s.Changed(g)
	}
}

// out records that a receiver no longer takes part. If it is a link, its box hears so at once. That
// box names those who were there, and this one those who are about to join: nothing happens to them
// there.
func (s *Set) out(g *Group, id groupfile.ID, kind api.EventKind, standing chronicle.Standing, psn roce.PSN) {
	g.Past.Out(id, standing, psn)
	s.PacketEvent(kind, g, id, psn, "%s", g.Advice(g.Past.Ended(id), id))
	l := LinkTo(g.Links, g.BoxBehind(id))
	if l == nil {
		return
	}
	l.Due = true
	for _, m := range l.Later {
		if m.IsUnknown() {
			s.PacketEvent(kind, g, m.ID, psn, "it was about to join: %s", g.OutBehind(l))
		}
	}
}

// RenewRecord enters the running turn into the chronicle, and reports whether it could: the data
// path has to know how far each receiver is.
func (s *Set) RenewRecord(g *Group) bool {
	turn, ok := s.Switch.RunningTurn(g.ID)
	if ok && g.Kept {
		g.Past.Renew(&turn)
	}
	return ok && g.Kept
}
