package ctl

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// trouble names a member that no longer gets all data or gets it late, that acknowledges nothing or
// does not answer, and says why; "": there is none.
func trouble(g *groups.Version) string {
	if g.File == nil {
		return ""
	}
	var known, seen blamed
	for leg := range g.Plan.Members() {
		switch kind, why := troubleOf(g, leg); {
		case why == "":
		case isCause(kind):
			known.add(g.NameOf(leg.Member), why)
		default:
			seen.add(g.NameOf(leg.Member), why)
		}
	}
	for _, link := range g.Links {
		for i := range link.Later {
			if m := &link.Later[i]; m.Out && g.LinkEnded(link) == nil {
				known.add(m.IP.String(), fmt.Sprintf("it takes no part any more; group show at box %s says why", link.Box))
			}
		}
	}
	known.addAll(seen)
	return known.String()
}

// heldUpBy names the members that keep a published group from getting on for a reason that is
// known, and says which one is the first of them. Without such a member the text is "".
func heldUpBy(g *groups.Version) (first groupfile.ID, text string) {
	var l blamed
	for leg := range g.Plan.Members() {
		if kind, why := troubleOf(g, leg); isCause(kind) && holdsUp(g, leg.Member) {
			if l.first == "" {
				first = leg.Member.ID()
			}
			l.add(g.NameOf(leg.Member), why)
		}
	}
	for _, link := range g.Links {
		end := link.Member(g.Wanted)
		if !holdsUp(g, &end) {
			continue
		}
		for _, a := range link.Absent {
			if l.first == "" {
				first = end.ID()
			}
			l.add(groups.AbsentName(a), a.Reason)
		}
	}
	return first, l.String()
}

// holdsUp reports whether nothing gets on as long as the member acknowledges nothing, or sends
// nothing.
func holdsUp(g *groups.Version, m *groupfile.Member) bool {
	return g.IsSource(m) || g.Found.AtFloor[m.ID()]
}

// isCause reports whether a kind of trouble is the cause of what a member does not do. The other
// kinds are only what the box sees of a member, which may have its cause elsewhere.
func isCause(kind string) bool {
	switch kind {
	case "", api.TroubleStalled, api.TroubleRepairing, api.TroubleUnmended:
		return false
	}
	return true
}

// blamed is the first of the members that keep a group from being ready, and how many more there
// are.
type blamed struct {
	first string
	more  int
}

func (l *blamed) add(name, why string) { l.addAll(blamed{first: fmt.Sprintf("%s: %s", name, why)}) }

// addAll adds the members of another list behind those of this one.
func (l *blamed) addAll(other blamed) {
	switch {
	case other.first == "":
	case l.first == "":
		*l = other
	default:
		l.more += 1 + other.more
	}
}

func (l *blamed) String() string {
	if l.more == 0 {
		return l.first
	}
	return fmt.Sprintf("%s; and %d more", l.first, l.more)
}

// sourceIsRefused reports whether the source does not get on because its frames are refused. Then
// nobody gets anything.
func sourceIsRefused(g *groups.Version) bool {
	for l := range g.Plan.Members() {
		if g.IsSource(l.Member) && framesRefused(g, l.Member) != "" {
			return true
		}
	}
	return false
}

// troubleOf says why a member gets no data, gets it late, acknowledges nothing or does not answer,
// in a word and in a sentence; "": it is in no trouble. A cause comes before what is only seen.
func troubleOf(g *groups.Version, l *plan.Leg) (kind, why string) {
	id := l.Member.ID()
	if r := g.Ended(l.Member); r != nil {
		return string(r.Standing), r.Why()
	}
	if cause, refused := g.Found.Refusals.Cause[id]; refused && g.Found.Refusals.In == g.ID {
		return api.TroubleRefused, cause
	}
	if waits, why := g.WaitsFor(l); waits && l.Waits() {
		return api.TroubleUnreachable, why
	} else if waits {
		return api.TroubleUnconfirmed, why
	}
	if why := framesRefused(g, l.Member); why != "" {
		return api.TroubleFrames, why
	}
	if l.Hop.Silent {
		return api.TroubleNoAnswer, "its host does not answer when the box asks for its MAC"
	}
	// With degraded-after 0, stalls are not looked at, so their end is not noticed.
	if g.File.DegradedAfter > 0 && g.Found.Stalled[id] {
		return api.TroubleStalled, "it has stalled: it acknowledges nothing, and others are further"
	}
	if m := g.Found.Mending[id]; m.Cause != "" {
		return m.Kind, m.Cause
	}
	return "", ""
}

// lookAtRepair records which receivers need repair, or what repair cannot give them, for longer
// than the time after.
func lookAtRepair(f *groups.Findings, now time.Time, paths []mft.Path, state []feedback.PathSnapshot, after time.Duration) {
	was := f.Mending
	f.Mending = nil
	for i := range paths {
		s := &state[i]
		if after == 0 || s.Part != feedback.PartActive || !s.Repairing && !s.Unmended {
			continue
		}
		id := groupfile.ID{IP: paths[i].Dst, RemoteQPN: paths[i].RemoteQPN}
		m := was[id]
		m.Kind, m.Cause = "", ""
		if lasts(&m.Repairing, s.Repairing, now) >= after {
			m.Kind, m.Cause = api.TroubleRepairing, "it gets its data by repair alone: its link loses packets, or it is slow"
		}
		if lasts(&m.Unmended, s.Unmended, now) >= after {
			m.Kind, m.Cause = api.TroubleUnmended, fmt.Sprintf("repair has fallen back on the source, which has to send packet %d again", s.Acked.Next())
		}
		if f.Mending == nil {
			f.Mending = map[groupfile.ID]groups.Mending{}
		}
		f.Mending[id] = m
	}
}

// lasts returns for how long something is the case, since the first time that it was.
func lasts(since *time.Time, is bool, now time.Time) time.Duration {
	switch {
	case !is:
		*since = time.Time{}
		return 0
	case since.IsZero():
		*since = now
	}
	return now.Sub(*since)
}

// lookAtTrouble tells when a group begins and ceases to be degraded because of a member, unless it
// is for a graver reason.
func (c *Controller) lookAtTrouble(g *group) {
	s := summary(&g.Version)
	is := isTroubled(&g.Version, &s)
	if changed := is != g.pace.troubled || is && s.GoesOn != g.pace.goesOn; changed && (is || s.State == api.Ready) {
		c.tellTrouble(g, &s, "no member is in trouble any more")
	}
}

// isTroubled reports whether a group is degraded because of a member, and for no graver reason.
func isTroubled(g *groups.Version, s *api.GroupSummary) bool {
	return s.GoesOn || s.State == api.Degraded && s.Reason == trouble(g)
}

// tellTrouble tells that a group is degraded because of a member, or that it no longer is.
func (c *Controller) tellTrouble(g *group, s *api.GroupSummary, over string) {
	g.pace.troubled, g.pace.goesOn = isTroubled(&g.Version, s), s.GoesOn
	e := api.Event{Kind: api.GroupRestored, Group: g.Name, Cause: over, Goodput: g.Found.Goodput}
	switch fields := []zap.Field{zap.String("group", g.Name), zap.String("reason", s.Reason)}; {
	case s.GoesOn:
		e.Kind, e.Cause, e.GoesOn = api.GroupDegraded, s.Reason, true
		c.Log.Info("a group is degraded, and goes on", fields...)
	case g.pace.troubled:
		e.Kind, e.Cause = api.GroupDegraded, s.Reason
		c.Log.Warn("a group is degraded", fields...)
	}
	c.tell(e)
}

// addTrouble makes a group degraded of which a member is in trouble.
func addTrouble(g *groups.Version, s *api.GroupSummary) {
	if s.State != api.Ready {
		return
	}
	if why := trouble(g); why != "" {
		s.State, s.Reason, s.GoesOn = api.Degraded, why, !sourceIsRefused(g)
	}
}
