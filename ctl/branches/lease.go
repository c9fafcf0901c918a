package branches

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/feedback"
)

// lookAtLeasesEvery is the period for looking which leases are due.
const lookAtLeasesEvery = 500 * time.Millisecond

// Run renews the leases of the branches behind this box, and ends the branches of upper
// boxes that are not renewed, until ctx is done.
func (t *Branches) Run(ctx context.Context) error {
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
		for _, g := range t.Due(time.Now()) {
			working.Go(func() { t.Tend(ctx, g) })
		}
	}
}

// Due returns the groups for which Tend has something to do: a link or a lease is due, members have
// moved, or neighbours do not know of a failure yet. Due and Tend are what Run does; they are
// exported for tests with several boxes, which do it at times of their own.
func (t *Branches) Due(now time.Time) (due []*groups.Group) {
	t.Groups.Lock()
	defer t.Groups.Unlock()
	for g := range t.Groups.InTrees() {
		if _, moved := t.moved[g]; !moved && (g.Branch != nil && now.After(g.Branch.Expires) || t.linksDue(g, now)) {
			due = append(due, g)
		}
	}
	due = append(due, slices.Collect(maps.Keys(t.moved))...)
	return append(due, slices.Collect(maps.Keys(t.failing))...)
}

func (t *Branches) linksDue(g *groups.Group, now time.Time) bool {
	for _, l := range g.Links {
		if now.After(dueAt(l, t.lease())) {
			return true
		}
	}
	return false
}

// dueAt returns when a link is to be renewed.
func dueAt(l *groups.Link, lease time.Duration) time.Time {
	if l.Due {
		return time.Time{}
	}
	every := lease / renewals
	if l.Problem != "" || len(l.Absent) > 0 || slices.ContainsFunc(l.Later, groups.Later.IsUnknown) {
		every = min(every, askAgainEvery)
	}
	return l.Asked.Add(every)
}

// Tend does what is due for a group, unless the group is being changed.
func (t *Branches) Tend(ctx context.Context, g *groups.Group) {
	ctx, cancel := context.WithTimeout(ctx, tendWithin)
	defer cancel()
	t.Groups.Lock()
	name, upper := g.Name, ""
	if g.Branch != nil {
		upper = g.Branch.Upper
	}
	t.Groups.Unlock()
	unlock, ok := t.Groups.Names.TryLock(name, upper)
	if !ok {
		return
	}
	defer unlock()
	t.Groups.Lock()
	there := t.Groups.Named(g.Name) == g
	if there && g.Branch != nil && time.Now().After(g.Branch.Expires) {
		t.Groups.Unlock()
		t.hearBelow(ctx, g, g.Links) // the box above has to hear it if it asks for the branch again
		t.Groups.Lock()
	}
	expired, err := there && g.Branch != nil && t.expire(g, time.Now()), error(nil)
	if expired { // under the same lock, so that no renewal is answered for a branch that ends
		// The box above may still run. It renews this version when it reaches this box again, so
		// that request must not be refused.
		err = t.endBranch(g, g.Branch.Version-1)
	}
	_, moved := t.moved[g]
	moved = moved && there && g.Published != nil
	_, failing := t.failing[g]
	if !there {
		delete(t.failing, g)
	}
	if moved || !there { // a group that has failed moves when it is published again
		delete(t.moved, g)
	}
	t.Groups.Unlock()
	switch {
	case !there:
	case expired && err != nil:
		t.Log.Error("the lease of a branch was not renewed, and the branch could not be ended; rocastd tries again",
			zap.String("group", g.Name), zap.Error(err))
	case expired:
		t.Log.Warn("the lease of a branch was not renewed; the branch ends", zap.String("group", g.Name),
			zap.String("upper", g.Branch.Upper), zap.String("root", g.Branch.Root))
		t.Withdraw(g.Name, g.Links)
	case failing:
		t.reportFailure(ctx, g)
	case moved:
		t.rethink(ctx, g)
		t.renewLinks(ctx, g)
	default:
		t.renewLinks(ctx, g)
	}
}

// expire reports whether a branch has to end: its lease has ended, and no data has come since the
// lease was last extended. A branch that carries data stays, because then the upper box lives and
// only its requests do not arrive.
func (t *Branches) expire(g *groups.Group, now time.Time) bool {
	b := g.Branch
	if !now.After(b.Expires) {
		return false
	}
	if g.Published == nil {
		return true
	}
	state, ok := t.Groups.Switch.GroupState(g.ID)
	if g.File.IsRelayed() && ok && state.Traffic.Packets != b.Packets {
		b.Packets, b.Expires = state.Traffic.Packets, now.Add(b.Lease)
		t.Groups.Changed(g)
		return false
	}
	if !ok || !state.Started || state.Sent == b.Sent {
		return true
	}
	b.Sent, b.Expires = state.Sent, now.Add(b.Lease)
	t.Groups.Changed(g)
	return false
}

// renewLinks sends the state of the links that are due to their boxes.
func (t *Branches) renewLinks(ctx context.Context, g *groups.Group) {
	now := time.Now()
	t.Groups.Lock()
	var due []*groups.Link
	for _, l := range g.Links {
		if now.After(dueAt(l, t.lease())) {
			due = append(due, l)
		}
	}
	t.Groups.Unlock()
	t.renewNow(ctx, g, due, false)
}

// renewNow renews links of a group, whether they are due or not. hear is as in api.Branch. The
// caller has locked the group's name.
func (t *Branches) renewNow(ctx context.Context, g *groups.Group, links []*groups.Link, hear bool) {
	if len(links) == 0 {
		return
	}
	t.Groups.Lock()
	asked := make([]*groups.Link, len(links))
	for i, l := range links {
		copied := *l
		asked[i] = &copied
		if l.Due {
			l.Due = false
			t.Groups.Changed(g)
		}
	}
	e := t.errandOf(g, g.Wanted)
	e.hear = hear
	t.Groups.Unlock()
	after, _ := t.askAll(ctx, e, asked)
	t.Groups.Lock()
	defer t.Groups.Unlock()
	if errors.Is(ctx.Err(), context.Canceled) {
		// The daemon stops, or nobody waits for a change any more: the boxes are not to blame.
		for _, l := range asked {
			if at := groups.LinkTo(g.Links, l.Box); at != nil && l.Due {
				at.Due = true
				t.Groups.Changed(g)
			}
		}
		return
	}
	for _, l := range after {
		t.noteRenewal(g, l)
	}
}

// noteRenewal records the answer to a renewal.
func (t *Branches) noteRenewal(g *groups.Group, next *groups.Link) {
	at := groups.LinkTo(g.Links, next.Box)
	if at == nil {
		return
	}
	fields := []zap.Field{zap.String("group", g.Name), zap.String("neighbour", next.Box)}
	switch {
	case next.Problem != "" && at.Problem != next.Problem:
		t.Log.Warn("a branch is not set up; data flows if the neighbour still carries it", append(fields, zap.String("reason", next.Problem))...)
		t.Groups.AddEvent(api.Event{Kind: api.NeighbourDown, Group: g.Name, Neighbour: next.Box, Cause: next.Problem})
	case next.Problem == "" && at.Problem != "":
		t.Log.Info("a branch is set up again", fields...)
		t.Groups.AddEvent(api.Event{Kind: api.NeighbourUp, Group: g.Name, Neighbour: next.Box, Cause: "its part of the group is set up again"})
	}
	if b := g.Branch; b != nil && (at.Problem != next.Problem || !slices.Equal(at.Absent, next.Absent)) {
		name := g.Name
		go func() { // if this fails, the box above hears it with its next renewal
			ctx, cancel := context.WithTimeout(context.Background(), withdrawWithin)
			defer cancel()
			_ = t.Boxes.NotifyUpper(ctx, b.Upper, name)
		}()
	}
	before, passes := at.Remote, at.Passes()
	otherEnd, sameLater := before != next.Remote && !passes, slices.EqualFunc(at.Later, next.Later, groups.Later.Equal)
	t.Groups.Changed(g)
	at.Remote, at.Absent, at.Problem, at.Asked, at.Begun, at.Later = next.Remote, next.Absent, next.Problem, next.Asked, next.Begun, next.Later
	if !sameLater {
		if err := errors.Join(t.Groups.SaveTree(g), t.Groups.SaveChronicle(g)); err != nil {
			t.Log.Error("could not store since when members behind a neighbour take part", append(fields, zap.Error(err))...)
		}
	}
	if passes && before != at.Remote {
		groups.ShareLinks(t.Groups, g)
	}
	if !otherEnd {
		if err := t.Groups.LetJoin(g); err != nil {
			at.Asked = time.Time{}
			t.Log.Error("could not let those join that have confirmed behind a neighbour; rocastd tries again", append(fields, zap.Error(err))...)
		}
		t.weighLess(g, at)
		return
	}
	// The box could not use its former end of the link again. To the data path its new end is
	// another QP: as after a restart, this box does not know which packets the other one has.
	again := *g
	again.SetLinks(g.Links)
	if err := t.Groups.Republish(g, &again, nil, nil); err != nil {
		at.Remote = before // so that the next renewal tries again
		t.Log.Error("could not publish a link's new end; the next renewal tries again", append(fields, zap.Error(err))...)
	}
}

// weighLess lets a quorum count fewer receivers behind a link if some of them are out. A receiver
// that has joined later makes up for one of them only if it has all packets for which the source
// may still wait.
func (t *Branches) weighLess(g *groups.Group, l *groups.Link) {
	isOut := func(m groups.Later) bool { return m.Out }
	if g.Wanted.Policy.Ack == feedback.AckAll || l.Passes() || g.Published == nil || !slices.ContainsFunc(l.Later, isOut) {
		return
	}
	state, _ := t.Groups.Switch.GroupState(g.ID)
	left := 0
	for _, id := range l.Members {
		if l.LaterOf(id) == nil || hasAll(g, g.MembershipOf(id), &state) {
			left++
		}
	}
	if l.Weight <= max(left, 1) {
		return
	}
	was := l.Weight
	l.Weight = max(left, 1)
	g.SetLinks(g.Links)
	if err := t.Groups.Replan(g, t.Groups.Plan(g.File)); err != nil {
		l.Weight = was
		g.SetLinks(g.Links)
		t.Log.Error("could not publish that a quorum counts fewer receivers behind a neighbour; rocastd tries again",
			zap.String("group", g.Name), zap.String("neighbour", l.Box), zap.Error(err))
		return
	}
	if err := t.Groups.SaveTree(g); err != nil {
		t.Log.Error("could not store how many receivers a quorum counts behind a neighbour", zap.String("group", g.Name), zap.Error(err))
	}
}
