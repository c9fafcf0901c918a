package ctl

import (
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// refusals are the receivers of a published group whose QPs have ended with a fatal NAK.
type refusals struct {
	in    mft.GroupID
	cause map[groupfile.ID]string
}

func (r *refusals) add(in mft.GroupID, id groupfile.ID, cause string) {
	next := map[groupfile.ID]string{}
	if r.in == in {
		maps.Copy(next, r.cause)
	}
	next[id] = cause
	r.in, r.cause = in, next
}

// trouble names a member that no longer gets all data or gets it late, that acknowledges nothing or
// does not answer, and says why; "": there is none.
func trouble(g *version) string {
	if g.file == nil {
		return ""
	}
	var known, seen blamed
	for leg := range g.plan.Members() {
		switch kind, why := troubleOf(g, leg); {
		case why == "":
		case isCause(kind):
			known.add(g.nameOf(leg.Member), why)
		default:
			seen.add(g.nameOf(leg.Member), why)
		}
	}
	for _, link := range g.links {
		for i := range link.Later {
			if m := &link.Later[i]; m.Out && g.linkEnded(link) == nil {
				known.add(m.IP.String(), fmt.Sprintf("it takes no part any more; group show at box %s says why", link.Box))
			}
		}
	}
	known.addAll(seen)
	return known.String()
}

// heldUpBy names the members that keep a published group from getting on for a reason that is
// known, and says which one is the first of them. Without such a member the text is "".
func heldUpBy(g *version) (first groupfile.ID, text string) {
	var l blamed
	for leg := range g.plan.Members() {
		if kind, why := troubleOf(g, leg); isCause(kind) && holdsUp(g, leg.Member) {
			if l.first == "" {
				first = leg.Member.ID()
			}
			l.add(g.nameOf(leg.Member), why)
		}
	}
	for _, link := range g.links {
		end := link.member(g.wanted)
		if !holdsUp(g, &end) {
			continue
		}
		for _, a := range link.absent {
			if l.first == "" {
				first = end.ID()
			}
			l.add(absentName(a), a.Reason)
		}
	}
	return first, l.String()
}

// holdsUp reports whether nothing gets on as long as the member acknowledges nothing, or sends
// nothing.
func holdsUp(g *version, m *groupfile.Member) bool {
	return g.isSource(m) || g.found.atFloor[m.ID()]
}

// isSource reports whether a member is the source at present.
func (g *version) isSource(m *groupfile.Member) bool {
	return m.ID() == g.source || g.source == (groupfile.ID{}) && m.Role == groupfile.Source
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
func sourceIsRefused(g *version) bool {
	for l := range g.plan.Members() {
		if g.isSource(l.Member) && framesRefused(g, l.Member) != "" {
			return true
		}
	}
	return false
}

// troubleOf says why a member gets no data, gets it late, acknowledges nothing or does not answer,
// in a word and in a sentence; "": it is in no trouble. A cause comes before what is only seen.
func troubleOf(g *version, l *plan.Leg) (kind, why string) {
	id := l.Member.ID()
	if r := g.ended(l.Member); r != nil {
		return string(r.Standing), r.Why()
	}
	if cause, refused := g.found.refusals.cause[id]; refused && g.found.refusals.in == g.id {
		return api.TroubleRefused, cause
	}
	if waits, why := g.waitsFor(l); waits && l.Waits() {
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
	if g.file.DegradedAfter > 0 && g.found.stalled[id] {
		return api.TroubleStalled, "it has stalled: it acknowledges nothing, and others are further"
	}
	if m := g.found.mending[id]; m.cause != "" {
		return m.kind, m.cause
	}
	return "", ""
}

// nameOf is the IP of a member, or the box at the other end of a link.
func (g *version) nameOf(m *groupfile.Member) string {
	if box := g.boxBehind(m.ID()); box != "" {
		return "box " + box
	}
	return m.IP.String()
}

// boxBehind is the box at the other end of a link, or "" for a member that is a host.
func (g *version) boxBehind(id groupfile.ID) string {
	for _, l := range g.links {
		if end := l.member(g.wanted); end.ID() == id {
			return l.Box
		}
	}
	return ""
}

// mending says since when a receiver gets its data by repair alone, or waits for the source. The
// zero mending is that of a receiver that gets new data directly.
type mending struct {
	repairing, unmended time.Time
	kind, cause         string // why the group is degraded because of it, or ""
}

// lookAtRepair records which receivers need repair, or what repair cannot give them, for longer
// than the time after.
func lookAtRepair(f *findings, now time.Time, paths []mft.Path, state []feedback.PathSnapshot, after time.Duration) {
	was := f.mending
	f.mending = nil
	for i := range paths {
		s := &state[i]
		if after == 0 || s.Part != feedback.PartActive || !s.Repairing && !s.Unmended {
			continue
		}
		id := groupfile.ID{IP: paths[i].Dst, RemoteQPN: paths[i].RemoteQPN}
		m := was[id]
		m.kind, m.cause = "", ""
		if lasts(&m.repairing, s.Repairing, now) >= after {
			m.kind, m.cause = api.TroubleRepairing, "it gets its data by repair alone: its link loses packets, or it is slow"
		}
		if lasts(&m.unmended, s.Unmended, now) >= after {
			m.kind, m.cause = api.TroubleUnmended, fmt.Sprintf("repair has fallen back on the source, which has to send packet %d again", s.Acked.Next())
		}
		if f.mending == nil {
			f.mending = map[groupfile.ID]mending{}
		}
		f.mending[id] = m
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
	s := summary(&g.version)
	is := isTroubled(&g.version, &s)
	if changed := is != g.pace.troubled || is && s.GoesOn != g.pace.goesOn; changed && (is || s.State == api.Ready) {
		c.tellTrouble(g, &s, "no member is in trouble any more")
	}
}

// isTroubled reports whether a group is degraded because of a member, and for no graver reason.
func isTroubled(g *version, s *api.GroupSummary) bool {
	return s.GoesOn || s.State == api.Degraded && s.Reason == trouble(g)
}

// tellTrouble tells that a group is degraded because of a member, or that it no longer is.
func (c *Controller) tellTrouble(g *group, s *api.GroupSummary, over string) {
	g.pace.troubled, g.pace.goesOn = isTroubled(&g.version, s), s.GoesOn
	e := api.Event{Kind: api.GroupRestored, Group: g.name, Cause: over, Goodput: g.found.goodput}
	switch fields := []zap.Field{zap.String("group", g.name), zap.String("reason", s.Reason)}; {
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
func addTrouble(g *version, s *api.GroupSummary) {
	if s.State != api.Ready {
		return
	}
	if why := trouble(g); why != "" {
		s.State, s.Reason, s.GoesOn = api.Degraded, why, !sourceIsRefused(g)
	}
}
