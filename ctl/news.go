package ctl

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/refused"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// followNotes receives the data path's notes about members until ctx is done, and retries failed
// groups every retryEvery. The data path drops notes that are not received in time, so a burst of
// notes cannot cause a burst of log lines.
func (c *Controller) followNotes(ctx context.Context) error {
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-c.Switch.Notes():
			c.book.Lock()
			c.hear(n)
			c.book.Unlock()
		case <-again.C:
			c.retryFailed()
		}
	}
}

// hear logs the given notes and all notes that are queued. Where a note says that a receiver has
// joined or left, or that the source has switched, hear looks at the group, and stores what a
// restart needs, once for each group.
func (c *Controller) hear(news ...dataplane.Note) {
	for range len(c.Switch.Notes()) {
		news = append(news, <-c.Switch.Notes())
	}
	look := map[*group]struct{}{}
	for _, n := range news {
		g := c.byID(n.Group)
		c.logNote(g, n)
		if g == nil {
			continue
		}
		c.changed(g)
		c.take(g, n)
		switch n.What {
		case feedback.NoteJoined, feedback.NoteEvicted, feedback.NoteBehind, feedback.NoteSource:
			look[g] = struct{}{}
		}
	}
	for g := range look {
		c.observe(g)
	}
	for g := range look {
		c.keepUp(g)
	}
}

// take tells what a note says. The notes that it leaves out only make control look at the group.
func (c *Controller) take(g *group, n dataplane.Note) {
	id := groupfile.ID{IP: n.Receiver, RemoteQPN: n.RemoteQPN}
	switch n.What {
	case feedback.NoteWaits:
		c.takeTurn(g)
	case feedback.NoteSource:
		c.tellPacket(api.SourceSwitched, g, id, n.PSN, "its packet %d was the first of its turn", n.PSN)
	case feedback.NoteFatal:
		mend := refused.Answered(n.Syndrome)
		if box := g.BoxBehind(id); box != "" {
			mend = fmt.Sprintf("rocast group show %s at box %s says whose QP it is", g.Name, box)
		}
		cause := fmt.Sprintf("it has answered the source's packet %d with %v, which ends its QP; %s", n.PSN, n.Syndrome, mend)
		g.Found.Refusals.Add(g.ID, id, cause)
		c.tellPacket(api.MemberRefused, g, id, n.PSN, "%s", cause)
	case feedback.NoteSilent:
		if stalls := &c.paceOf(g).stalls; stalls.Mark(time.Now(), id, n.PSN.Prev()) {
			g.Found.Stalled = stalls.Stalled()
			c.stalled(g, id, g.File.Policy.SilentAfter)
		}
	case feedback.NoteRepairing:
		c.tellOf(api.MemberRepairing, g, id, "for a second it has got all its data by repair: its link loses packets, or it is slow")
	}
}

// observe enters what the data path shows of a group.
func (s *book) observe(g *group) {
	if state, ok := s.Switch.GroupState(g.ID); ok {
		s.enter(g, &state)
	}
}

// enter enters into the chronicle what the data path shows of the group: which receivers have
// joined, and since when, which are out, and who is the source. Nothing of that is taken from
// notes: they may be dropped, and one that comes late may be about a member that has left and
// joined again since.
func (s *book) enter(g *group, state *dataplane.GroupState) {
	if source := groupfile.ID(state.Source); source != g.Source {
		g.Past.Switched = g.Past.Switched || source.IP.IsValid()
		g.Source = source
		s.changed(g)
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
		case p.Part != feedback.PartJoining && g.Past.Joined(id, state.Since[at]):
			s.renewRecord(g) // which knows how many messages came before; else the record knows the PSN
			since := g.Past.Since(id)
			s.tellPacket(api.MemberJoined, g, id, since, "it takes part since the source's packet %d", since)
		default:
			continue
		}
		changed = true
	}
	for _, id := range g.Past.Open() {
		at := g.Published.FindPath(id.IP, id.RemoteQPN)
		if at >= 0 && at < len(state.Paths) && state.Paths[at].Part == feedback.PartActive && !state.Paths[at].Fresh {
			// A restart would not count it for the packets before it joined, because the source
			// may wait for these; the quorum counts everything of it now.
			g.Past.Settle(id)
			changed = true
		}
	}
	if changed {
		g.unkept = true
		s.changed(g)
	}
}

// out records that a receiver no longer takes part.
func (s *book) out(g *group, id groupfile.ID, kind api.EventKind, standing chronicle.Standing, psn roce.PSN) {
	g.Past.Out(id, standing, psn)
	s.tellPacket(kind, g, id, psn, "%s", g.Past.Ended(id).Mend())
}

// fieldsOf names a member's QP in a line of the log. g is nil if the group has been removed.
func (g *group) fieldsOf(id groupfile.ID) []zap.Field {
	name := ""
	if g != nil {
		name = g.Name
	}
	fields := []zap.Field{zap.String("group", name), zap.Stringer("member", id.IP), zap.Uint32("remoteQPN", uint32(id.RemoteQPN))}
	if g == nil {
		return fields
	}
	for l := range g.Plan.Members() {
		if l.Member.ID() == id {
			fields = append(fields, zap.Uint32("qpn", uint32(l.Member.QPN)), zap.String("port", l.Hop.PortName))
		}
	}
	return fields
}

// logNote logs a note. g is nil if the group has been removed.
func (c *Controller) logNote(g *group, n dataplane.Note) {
	fields := append(g.fieldsOf(groupfile.ID{IP: n.Receiver, RemoteQPN: n.RemoteQPN}),
		zap.Stringer("event", n.What), zap.Uint32("psn", uint32(n.PSN)))
	if n.Syndrome != 0 {
		fields = append(fields, zap.Stringer("answer", n.Syndrome))
	}
	switch n.What {
	case feedback.NoteWaits: // its turn is told when it begins
	case feedback.NoteJoined, feedback.NoteSource: // expected events
		c.Log.Info("member event", fields...)
	default:
		c.Log.Warn("member event", fields...)
	}
}

// groupByID returns nil if the group has been removed.
func (s *book) groupByID(id mft.GroupID) *group {
	for _, g := range s.groups {
		if g.Published != nil && g.ID == id {
			return g
		}
	}
	return nil
}
