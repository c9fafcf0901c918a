package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/goodput"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

const (
	lookAtProgressEvery = 250 * time.Millisecond
	// lookAtMost bounds the groups that are looked at in one period: the worker is asked for each.
	// If there are more groups, each is looked at less often.
	lookAtMost = 256
)

// pace is how a running group gets on, and which of its receivers do not.
type pace struct {
	meter    goodput.Meter
	stalls   goodput.Stalls[groupfile.ID]
	refusals refusals
	epoch    uint64 // of the PSN space: of one source, in one group of the data path
	id       mft.GroupID
	source   groupfile.ID
	cause    string // why it is degraded
}

func (p *pace) isDegraded() bool { return p != nil && p.meter.IsDegraded() }

func (p *pace) goodput() *api.Goodput {
	if p == nil || p.meter.Best() == 0 {
		return nil
	}
	return &api.Goodput{Now: p.meter.Rate(), Before: p.meter.Best()}
}

// followProgress looks at the progress of the groups until ctx is done.
func (c *Controller) followProgress(ctx context.Context) error {
	ticker := time.NewTicker(lookAtProgressEvery)
	defer ticker.Stop()
	var names []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if len(names) == 0 {
			names = c.groupNames()
		}
		n := min(len(names), lookAtMost)
		for _, name := range names[:n] {
			c.lookAtProgress(name, time.Now())
		}
		names = names[n:]
	}
}

func (c *Controller) groupNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.groups))
}

// lookAtProgress tells when a group begins and ceases to be degraded, and when a receiver stalls
// and returns.
func (c *Controller) lookAtProgress(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[name]
	if g == nil || g.published == nil || g.file.DegradedAfter == 0 && !g.pace.isDegraded() {
		return
	}
	state, ok := c.Switch.GroupState(g.id)
	if !ok || !state.Started {
		return
	}
	c.hear() // a source that has switched is known only now
	p := g.pace
	if p.id != g.id || p.source != g.source {
		p.id, p.source = g.id, g.source
		p.epoch++
	}
	sample := goodput.Sample{Epoch: p.epoch, Sent: state.Sent, Merged: state.Merged}
	after := g.file.DegradedAfter
	change := p.meter.Step(now, sample, goodput.Limits{Below: float64(g.file.DegradedBelow) / 100, After: after})
	stalled, returned := p.stalls.Step(now, sample, places(g, state), after)
	for _, id := range stalled {
		c.stalled(g, id, after)
	}
	for _, id := range returned {
		c.Log.Info("a receiver acknowledges again", zap.String("group", g.name), zap.Stringer("member", id.IP))
		c.memberEvent(api.MemberReturned, g, id, "it acknowledges again")
	}
	switch change {
	case goodput.Degraded:
		c.degraded(g, state)
	case goodput.Restored:
		c.Log.Info("a group is no longer degraded", zap.String("group", g.name))
		c.restored(g, "its packets get on again")
	}
}

// places returns the receivers that take part and answer.
func places(g *group, state dataplane.GroupState) (list []goodput.Place[groupfile.ID]) {
	for i := range state.Paths {
		path := &g.published.Paths[i]
		id := groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}
		if state.Paths[i].Part == feedback.PartActive && id != g.source {
			list = append(list, goodput.Place[groupfile.ID]{ID: id, Acked: state.Paths[i].Acked})
		}
	}
	return list
}

func (c *Controller) stalled(g *group, id groupfile.ID, after time.Duration) {
	c.Log.Warn("a receiver has stalled", zap.String("group", g.name), zap.Stringer("member", id.IP))
	c.memberEvent(api.MemberStalled, g, id, "it has acknowledged nothing for %v, and others are further", after)
}

// degraded tells that packets wait and hardly get on, and for whom.
func (c *Controller) degraded(g *group, state dataplane.GroupState) {
	p := g.pace
	e := api.Event{Kind: api.GroupDegraded, Group: g.name, Goodput: p.goodput()}
	p.cause = fmt.Sprintf("%.0f packets a second get on, and %.0f did before", p.meter.Rate(), p.meter.Best())
	if p.meter.Rate() == 0 {
		p.cause = "packets wait, and none gets on"
	}
	list := places(g, state)
	if len(list) > 0 {
		last := slices.MinFunc(list, func(a, b goodput.Place[groupfile.ID]) int { return int(a.Acked.Sub(b.Acked)) })
		if last.Acked.Before(state.Sent) {
			e.Member, e.RemoteQPN = last.ID.IP.String(), uint32(last.ID.RemoteQPN)
			p.cause += fmt.Sprintf("; the last is %v, which lacks the source's packet %d", last.ID.IP, last.Acked.Next())
		}
	}
	e.Cause = p.cause
	c.Log.Warn("a group is degraded", zap.String("group", g.name), zap.String("reason", p.cause))
	c.events.Add(e)
}

// restored tells that a group is no longer degraded, unless it is for another reason.
func (c *Controller) restored(g *group, cause string) {
	if g.pace.isDegraded() || g.treeProblem != "" {
		return
	}
	c.events.Add(api.Event{Kind: api.GroupRestored, Group: g.name, Cause: cause, Goodput: g.pace.goodput()})
}

// registrationFailed tells that a group could not be created at all its boxes: a program that waits
// for it has to take another way.
func (c *Controller) registrationFailed(name string, err error) {
	c.events.Add(api.Event{Kind: api.GroupDegraded, Group: name, Cause: fmt.Sprint("its registration failed: ", tellable(err))})
}
