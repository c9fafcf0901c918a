package shared

import (
	"context"
	"net/netip"
	"sync"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
)

// Desired keeps the groups that several boxes are to carry: a desired.Desired. With it, a group is
// created, changed and removed there, and the box where its source is attached follows.
type Desired interface {
	// Away returns why etcd cannot be relied on at present; nil: it answers.
	Away() error
	Names() []string
	Entry(name string) (desired.Entry, bool)
	Create(ctx context.Context, name string, text []byte) (revision int64, err error)
	Update(ctx context.Context, name string, text []byte, from int64) (revision int64, err error)
	Remove(ctx context.Context, name string, from int64) error
	Claim(ctx context.Context, name string, e desired.Entry) (claimed bool, err error)
	TakeOver(ctx context.Context, name string, e desired.Entry) (claimed bool, err error)
	Report(ctx context.Context, name, report string) error
	PutMembers(ctx context.Context, name string, created int64, state []byte) error
	Yield(ctx context.Context, name string) error
	Run(ctx context.Context, changed func(names []string)) error
}

// Carrier sets groups up at this box and those behind it: branches.Branches.
type Carrier interface {
	Stand(ctx context.Context, g *groups.Group, text []byte) error
	Change(ctx context.Context, g *groups.Group, file *groupfile.File, text []byte, next *groups.Branch, came map[groupfile.ID]groups.Membership) error
	Withdraw(name string, links []*groups.Link)
	// IsBehind reports whether the way to a member leads through a neighbour.
	IsBehind(*groupfile.Member) bool
}

// Options are what a Shared works with.
type Options struct {
	Groups  *groups.Set
	Desired Desired
	Box     string // the name of this box
	Carrier Carrier
	Log     *zap.Logger

	// Parse parses the text of a group that another box has accepted.
	Parse func(ctx context.Context, text []byte) (*groupfile.File, error)
	// Resolve lets the kernel resolve members that are about to come, until release.
	Resolve func(ctx context.Context, members []groupfile.Member) (release func())
	// MayBecome refuses changes that a running group cannot make. The groups are locked.
	MayBecome func(g *groups.Group, name string, file *groupfile.File) error
	// IsLocal reports whether the box has an address.
	IsLocal func(netip.Addr) (bool, error)
	// Describe describes a group for users.
	Describe func(*groups.Version) api.Group
	// Restored hears that a group is no longer degraded. The groups are locked.
	Restored func(g *groups.Group, cause string)
}

// Shared are the groups that all boxes share. Its methods may be called from any goroutine.
type Shared struct {
	Options
	work    *work
	putting sync.Mutex // held while the state of members is stored in etcd; taken before the lock of the groups

	// What follows is guarded by the lock of the groups.

	carried  map[*groups.Group]*carried
	toldAway bool // an event has said that etcd does not answer
}

// carried is what is known of a group that this box carries as its root.
type carried struct {
	untold      bool // this box has taken the group over with its address, and etcd does not know yet
	untoldInLog bool // etcd was told in vain, and the log says so
	addressGone bool // the box was without the group's address meanwhile: another one may have carried the group
	switches    bool // another member is, or wants to be, the source: no other box may take the group over
}

// New returns a Shared that knows of no group yet.
func New(o Options) *Shared {
	return &Shared{Options: o, work: newWork(), carried: map[*groups.Group]*carried{}}
}

// of returns what is known of a group. The caller has locked the groups.
func (s *Shared) of(g *groups.Group) *carried {
	if s.carried[g] == nil {
		s.carried[g] = new(carried)
	}
	return s.carried[g]
}
