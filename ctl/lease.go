package ctl

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
)

// lookAtLeasesEvery is the period for looking which leases are due.
const lookAtLeasesEvery = 500 * time.Millisecond

// followLeases renews the leases of the branches behind this box, and ends the branches of upper
// boxes that are not renewed, until ctx is done.
func (c *Controller) followLeases(ctx context.Context) error {
	ticker := time.NewTicker(lookAtLeasesEvery)
	defer ticker.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, g := range c.dueGroups(time.Now()) {
			working.Go(func() { c.tend(ctx, g) })
		}
	}
}

// dueGroups returns the groups with a link or a lease that is due.
func (c *Controller) dueGroups(now time.Time) (due []*group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := range c.index.trees {
		if _, moved := c.moved[g]; !moved && (g.branch != nil && now.After(g.branch.expires) || c.linksDue(g, now)) {
			due = append(due, g)
		}
	}
	due = append(due, slices.Collect(maps.Keys(c.moved))...)
	return append(due, slices.Collect(maps.Keys(c.failing))...)
}

func (c *Controller) linksDue(g *group, now time.Time) bool {
	for _, l := range g.links {
		if now.After(dueAt(l, c.lease())) {
			return true
		}
	}
	return false
}

// dueAt returns when a link is to be renewed.
func dueAt(l *link, lease time.Duration) time.Time {
	every := lease / renewals
	if l.problem != "" || len(l.absent) > 0 || slices.ContainsFunc(l.Later, later.isUnknown) {
		every = min(every, askAgainEvery)
	}
	return l.asked.Add(every)
}

// tend does what is due for a group, unless the group is being changed.
func (c *Controller) tend(ctx context.Context, g *group) {
	ctx, cancel := context.WithTimeout(ctx, tendWithin)
	defer cancel()
	c.mu.Lock()
	upper := ""
	if g.branch != nil {
		upper = g.branch.Upper
	}
	c.mu.Unlock()
	unlock, ok := c.names.tryLock(g.name, upper)
	if !ok {
		return
	}
	defer unlock()
	c.mu.Lock()
	there := c.groups[g.name] == g
	expired := there && g.branch != nil && c.expire(g, time.Now())
	_, moved := c.moved[g]
	moved = moved && there && g.published != nil
	_, failing := c.failing[g]
	if !there {
		delete(c.failing, g)
	}
	if moved || !there { // a group that has failed moves when it is published again
		delete(c.moved, g)
	}
	c.mu.Unlock()
	switch {
	case !there:
	case expired:
		c.Log.Warn("the lease of a branch was not renewed; the branch ends", zap.String("group", g.name),
			zap.String("upper", g.branch.Upper), zap.String("root", g.branch.Root))
		if err := c.dropBranch(g, g.branch.Version); err != nil {
			c.Log.Error("could not end a branch", zap.String("group", g.name), zap.Error(err))
		}
	case failing:
		c.tellFailure(ctx, g)
	case moved:
		c.rethink(ctx, g)
		c.renewLinks(ctx, g)
	default:
		c.renewLinks(ctx, g)
	}
}

// expire reports whether a branch ends: its lease has ended, and no data has come since the lease
// was last extended. A branch that carries data stays, because then the upper box lives and only
// its requests do not arrive.
func (c *Controller) expire(g *group, now time.Time) bool {
	b := g.branch
	if !now.After(b.expires) {
		return false
	}
	if g.published == nil {
		return true
	}
	state, ok := c.Switch.GroupState(g.id)
	if !ok || !state.Started || state.Sent == b.sent {
		return true
	}
	b.sent, b.expires = state.Sent, now.Add(b.Lease)
	c.changed(g)
	return false
}

// renewLinks sends the state of the links that are due to their boxes.
func (c *Controller) renewLinks(ctx context.Context, g *group) {
	now := time.Now()
	c.mu.Lock()
	var due []*link
	for _, l := range g.links {
		if now.After(dueAt(l, c.lease())) {
			copied := *l
			due = append(due, &copied)
		}
	}
	e := c.errandOf(g, g.wanted)
	c.mu.Unlock()
	if len(due) == 0 {
		return
	}
	after, _ := c.askAll(ctx, e, due)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the daemon stops, and the boxes are not to blame
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range after {
		c.noteRenewal(g, l)
	}
}

// noteRenewal records the answer to a renewal.
func (c *Controller) noteRenewal(g *group, next *link) {
	at := linkTo(g.links, next.Box)
	if at == nil {
		return
	}
	fields := []zap.Field{zap.String("group", g.name), zap.String("neighbour", next.Box)}
	switch {
	case next.problem != "" && at.problem != next.problem:
		c.Log.Warn("a branch does not stand; data flows if the neighbour still carries it", append(fields, zap.String("reason", next.problem))...)
		c.tell(api.Event{Kind: api.NeighbourDown, Group: g.name, Neighbour: next.Box, Cause: next.problem})
	case next.problem == "" && at.problem != "":
		c.Log.Info("a branch stands again", fields...)
		c.tell(api.Event{Kind: api.NeighbourUp, Group: g.name, Neighbour: next.Box, Cause: "its part of the group stands again"})
	}
	if b := g.branch; b != nil && (at.problem != next.problem || !slices.Equal(at.absent, next.absent)) {
		go func() { // the box above hears it with its next renewal if not now
			ctx, cancel := context.WithTimeout(context.Background(), withdrawWithin)
			defer cancel()
			_ = c.Boxes.TellUpper(ctx, b.Upper, g.name)
		}()
	}
	otherEnd, sameLater := at.Remote != next.Remote, slices.EqualFunc(at.Later, next.Later, later.equal)
	c.changed(g)
	at.Remote, at.absent, at.problem, at.asked, at.Begun, at.Later = next.Remote, next.absent, next.problem, next.asked, next.Begun, next.Later
	if !sameLater {
		if err := errors.Join(c.saveTree(g), c.saveChronicle(g)); err != nil {
			c.Log.Error("could not store since when members behind a neighbour take part", append(fields, zap.Error(err))...)
		}
	}
	if !otherEnd {
		return
	}
	// The box could not take its former end again. To the data path its new end is another QP: like
	// after a restart, it is not known which packets the box has.
	again := *g
	again.setLinks(g.links)
	if err := c.republish(g, &again, nil, nil); err != nil {
		c.Log.Error("could not publish a link's new end", append(fields, zap.Error(err))...)
	}
}
