package watch

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/refused"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// FollowNotes receives the data path's notes about members until ctx is done, and retries failed
// groups every RetryEvery. The data path drops notes that are not received in time, so a burst of
// notes cannot cause a burst of log lines.
func (w *Watch) FollowNotes(ctx context.Context) error {
	again := time.NewTicker(groups.RetryEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-w.Switch.Notes():
			w.Groups.Lock()
			w.Hear(n)
			w.Groups.Unlock()
		case <-again.C:
			w.Groups.RetryFailed()
		}
	}
}

// Hear logs the given notes and all notes that are queued. Where a note says that a receiver has
// joined or left, or that the source has switched, Hear looks at the group, and stores what a
// restart needs, once for each group.
func (w *Watch) Hear(news ...dataplane.Note) {
	for range len(w.Switch.Notes()) {
		news = append(news, <-w.Switch.Notes())
	}
	look := map[*groups.Group]struct{}{}
	for _, n := range news {
		g := w.Groups.ByID(n.Group)
		w.logNote(g, n)
		if g == nil {
			continue
		}
		w.Groups.Changed(g)
		w.take(g, n)
		switch n.What {
		case feedback.NoteJoined, feedback.NoteEvicted, feedback.NoteBehind, feedback.NoteSource:
			look[g] = struct{}{}
		}
	}
	for g := range look {
		w.Groups.Observe(g)
		w.Groups.ShareAsNow(g)
	}
	for g := range look {
		w.keepUp(g)
	}
}

// take does what a note asks for, or records an event. A note that it leaves out only makes Hear
// look at the group.
func (w *Watch) take(g *groups.Group, n dataplane.Note) {
	id := groupfile.ID{IP: n.Receiver, RemoteQPN: n.RemoteQPN}
	switch n.What {
	case feedback.NoteWaits:
		w.takeTurn(g)
	case feedback.NoteSource:
		w.Groups.PacketEvent(api.SourceSwitched, g, id, n.PSN, "its packet %d was the first of its turn", n.PSN)
	case feedback.NoteFatal:
		advice := refused.Answered(n.Syndrome)
		if box := g.BoxBehind(id); box != "" {
			advice = fmt.Sprintf("rocast group show %s at box %s says whose QP it is", g.Name, box)
		}
		cause := fmt.Sprintf("it has answered the source's packet %d with %v, which ends its QP; %s", n.PSN, n.Syndrome, advice)
		g.Found.Refusals.Add(g.ID, id, cause)
		w.Groups.PacketEvent(api.MemberRefused, g, id, n.PSN, "%s", cause)
	case feedback.NoteSilent:
		if stalls := &w.paceOf(g).stalls; stalls.Mark(time.Now(), id, n.PSN.Prev()) {
			g.Found.Stalled = stalls.Stalled()
			w.stalled(g, id, g.File.Policy.SilentAfter)
		}
	case feedback.NoteRepairing:
		w.Groups.MemberEvent(api.MemberRepairing, g, id, "for a second it has got all its data by repair: its link loses packets, or it is slow")
	case feedback.NoteEdgeLost:
		w.Groups.MemberEvent(api.EdgeLost, g, id, "shared copies do not reach it, so it gets copies of its own; "+
			"rocast-edge status at %v says what arrives there, docs/edge.md what a switch needs", id.IP)
	case feedback.NoteEdgeWorks:
		w.Groups.MemberEvent(api.EdgeWorks, g, id, "shared copies reach it again")
	}
}

// logNote logs a note. g is nil if the group has been removed.
func (w *Watch) logNote(g *groups.Group, n dataplane.Note) {
	fields := append(fieldsOf(g, groupfile.ID{IP: n.Receiver, RemoteQPN: n.RemoteQPN}),
		zap.Stringer("event", n.What), zap.Uint32("psn", uint32(n.PSN)))
	if n.Syndrome != 0 {
		fields = append(fields, zap.Stringer("answer", n.Syndrome))
	}
	switch n.What {
	case feedback.NoteWaits: // NoteSource follows when its turn begins
	case feedback.NoteJoined, feedback.NoteSource, feedback.NoteEdgeWorks: // expected events
		w.Log.Info("member event", fields...)
	default:
		w.Log.Warn("member event", fields...)
	}
}

// fieldsOf names a member's QP in a line of the log. g is nil if the group has been removed.
func fieldsOf(g *groups.Group, id groupfile.ID) []zap.Field {
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
