package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
)

// Sort puts groups in the order in which they are listed.
func Sort(list []api.GroupSummary) {
	slices.SortFunc(list, func(a, b api.GroupSummary) int {
		return cmp.Or(cmp.Compare(rankOf(&a), rankOf(&b)), strings.Compare(a.Name, b.Name))
	})
}

// rankOf orders groups by who made them: those of operators are first, and those that nobody has
// confirmed are last.
func rankOf(s *api.GroupSummary) int {
	switch {
	case s.Unconfirmed:
		return 2
	case s.By != "":
		return 1
	}
	return 0
}

// Summary returns in which state a group is, and why. No other place decides that.
func Summary(g *groups.Version) api.GroupSummary {
	s := api.GroupSummary{Name: g.Name, State: api.Ready, WaitingCount: g.Waiting(), By: madeBy(g)}
	switch {
	case g.Problem != "":
		s.State, s.Reason = api.Failed, g.Problem
	case s.WaitingCount > 0:
		s.State, s.Reason = api.Waiting, waitsBecause(g)
	}
	for _, l := range g.Links {
		if state, reason := l.State(); g.Problem == "" && state != api.Ready && s.State != api.Degraded {
			s.State, s.Reason = state, reason
		}
	}
	if g.Branch != nil && g.Branch.Above != "" && g.Problem == "" {
		s.State, s.Reason = api.Degraded, fmt.Sprintf("box %s, from which its data comes: %s", g.Branch.Upper, g.Branch.Above)
	}
	if why := cmp.Or(g.Away, g.TreeProblem); why != "" && g.Problem == "" {
		s.State, s.Reason = api.Degraded, why
	}
	s.ClearToSend = s.State == api.Ready
	if s.State != api.Failed && s.State != api.Degraded && g.Found.Degraded {
		s.State, s.Reason = api.Degraded, SlowBecause(g)
	}
	addTrouble(g, &s)
	if f := g.Wanted; f != nil {
		s.IP, s.QPN, s.Addressing = f.IP.String(), uint32(f.QPN), f.Addressing.String()
		s.MemberCount = len(f.Members())
		s.Unconfirmed = s.By == api.ByHosts && neverConfirmed(g)
	}
	return s
}

// madeBy says who made a group: "" for an operator.
func madeBy(g *groups.Version) string {
	switch {
	case g.OfService():
		return api.ByService
	case g.Wanted != nil && g.Wanted.Hosts == groupfile.HostsEnd:
		return api.ByHosts
	}
	return ""
}

// neverConfirmed reports whether a receiver with which the group began has not confirmed. One that
// has joined later does not count: the others have confirmed.
func neverConfirmed(g *groups.Version) bool {
	return slices.ContainsFunc(g.Unconfirmed(), func(id groupfile.ID) bool { return g.Past.Standing(id) == "" })
}

// waitsBecause names the first member that the group waits for, and says why.
func waitsBecause(g *groups.Version) string {
	var l Blamed
	for leg := range g.Plan.Members() {
		if waits, why := g.WaitsFor(leg); waits {
			l.Add(g.NameOf(leg.Member), why)
		}
	}
	return l.String()
}

// SlowBecause says why a group hardly gets on: the cause, if it is known, and else who is the last.
func SlowBecause(g *groups.Version) string {
	switch _, known := HeldUpBy(g); {
	case known != "":
		return known + "; " + g.Found.Seen
	case g.Found.DeadLegs != "":
		return g.Found.DeadLegs + "; " + g.Found.Seen
	case g.Found.Last != "":
		return g.Found.Seen + "; " + g.Found.Last
	}
	return g.Found.Seen
}

// Blamed is the first of the members that keep a group from being ready, and how many more there
// are.
type Blamed struct {
	first string
	more  int
}

// Add adds a member behind the others, and why it keeps the group from being ready.
func (l *Blamed) Add(name, why string) { l.AddAll(Blamed{first: fmt.Sprintf("%s: %s", name, why)}) }

// AddAll adds the members of another list behind those of this one.
func (l *Blamed) AddAll(other Blamed) {
	switch {
	case other.first == "":
	case l.first == "":
		*l = other
	default:
		l.more += 1 + other.more
	}
}

// String names the first one, and how many more there are; "": there is none.
func (l *Blamed) String() string {
	if l.more == 0 {
		return l.first
	}
	return fmt.Sprintf("%s; and %d more", l.first, l.more)
}
