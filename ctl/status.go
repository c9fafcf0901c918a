package ctl

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/ports"
	build "github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/dataplane"
)

// stuckAfter is how long a batch may take before its forwarding thread counts as stuck. A batch
// takes microseconds. The unit's watchdog kills the daemon after 10 s.
const stuckAfter = 5 * time.Second

// pulse is when Beat began that has not returned.
type pulse struct {
	mu    sync.Mutex
	began time.Time // zero: no Beat is under way
}

func (p *pulse) set(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = began
}

// missing returns for how long a forwarding thread has been stuck at the time now. 0: none is.
func (p *pulse) missing(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() || now.Sub(p.began) <= stuckAfter {
		return 0
	}
	return now.Sub(p.began)
}

// Beat returns when every forwarding thread has ended the batch that it was busy with. Alive and
// Status judge the threads by it, so it must be called every few seconds, from one goroutine.
func (c *Controller) Beat() {
	c.pulse.set(time.Now())
	c.Switch.EndBatches()
	c.pulse.set(time.Time{})
}

// Alive returns an error if a forwarding thread is stuck. It waits for nothing.
func (c *Controller) Alive() error { return c.pulse.alive(time.Now()) }

func (p *pulse) alive(now time.Time) error {
	if stuck := p.missing(now); stuck > 0 {
		return fmt.Errorf("a forwarding thread has not ended its batch for %v", stuck.Truncate(time.Second))
	}
	return nil
}

// Status reports whether the box works. It asks no worker, and waits for nothing. If a worker is
// stuck, changes of groups may wait for that worker, so what readers see of the ports and groups
// may be old; these are left out then.
func (c *Controller) Status() api.Status { return c.statusAt(time.Now()) }

func (c *Controller) statusAt(now time.Time) api.Status {
	b := everything{started: c.started, workers: c.Workers, stuck: c.pulse.alive(now), ports: *c.seenPorts.Load(), groups: c.allSeen(), strays: *c.seenStrays.Load()}
	if c.Desired != nil {
		b.storeAway = c.Desired.Away()
	}
	if bad := c.badGroupIPs.Load(); bad != nil {
		b.badGroupIPs = *bad
	}
	return judge(now, &b)
}

// everything is what the status of a box is made of.
type everything struct {
	started     time.Time
	workers     int   // forwarding threads
	stuck       error // why a forwarding thread counts as stuck; nil: none does
	storeAway   error // why etcd cannot be relied on; nil: it answers, or the box needs none
	ports       ports.Set
	groups      []*groups.Version
	badGroupIPs map[string]string // those that no group of hosts can have, and why
	strays      []seenStray
}

// judge reports whether a box works. While a forwarding thread is stuck, what is known of the ports
// and groups may be old, so it is left out.
func judge(now time.Time, b *everything) api.Status {
	s := api.Status{
		Version: build.Build(), Started: b.started.UTC().Truncate(time.Second), Uptime: int64(now.Sub(b.started) / time.Second),
		Workers: b.workers, Ready: true, Problems: []api.Problem{},
	}
	if b.stuck != nil {
		addProblem(&s, api.Problem{Of: api.OfWorker, State: api.Stuck, Reason: b.stuck.Error(), Blocks: true})
	} else {
		if b.storeAway != nil { // the box may lack groups that it is to carry
			addProblem(&s, api.Problem{Of: api.OfStore, State: api.Away, Reason: storeAwayText(b.storeAway), Blocks: true})
		}
		addPortsAndGroups(&s, now, b)
	}
	s.Healthy = len(s.Problems) == 0
	return s
}

func addPortsAndGroups(s *api.Status, now time.Time, b *everything) {
	s.Ports = map[string]int{api.PortUp: 0, api.PortDown: 0, api.PortGone: 0, api.PortFailed: 0}
	s.Groups = map[string]int{api.Ready: 0, api.Waiting: 0, api.Degraded: 0, api.Failed: 0}
	addPorts(s, b.ports)
	for _, ip := range slices.Sorted(maps.Keys(b.badGroupIPs)) {
		addProblem(s, api.Problem{Of: api.OfHosts, Name: ip, State: api.Failed, Reason: b.badGroupIPs[ip]})
	}
	var theirs []api.Problem // of groups that no operator made
	for _, g := range b.groups {
		v := summary(g)
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
	for _, p := range theirs {
		addProblem(s, p)
	}
	if s.Unconfirmed > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("groups that hosts have made and not confirmed yet: %d; rocast group ls shows them", s.Unconfirmed))
	}
	addStrays(s, now, b.strays)
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

// waitsBecause names the first member that the group waits for, and says why.
func waitsBecause(g *groups.Version) string {
	var l blamed
	for leg := range g.Plan.Members() {
		if waits, why := g.WaitsFor(leg); waits {
			l.add(g.NameOf(leg.Member), why)
		}
	}
	return l.String()
}
