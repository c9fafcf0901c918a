package branches

import (
	"context"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/neighbour"
)

// Boxes asks other boxes: a neighbour.Client, or its test double.
type Boxes interface {
	PutBranch(ctx context.Context, box, group string, b api.Branch) (api.BranchAnswer, error)
	DeleteBranch(ctx context.Context, box, group string, version uint64) error
	Tree(ctx context.Context, box, group string) (api.Tree, error)
	// NotifyUpper tells the box above that a branch has changed, so that it asks at once.
	NotifyUpper(ctx context.Context, box, group string) error
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
func (t *Branches) neighbourNamed(name string) *neighbour.Config {
	if at := slices.IndexFunc(t.Neighbours, func(n neighbour.Config) bool { return n.Name == name }); at >= 0 {
		return &t.Neighbours[at]
	}
	return nil
}

func (t *Branches) lease() time.Duration {
	if t.Lease == 0 {
		return DefaultLease
	}
	return t.Lease
}

// timeToAsk returns how long a request to a box behind this one may take.
func timeToAsk(ctx context.Context) time.Duration {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return askWithin
	}
	return min(askWithin, time.Until(deadline)*3/4)
}
