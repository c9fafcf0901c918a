package follow

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
)

// Switch is what is followed of the data path.
type Switch interface {
	// Refresh opens and closes ports when their interfaces appear and disappear. It returns the
	// current ports, without counters, and warnings for the operator.
	Refresh() (ports []dataplane.PortInfo, warnings []dataplane.Warning)
	// AddPorts makes interfaces ports, all or none; bounds are those of their queues. Refresh has
	// been called before.
	AddPorts(names []string, bounds []dataplane.Egress) error
	// RemovePorts closes ports, which no group uses any more.
	RemovePorts(names []string)
}

// NextHops is what is followed of the ways to hosts.
type NextHops interface {
	// SetPorts sets the interfaces that are ports now. It returns the addresses whose next hop
	// changed.
	SetPorts(ifIndexes []int) (changed []netip.Addr)
	// Links delivers a value after links have changed.
	Links() <-chan struct{}
}

// Options are what a Network works with.
type Options struct {
	Groups   *groups.Set
	Switch   Switch
	NextHops NextHops
	Log      *zap.Logger
	// FollowBonds is called whenever a link may have changed: it changes the ports where the lower
	// devices of a bond have changed. nil: no bond is followed.
	FollowBonds func()
	// Moves is called before a group is planned again. The groups are locked.
	Moves func(*groups.Group)
}

// Network lets groups follow what the kernel says of ports, next hops and addresses. Its methods
// may be called from any goroutine.
type Network struct {
	Options

	// refreshing is held while the switch's ports change. It is taken before the lock of the
	// groups.
	refreshing sync.Mutex
}

// New returns a Network that has heard nothing.
func New(o Options) *Network { return &Network{Options: o} }

// lookAgainEvery is the period for checking the ports when no link changes. The kernel sends no
// notification when the number of queues changes, or when a counter that the data path warns about
// changes.
const lookAgainEvery = time.Second

// Run opens and closes ports when their interfaces appear and disappear, until ctx is done.
func (n *Network) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookAgainEvery)
	defer ticker.Stop()
	for {
		if n.FollowBonds != nil {
			n.FollowBonds()
		}
		n.Refresh()
		select {
		case <-ctx.Done():
			return nil
		case <-n.NextHops.Links():
		case <-ticker.C:
		}
	}
}

// Refresh updates the ports, and plans a group again if the next hop of a member has changed.
func (n *Network) Refresh() {
	n.refreshing.Lock()
	defer n.refreshing.Unlock()
	n.refresh()
}

// refresh is Refresh for a caller that holds n.refreshing.
func (n *Network) refresh() {
	list, warnings := n.Switch.Refresh() // may take long, so the groups are not locked
	for _, w := range warnings {
		n.logWarning(w)
	}
	n.Groups.Lock()
	defer n.Groups.Unlock()
	was := n.Groups.Ports()
	n.Groups.SetPorts(ports.New(list))
	if n.Groups.Ports().Equal(was) {
		return
	}
	n.Groups.Ports().LogChanges(n.Log, was)
	n.portEvents(was)
	// Update the next hops under the same lock as the ports: a hop must never name a port that is
	// not open.
	changed := n.NextHops.SetPorts(n.Groups.Ports().Open())
	n.replanFor(append(changed, n.reachedThrough(n.Groups.Ports().Renumbered(was))...))
}

// reachedThrough returns the members that are reached through these interfaces. The caller has
// locked the groups.
func (n *Network) reachedThrough(ifIndexes []int) (addrs []netip.Addr) {
	if len(ifIndexes) == 0 {
		return nil
	}
	for _, g := range n.Groups.All() {
		for l := range g.Plan.Members() {
			if slices.ContainsFunc(ifIndexes, func(i int) bool { return l.Hop.Port == i || l.Hop.Uplinks.Has(i) }) {
				addrs = append(addrs, l.Member.IP)
			}
		}
	}
	return addrs
}

func (n *Network) logWarning(w dataplane.Warning) {
	var fields []zap.Field
	if w.Port != "" {
		fields = append(fields, zap.String("port", w.Port))
	}
	if w.Detail != "" {
		fields = append(fields, zap.String("detail", w.Detail))
	}
	n.Log.Warn(w.Text, fields...)
}

// HopsChanged plans a group again if it has a member at one of the addresses.
func (n *Network) HopsChanged(addrs []netip.Addr) {
	n.Groups.Lock()
	defer n.Groups.Unlock()
	n.replanFor(addrs)
}

func (n *Network) replanFor(addrs []netip.Addr) {
	for g := range n.Groups.ReachedBy(addrs) {
		if g.Published != nil {
			n.replan(g)
		} else {
			n.Groups.Retry(g)
		}
	}
}

func (n *Network) replan(g *groups.Group) {
	n.Moves(g)
	was := g.Plan
	if err := n.Groups.Replan(g, n.Groups.Plan(g.File)); err != nil {
		n.Log.Error("could not publish new next hops; the group keeps its old ones",
			zap.String("group", g.Name), zap.Error(err))
		return
	}
	n.logLegs(g, &was)
	n.Groups.HoldAddresses(g)
}

// logLegs logs the changes of the paths to a group's members.
func (n *Network) logLegs(g *groups.Group, was *plan.Plan) {
	before := map[*groupfile.Member]*plan.Leg{}
	for l := range was.Members() {
		before[l.Member] = l
	}
	for l := range g.Plan.Members() {
		member := []zap.Field{zap.String("group", g.Name), zap.Stringer("member", l.Dst)}
		switch b := before[l.Member]; {
		case !l.Lost() && (b.Leg != l.Leg || b.Lost()):
			n.Log.Info("member reachable", append(member, zap.String("port", l.Hop.PortName))...)
			kind := api.RouteChanged
			if b.Lost() {
				kind = api.MemberReachable
			}
			n.Groups.MemberEvent(kind, g, l.Member.ID(), "it is reached through %s", l.Hop.PortName)
		case l.Waits() && b.Reason != l.Reason, l.Hop.Silent && !b.Lost():
			n.Log.Warn("member unreachable; its frames flow again when the reason is gone",
				append(member, zap.String("reason", l.Reason))...)
			n.Groups.MemberEvent(api.MemberUnreachable, g, l.Member.ID(), "%s", l.Reason)
		}
	}
}
