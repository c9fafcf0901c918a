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
			c.mu.Lock()
			c.hear(n)
			c.mu.Unlock()
		case <-again.C:
			c.retryFailed()
		}
	}
}

// hear logs the given notes and all notes that are queued. It then stores the member state that a
// restart needs, once for each group.
func (c *Controller) hear(news ...dataplane.Note) {
	for range len(c.Switch.Notes()) {
		news = append(news, <-c.Switch.Notes())
	}
	changed := map[*group]struct{}{}
	for _, n := range news {
		g := c.groupByID(n.Group)
		c.logNote(g, n)
		if g == nil {
			continue
		}
		c.changed(g)
		if c.take(g, n) {
			changed[g] = struct{}{}
		}
	}
	c.show() // what the data path did stands, and the disk may take long
	for g := range changed {
		c.keepChronicle(g)
	}
}

// take applies a note to the group's chronicle and reports whether the chronicle changed.
func (c *Controller) take(g *group, n dataplane.Note) (changed bool) {
	id := groupfile.ID{IP: n.Receiver, RemoteQPN: n.RemoteQPN}
	switch n.What {
	case feedback.NoteWaits:
		c.takeTurn(g)
	case feedback.NoteSource:
		changed = !g.Past.Switched
		g.Past.Switched, g.Source = true, id
		c.packetEvent(api.SourceSwitched, g, id, n.PSN, "its packet %d was the first of its turn", n.PSN)
	case feedback.NoteJoined:
		if changed = g.Past.Joined(id, n.PSN); changed {
			c.lookAround(g)
			g.renew(c) // which knows how many messages came before; else the record knows the PSN
			c.packetEvent(api.MemberJoined, g, id, n.PSN, "it takes part since the source's packet %d", n.PSN)
		}
	case feedback.NoteFatal:
		mend := refused.Answered(n.Syndrome)
		if box := g.BoxBehind(id); box != "" {
			mend = fmt.Sprintf("rocast group show %s at box %s says whose QP it is", g.Name, box)
		}
		cause := fmt.Sprintf("it has answered the source's packet %d with %v, which ends its QP; %s", n.PSN, n.Syndrome, mend)
		g.Found.Refusals.Add(g.ID, id, cause)
		c.packetEvent(api.MemberRefused, g, id, n.PSN, "%s", cause)
	case feedback.NoteSilent:
		if g.pace.stalls.Mark(time.Now(), id, n.PSN.Prev()) {
			g.Found.Stalled = g.pace.stalls.Stalled()
			c.stalled(g, id, g.File.Policy.SilentAfter)
		}
	case feedback.NoteRepairing:
		c.memberEvent(api.MemberRepairing, g, id, "for a second it has got all its data by repair: its link loses packets, or it is slow")
	case feedback.NoteEvicted, feedback.NoteBehind:
		if g.File.Receiver(id) >= 0 {
			c.out(g, id, map[feedback.Note]chronicle.Standing{feedback.NoteEvicted: chronicle.Evicted, feedback.NoteBehind: chronicle.Behind}[n.What], n.PSN)
		}
		c.lookAround(g)
		changed = true
	}
	return changed
}

// settleJoins records of which receivers that have joined a quorum counts everything now, and
// reports whether there are any. A restart would not count them for the packets before they joined,
// because the source may wait for these.
func (g *group) settleJoins(state dataplane.GroupState) (settled bool) {
	for _, id := range g.Past.Open() {
		at := g.Published.FindPath(id.IP, id.RemoteQPN)
		if at >= 0 && at < len(state.Paths) && state.Paths[at].Part == feedback.PartActive && !state.Paths[at].Fresh {
			g.Past.Settle(id)
			settled = true
		}
	}
	return settled
}

// out records that a receiver no longer takes part.
func (c *Controller) out(g *group, id groupfile.ID, s chronicle.Standing, psn roce.PSN) {
	was := g.Past.Standing(id)
	g.Past.Out(id, s, psn)
	c.changed(g)
	if was == s {
		return // the same was found by lookAround before its note came
	}
	kind := api.MemberEvicted
	if s == chronicle.Behind {
		kind = api.MemberBehind
	}
	c.packetEvent(kind, g, id, psn, "%s", g.Past.Ended(id).Mend())
}

// lookAround asks the data path which receivers are out, because notes may be lost when many
// receivers leave at once. A member with role both is out of the receivers while it sends too. Of a
// group whose turns are not stored it is not known who sends, so there only its note says that it
// left.
func (c *Controller) lookAround(g *group) {
	state, _ := c.Switch.GroupState(g.ID)
	for i := range g.File.Receivers {
		m := &g.File.Receivers[i]
		id, path := m.ID(), g.Published.FindPath(m.IP, m.RemoteQPN)
		if path < 0 || path >= len(state.Paths) || g.Past.Standing(id).IsOut() {
			continue
		}
		switch p := state.Paths[path]; {
		case p.Part == feedback.PartBehind:
			c.out(g, id, chronicle.Behind, p.Acked.Next())
		case p.Part == feedback.PartGone && (m.Role == groupfile.Receiver || g.Kept && !g.IsSource(m)):
			c.out(g, id, chronicle.Evicted, p.Acked.Next())
		}
	}
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
func (c *Controller) groupByID(id mft.GroupID) *group {
	for _, g := range c.groups {
		if g.Published != nil && g.ID == id {
			return g
		}
	}
	return nil
}
