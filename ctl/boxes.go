package ctl

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/neighbour"
)

// Boxes asks other boxes: a neighbour.Client, or its test double.
type Boxes interface {
	PutBranch(ctx context.Context, box, group string, b api.Branch) (api.BranchAnswer, error)
	DeleteBranch(ctx context.Context, box, group string, version uint64) error
	Tree(ctx context.Context, box, group string) (api.Tree, error)
	// TellUpper tells the box above that a branch has changed, so that it asks at once.
	TellUpper(ctx context.Context, box, group string) error
}

const (
	// DefaultLease is how long a branch stays that is not renewed and carries no data. It is longer
	// than a restart of the upper box takes.
	DefaultLease = time.Minute
	// renewals is how often a lease is renewed before it ends: some requests may be lost.
	renewals = 3
	// askAgainEvery is the period for asking a box again that refused, did not answer, or has
	// members that it waits for.
	askAgainEvery = 2 * time.Second
	// askWithin bounds the wait for a box's answer. A box gives the boxes behind it three quarters
	// of its own time, so that it can still say which of them did not answer.
	askWithin = 8 * time.Second
	// tendWithin bounds the work for the leases of a group. A change of the group waits for its
	// end.
	tendWithin = 4 * time.Second
	// withdrawWithin bounds a withdrawal. If it fails, the lease ends the branch.
	withdrawWithin = 2 * time.Second
)

// neighbourNamed returns nil if the config does not name the box.
func (c *Controller) neighbourNamed(name string) *neighbour.Config {
	if at := slices.IndexFunc(c.Neighbours, func(n neighbour.Config) bool { return n.Name == name }); at >= 0 {
		return &c.Neighbours[at]
	}
	return nil
}

func (c *Controller) lease() time.Duration {
	if c.Lease == 0 {
		return DefaultLease
	}
	return c.Lease
}

// timeToAsk returns how long a request to a box behind this one may take.
func timeToAsk(ctx context.Context) time.Duration {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return askWithin
	}
	return min(askWithin, time.Until(deadline)*3/4)
}

// names lets one change of a group happen at a time. A change asks other boxes, so it cannot lock
// the whole book.
type names struct {
	mu   sync.Mutex
	held map[string]*holder
}

func newNames() names { return names{held: map[string]*holder{}} }

// holder describes the change of a group that is under way.
type holder struct {
	box  string // the upper box, or "" for a change that began on this box
	done chan struct{}
}

// lock waits until no change of the group is under way, and begins a change. box is the upper box
// for which the change is made, or "". Two boxes that create the same group could wait for each
// other, so a change for another box does not wait for a change that began on this box: busy is
// then true.
func (n *names) lock(ctx context.Context, group, box string) (unlock func(), busy bool, err error) {
	for {
		n.mu.Lock()
		h := n.held[group]
		if h == nil {
			h = &holder{box: box, done: make(chan struct{})}
			n.held[group] = h
			n.mu.Unlock()
			return func() { n.unlock(group, h) }, false, nil
		}
		n.mu.Unlock()
		if box != "" && h.box == "" {
			return nil, true, nil
		}
		select {
		case <-h.done:
		case <-ctx.Done():
			return nil, false, givenUp(ctx)
		}
	}
}

// tryLock is lock without waiting.
func (n *names) tryLock(group, box string) (unlock func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[group] != nil {
		return nil, false
	}
	h := &holder{box: box, done: make(chan struct{})}
	n.held[group] = h
	return func() { n.unlock(group, h) }, true
}

func (n *names) unlock(group string, h *holder) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.held, group)
	close(h.done)
}
