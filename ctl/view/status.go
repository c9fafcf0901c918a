package view

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/refused"
	build "github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/dataplane"
)

// Box is what the status of a box is made of.
type Box struct {
	Started     time.Time
	Workers     int   // forwarding threads
	Stuck       error // why a forwarding thread counts as stuck; nil: none does
	StoreAway   error // why etcd cannot be relied on; nil: it answers, or the box needs none
	Ports       ports.Set
	Groups      []*groups.Version
	BadGroupIPs map[string]string // those that no group of hosts can have, and why
	Strays      []Stray
	// Services are the problems of those at group IPs, and Notes what else is to be known of them.
	Services []api.Problem
	Notes    []string
}

// Status reports whether a box works. While a forwarding thread is stuck, what is known of the
// ports and groups may be old, so it is left out.
func Status(now time.Time, b *Box) api.Status {
	s := api.Status{
		Version: build.Build(), Started: b.Started.UTC().Truncate(time.Second), Uptime: int64(now.Sub(b.Started) / time.Second),
		Workers: b.Workers, Ready: true, Problems: []api.Problem{},
	}
	if b.Stuck != nil {
		addProblem(&s, api.Problem{Of: api.OfWorker, State: api.Stuck, Reason: b.Stuck.Error(), Blocks: true})
	} else {
		if b.StoreAway != nil { // the box may lack groups that it is to carry
			addProblem(&s, api.Problem{Of: api.OfStore, State: api.Away, Reason: StoreAwayText(b.StoreAway), Blocks: true})
		}
		addPortsAndGroups(&s, now, b)
	}
	s.Healthy = len(s.Problems) == 0
	return s
}

func addPortsAndGroups(s *api.Status, now time.Time, b *Box) {
	s.Ports = map[string]int{api.PortUp: 0, api.PortDown: 0, api.PortGone: 0, api.PortFailed: 0}
	s.Groups = map[string]int{api.Ready: 0, api.Waiting: 0, api.Degraded: 0, api.Failed: 0}
	addPorts(s, b.Ports)
	for _, ip := range slices.Sorted(maps.Keys(b.BadGroupIPs)) {
		addProblem(s, api.Problem{Of: api.OfHosts, Name: ip, State: api.Failed, Reason: b.BadGroupIPs[ip]})
	}
	var theirs []api.Problem // of groups that no operator made
	for _, g := range b.Groups {
		v := Summary(g)
		if v.Unconfirmed {
			s.Unconfirmed++
			continue
		}
		s.Groups[v.State]++
		p := api.Problem{Of: api.OfGroup, Name: v.Name, State: v.State, Reason: v.Reason, Blocks: !v.ClearToSend && v.By == ""}
		switch {
		case v.State == api.Ready:
		case v.By != "":
			theirs = append(theirs, p)
		default:
			addProblem(s, p)
		}
	}
	for _, p := range append(theirs, b.Services...) {
		addProblem(s, p)
	}
	s.Notes = append(s.Notes, b.Notes...)
	if s.Unconfirmed > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("groups that hosts have made and not confirmed yet: %d; rocast group ls shows them", s.Unconfirmed))
	}
	if note := silentEdges(b.Groups); note != "" {
		s.Notes = append(s.Notes, note)
	}
	if note := failingEdges(b.Groups); note != "" {
		s.Notes = append(s.Notes, note)
	}
	addStrays(s, now, b.Strays)
}

// failingEdges says which mappings edges cannot load, or "". The receivers get all their data by
// copies of their own.
func failingEdges(list []*groups.Version) string {
	var all []string
	for _, g := range list {
		for _, why := range g.Found.FailingEdges {
			all = append(all, "group "+g.Name+": "+why)
		}
	}
	if len(all) == 0 {
		return ""
	}
	text := slices.Min(all)
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more mappings fail", more)
	}
	return text
}

// silentEdges says which edges have stopped asking, or "". That is no problem of the box: whether
// shared copies arrive is seen of the receivers.
func silentEdges(list []*groups.Version) string {
	longest := map[netip.Addr]time.Duration{}
	for _, g := range list {
		for id, silent := range g.Found.SilentEdges {
			longest[id.IP] = max(longest[id.IP], silent)
		}
	}
	if len(longest) == 0 {
		return ""
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(longest)), netip.Addr.Compare)
	text := fmt.Sprintf("the edge at %v has not asked for %v", first, longest[first])
	if more := len(longest) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more edges are silent", more)
	}
	return text + "; what they map is used as long as shared copies arrive; rocast-edge status there says why"
}

func addPorts(s *api.Status, set ports.Set) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := set[name]
		s.Ports[string(p.State)]++
		if p.Fallback != "" {
			s.Notes = append(s.Notes, fmt.Sprintf("%s works in generic mode: %s", name, p.Fallback))
		}
		if p.State != dataplane.PortUp {
			reason := p.Reason
			if reason == "" {
				reason = "its link is down"
			}
			addProblem(s, api.Problem{Of: api.OfPort, Name: name, State: string(p.State), Reason: reason, Blocks: !p.State.Open()})
		}
	}
}

func addProblem(s *api.Status, p api.Problem) {
	s.Ready = s.Ready && !p.Blocks
	if len(s.Problems) == api.MaxProblems {
		s.More++
		return
	}
	s.Problems = append(s.Problems, p)
}

// StoreAwayText says what it means that etcd does not answer.
func StoreAwayText(why error) string {
	return fmt.Sprintf("etcd does not answer: %v; groups that run here run on, and changes are refused", why)
}

// Stray is a counter of frames that are refused and that no group counts, as readers see it.
type Stray struct {
	Name  string // of the counter
	Count refused.Rising
	OfBox bool   // the box is not set up for such frames; else a stranger sends them
	Says  string // with the last frame
}

// addStrays adds what the box is not set up for to the problems, and what strangers send to the
// notes: who is no member must not make the box look ill.
func addStrays(s *api.Status, now time.Time, list []Stray) {
	for i := range list {
		k := &list[i]
		switch {
		case !k.Count.Trouble(now, k.OfBox):
		case k.OfBox:
			addProblem(s, api.Problem{Of: api.OfBox, Name: k.Name, State: api.Degraded, Reason: k.Says})
		default:
			s.Notes = append(s.Notes, fmt.Sprintf("frames are refused (%s) %s", k.Name, k.Says))
		}
	}
}
