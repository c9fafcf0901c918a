package view

import (
	"fmt"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/feedback"
)

// Trouble names a member that no longer gets all data or gets it late, that acknowledges nothing or
// does not answer, and says why; "": there is none.
func Trouble(g *groups.Version) string {
	if g.File == nil {
		return ""
	}
	var known, seen Blamed
	for leg := range g.Plan.Members() {
		switch kind, why := TroubleOf(g, leg); {
		case why == "":
		case IsCause(kind):
			known.Add(g.NameOf(leg.Member), why)
		default:
			seen.Add(g.NameOf(leg.Member), why)
		}
	}
	for _, link := range g.Links {
		for i := range link.Later {
			if m := &link.Later[i]; m.Out && g.LinkEnded(link) == nil {
				known.Add(m.IP.String(), fmt.Sprintf("it takes no part any more; group show at box %s says why", link.Box))
			}
		}
	}
	known.AddAll(seen)
	return known.String()
}

// HeldUpBy names the members that keep a published group from getting on for a reason that is
// known, and says which one is the first of them. Without such a member the text is "".
func HeldUpBy(g *groups.Version) (first groupfile.ID, text string) {
	var l Blamed
	for leg := range g.Plan.Members() {
		if kind, why := TroubleOf(g, leg); IsCause(kind) && holdsUp(g, leg.Member) {
			if l.first == "" {
				first = leg.Member.ID()
			}
			l.Add(g.NameOf(leg.Member), why)
		}
	}
	for _, link := range g.Links {
		end := link.Member(g.Wanted)
		if link.Passes() || !holdsUp(g, &end) {
			continue
		}
		for _, a := range link.Absent {
			if l.first == "" {
				first = end.ID()
			}
			l.Add(groups.AbsentName(a), a.Reason)
		}
	}
	return first, l.String()
}

// holdsUp reports whether nothing gets on as long as the member acknowledges nothing, or sends
// nothing.
func holdsUp(g *groups.Version, m *groupfile.Member) bool {
	return g.IsSource(m) || g.Found.AtFloor[m.ID()]
}

// IsCause reports whether a kind of trouble is the cause of what a member does not do. The other
// kinds are only what the box sees of a member, which may have its cause elsewhere.
func IsCause(kind string) bool {
	switch kind {
	case "", api.TroubleStalled, api.TroubleRepairing, api.TroubleUnmended:
		return false
	}
	return true
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

// TroubleOf says why a member gets no data, gets it late, acknowledges nothing or does not answer,
// in a word and in a sentence; "": it is in no trouble. A cause comes before what is only seen.
func TroubleOf(g *groups.Version, l *plan.Leg) (kind, why string) {
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
	if m := g.Found.Repairs[id]; m.Cause != "" {
		return m.Kind, m.Cause
	}
	return "", ""
}

// framesRefused says why the box refuses a member's frames, if the member does not get on because
// of that; else "". A source and a receiver may have the same ID.
func framesRefused(g *groups.Version, m *groupfile.Member) string {
	says, id := g.Found.Says, m.ID()
	if why := says[groups.Sender{ID: id, Answers: true}]; why != "" && m.Role != groupfile.Source {
		return why
	}
	if m.Role == groupfile.Receiver && id == g.File.Source.ID() {
		return ""
	}
	return says[groups.Sender{ID: id}]
}

// IsTroubled reports whether a group is degraded because of a member or a shared leg, and for no
// graver reason.
func IsTroubled(g *groups.Version, s *api.GroupSummary) bool {
	return s.GoesOn || s.State == api.Degraded && s.Reason == Trouble(g)
}

// addTrouble makes a group degraded of which a member is in trouble, or a shared leg.
func addTrouble(g *groups.Version, s *api.GroupSummary) {
	if s.State != api.Ready {
		return
	}
	if why := Trouble(g); why != "" {
		s.State, s.Reason, s.GoesOn = api.Degraded, why, !sourceIsRefused(g)
	} else if why := g.Found.DeadLegs; why != "" {
		s.State, s.Reason, s.GoesOn = api.Degraded, why, true
	}
}

// IsWaitedFor reports whether the source waits for a receiver that answers, or that has ended its
// QP.
func IsWaitedFor(p feedback.Part) bool { return p == feedback.PartActive || p == feedback.PartDead }
