package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/shared"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
)

// fabric is several boxes, each a world with a link address 10.9.0.N. Host 10.N.0.H is attached to
// box N. The boxes ask each other by calls, which may be lost: see cut.
type fabric struct {
	t     *testing.T
	boxes []*box
	// cut says what becomes of a request; nil: it is carried out. It returns whether the request
	// arrives, and whether its answer does.
	cut func(from, to, method string) (arrives, answered bool)
	// refuse is what a box answers instead of carrying a request out; nil: nothing.
	refuse func(to, method string) *api.Error
	// older says that the boxes ask as those of an earlier release do.
	older bool

	mu        sync.Mutex
	sent      []func() error    // the requests so far, to be sent again
	asked     api.Branch        // by the last request for a branch
	withdrawn map[string]uint64 // by box: the version of the last withdrawal
}

// box is one box of a fabric.
type box struct {
	*world
	f     *fabric
	n     int
	name  string
	links []string
	lease time.Duration
	// small says that the box has no memory for repair.
	small bool
	edges edges.Config // what the box may share
	// through stands between the box and etcd; nil: nothing does.
	through func(shared.Desired) shared.Desired
}

// due lets the leases of the branches behind a box be due. A box that hears from one of them writes
// the same, at any time.
func (b *box) due(name string) {
	b.edit(name, func(g *groups.Group) {
		for _, l := range g.Links {
			l.Asked = time.Time{}
		}
	})
}

// isUnsettled reports whether a group of the box has to move, or its neighbours have to hear that
// it has failed.
func (b *box) isUnsettled() bool { return len(b.Branches.Due(time.Time{})) > 0 }

// twoBoxes returns a fabric in which box b1 reaches the hosts of its neighbour b2 through that.
func twoBoxes(t *testing.T) (f *fabric, b1, b2 *box) {
	t.Helper()
	f = newFabric(t, 2, "b1 b2")
	b1, b2 = f.box("b1"), f.box("b2")
	b1.route(2, "b2")
	return f, b1, b2
}

// threeBoxes returns a fabric of boxes in a row: b1 reaches the hosts of b3 through b2.
func threeBoxes(t *testing.T) (f *fabric, b1, b2, b3 *box) {
	t.Helper()
	f = newFabric(t, 3, "b1 b2", "b2 b3")
	b1, b2, b3 = f.box("b1"), f.box("b2"), f.box("b3")
	b1.route(2, "b2")
	b1.route(3, "b2")
	b2.route(3, "b3")
	return f, b1, b2, b3
}

// newFabric returns boxes 1 to n with the names b1 to bn. links are pairs "b1 b2".
func newFabric(t *testing.T, n int, links ...string) *fabric {
	t.Helper()
	f := &fabric{t: t, withdrawn: map[string]uint64{}}
	for i := range n {
		f.boxes = append(f.boxes, &box{f: f, n: i + 1, name: fmt.Sprint("b", i+1)})
	}
	for _, l := range links {
		a, b, _ := strings.Cut(l, " ")
		f.box(a).links, f.box(b).links = append(f.box(a).links, b), append(f.box(b).links, a)
	}
	for _, b := range f.boxes {
		b.open(t.TempDir())
	}
	return f
}

func (f *fabric) box(name string) *box {
	at := slices.IndexFunc(f.boxes, func(b *box) bool { return b.name == name })
	if at < 0 {
		f.t.Fatalf("there is no box %s", name)
	}
	return f.boxes[at]
}

func linkIP(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(n)}) }

func (b *box) open(dir string) {
	t := b.f.t
	chunks := porttest.RepairChunks
	if b.small {
		chunks = 0
	}
	w := &world{dir: dir, sw: ctltest.NewRetaining(chunks, "eth1", "eth2", "eth3"), hops: ctltest.NewHops(), addresses: ctltest.NewAddresses()}
	w.addresses.Box[linkIP(b.n)] = true
	state, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.DebugLevel)
	w.logs = logs
	parts := Parts{
		Switch: w.sw, NextHops: w.hops, Addresses: w.addresses, Store: state, Log: zap.New(core), Box: b.name, Boxes: caller{b}, Lease: b.lease, Edges: b.edges,
	}
	hops := map[string]nexthop.Hop{}
	for _, other := range b.links {
		n := b.f.box(other).n
		parts.Neighbours = append(parts.Neighbours, neighbour.Config{Name: other, Address: linkIP(n), URL: "https://" + other + ":1"})
		hop := ctltest.Hop(3, "eth3", 1500, byte(n))
		hop.Source = linkIP(b.n)
		hops[linkIP(n).String()] = hop
	}
	for h := 1; h <= 4; h++ {
		hops[fmt.Sprintf("10.%d.0.%d", b.n, h)] = ctltest.Hop(1+h%2, fmt.Sprint("eth", 1+h%2), 1500, byte(h))
	}
	w.hops.Set(hops)
	w.Controller = New(parts)
	b.world = w
	showsAll(b.f.t, w.Controller)
	if err := w.Restore(); err != nil {
		t.Fatal(err)
	}
}

// restart ends the box and starts it again; without its state directory if it is to forget.
func (b *box) restart(clean, forget bool) {
	if clean {
		if err := b.Close(); err != nil {
			b.f.t.Fatal(err)
		}
	}
	b.Store.Close()
	hops, dir := b.hops, b.dir
	if forget {
		dir = b.f.t.TempDir()
	}
	b.open(dir)
	b.world.hops.CopyFrom(hops)
	b.groups.RetryFailed()
}

// route sets the neighbours by which a box reaches the hosts of box n.
func (b *box) route(n int, through ...string) {
	var gateways []netip.Addr
	for _, name := range through {
		gateways = append(gateways, linkIP(b.f.box(name).n))
	}
	hops := map[string]nexthop.Hop{}
	for h := 1; h <= 4; h++ {
		hop := ctltest.Hop(3, "eth3", 1500, byte(n))
		hop.Gateways = nexthop.GatewaysOf(gateways...)
		hops[fmt.Sprintf("10.%d.0.%d", n, h)] = hop
	}
	b.hops.Set(hops)
}

// cuts sets which requests arrive and which are answered. Boxes may ask each other meanwhile.
func (f *fabric) cuts(cut func(from, to, method string) (arrives, answered bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = cut
}

// caller carries a box's requests to the others.
type caller struct{ *box }

var errLost = errors.New("it does not answer (timeout)")

func (c caller) deliver(to, method string, do func(*box) error) error {
	arrives, answered := true, true
	c.f.mu.Lock()
	cut := c.f.cut
	c.f.mu.Unlock()
	if cut != nil {
		arrives, answered = cut(c.name, to, method)
	}
	if !arrives {
		return fmt.Errorf("box %s: %w", to, errLost)
	}
	if c.f.refuse != nil {
		if e := c.f.refuse(to, method); e != nil {
			return &neighbour.Refusal{Box: to, Cause: e}
		}
	}
	c.f.mu.Lock()
	c.f.sent = append(c.f.sent, func() error { return do(c.f.box(to)) })
	c.f.mu.Unlock()
	err := do(c.f.box(to))
	if !answered {
		return fmt.Errorf("box %s: %w", to, errLost)
	}
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return &neighbour.Refusal{Box: to, Cause: e}
	}
	return err
}

func (c caller) PutBranch(ctx context.Context, to, group string, b api.Branch) (a api.BranchAnswer, err error) {
	c.f.mu.Lock()
	c.f.asked = b
	if c.f.older {
		b.First = 0
	}
	c.f.mu.Unlock()
	err = c.deliver(to, "PUT", func(other *box) (err error) { a, err = other.Branches.PutBranch(ctx, c.name, group, b); return err })
	return a, err
}

func (c caller) DeleteBranch(ctx context.Context, to, group string, version uint64) error {
	c.f.mu.Lock()
	c.f.withdrawn[to] = version
	c.f.mu.Unlock()
	return c.deliver(to, "DELETE", func(other *box) error { return other.Branches.DeleteBranch(ctx, c.name, group, version) })
}

func (c caller) NotifyUpper(_ context.Context, to, group string) error {
	return c.deliver(to, "POST", func(other *box) error { return other.Branches.BranchChanged(c.name, group) })
}

func (c caller) Tree(ctx context.Context, to, group string) (tree api.Tree, err error) {
	err = c.deliver(to, "GET", func(other *box) (err error) { tree, err = other.Tree(ctx, group); return err })
	return tree, err
}

// AskEdge asks without waiting for another answer.
func (c caller) AskEdge(ctx context.Context, to string, q api.EdgeQuestion) (a api.EdgeAnswer, err error) {
	q.Wait = 0
	err = c.deliver(to, "EDGE", func(other *box) (err error) { a, err = other.AskEdgeOf(ctx, c.name, q); return err })
	return a, err
}

// tendAll does what is due for all groups of all boxes at a time.
func (f *fabric) tendAll(now time.Time) {
	for _, b := range f.boxes {
		for _, g := range b.Branches.Due(now) {
			b.Branches.Tend(f.t.Context(), g)
		}
	}
}

// groupFile returns a file with a source on box 1 and receivers.
func groupFile(receivers ...string) string {
	var b strings.Builder
	b.WriteString("name: g1\nip: 10.1.0.100\nqpn: 1\nmtu: 1024\nmemory: {va: 0x10000, length: 4096, rkey: 0x77}\nmembers:\n" +
		"  - {ip: 10.1.0.1, qpn: 17, psn: 1000, role: source}\n")
	for _, ip := range receivers {
		a := addr(ip).As4()
		n := 10*int(a[1]) + int(a[3])
		fmt.Fprintf(&b, "  - {ip: %s, qpn: %d, psn: %d, regions: {va: %d, length: 4096, rkey: 7}}\n", ip, 100+n, n, 4096*n)
	}
	return b.String()
}

// published returns the group that a box publishes, or nil.
func (b *box) published(name string) (found *mft.Group) {
	for g := range b.sw.Table().All {
		if g.Name == name {
			found = g
		}
	}
	return found
}

// shape draws the trees of a group: each box with the hosts that it reaches itself.
func (f *fabric) shape() string {
	var lines []string
	for _, b := range f.boxes {
		g := b.published("g1")
		if g == nil {
			continue
		}
		line := b.name + ":"
		for _, p := range g.Paths {
			line += " " + f.who(p.Dst)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, " | ")
}

func (f *fabric) who(addr netip.Addr) string {
	if a := addr.As4(); a[1] == 9 {
		return fmt.Sprint("b", a[3])
	}
	return addr.String()
}

// check fails if the two ends of a link do not fit, or if something else is wrong with the tree.
func (f *fabric) check(want string) {
	f.t.Helper()
	if got := f.shape(); got != want {
		f.t.Fatalf("the tree is\n%s\nwant\n%s", got, want)
	}
	for _, b := range f.boxes {
		g := b.groups.Named("g1")
		if g == nil {
			continue
		}
		for _, l := range g.Links {
			below := f.box(l.Box).groups.Named("g1")
			if below == nil || below.Branch == nil {
				f.t.Fatalf("%s has a link to %s, which has no branch", b.name, l.Box)
			}
			if below.Branch.Link != l.Local || below.Branch.Own != l.Remote || below.Branch.Version != l.Version || below.Branch.Epoch > g.Epoch {
				f.t.Errorf("%s: link %+v\n%s: branch %+v", b.name, l, l.Box, below.Branch)
			}
			// What the upper box sends is what the lower box expects, and the reverse.
			up, down := b.published("g1"), f.box(l.Box).published("g1")
			at := up.FindPath(addr(l.Remote.IP), mftQPN(l.Local.QPN))
			if at < 0 {
				f.t.Fatalf("%s has no path to %s", b.name, l.Box)
			}
			path, source := up.Paths[at], down.Source
			if path.Dst != source.Src || path.Src != source.Dst || path.DestQPN != source.RemoteQPN || path.RemoteQPN != source.DestQPN || path.FirstPSN != source.FirstPSN {
				f.t.Errorf("%s sends %+v, and %s expects %+v", b.name, path, l.Box, source)
			}
		}
	}
}

// nothingLeft fails if a box has anything of a group.
func (f *fabric) nothingLeft() {
	f.t.Helper()
	for _, b := range f.boxes {
		if got, want := b.String(), fmt.Sprintf("table [], addresses [], tracking %d, files []", len(b.links)); got != want {
			f.t.Errorf("%s: %s", b.name, got)
		}
		var all []netip.Addr
		for n := range byte(10) {
			all = append(all, linkIP(int(n)))
			for h := range byte(5) {
				all = append(all, netip.AddrFrom4([4]byte{10, n, 0, h}))
			}
		}
		if taken := b.groups.ReachedBy(all); len(taken) > 0 {
			f.t.Errorf("%s: queue pairs are still taken by %v", b.name, taken)
		}
		if trees := len(slices.Collect(b.groups.InTrees())); trees > 0 || len(b.groups.SeenNames()) > 0 || b.isUnsettled() {
			f.t.Errorf("%s: %d groups in trees, groups %v, more to do %v", b.name, trees, b.groups.SeenNames(), b.isUnsettled())
		}
		for _, other := range b.links {
			if n := b.groups.Load(other); n != 0 {
				f.t.Errorf("%s: %d groups have a link to %s", b.name, n, other)
			}
		}
		if unlock, free := b.groups.Names.TryLock("g1", ""); free {
			unlock()
		} else {
			f.t.Errorf("%s: group g1 is still being changed", b.name)
		}
	}
}
