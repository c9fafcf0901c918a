package matrix

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/etcd"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// box is a machine with a daemon.
type box struct {
	boxes.Running
	ns       *netns.NS
	start    func(context.Context) error
	stop     func() error
	kill     func() error
	stateDir string
	own      netip.Addr // of a box with one port
}

// lab is what a cell runs on. The group is created at the first box, to which the first host, its
// source, is attached.
type lab struct {
	t     *testing.T
	boxes []*box
	hosts []*bed.Host
	at    []*bed.Bed    // the bed of each host, whose box its packets go to
	ports []port        // of each host
	ip    netip.Addr    // of the first box, where the hosts are
	edges []*edges.Edge // of all hosts but the first, if these share a leg
	ca    *certs.Authority
	name  string // of the group
}

// port is an interface of a box that leads to a host.
type port struct {
	box  *box
	name string
}

const hosts = 6 // the source, four receivers, and one that may join

func newLab(t *testing.T, c matrix.Cell) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	l := &lab{t: t, name: groupName}
	o := bed.Options{Hosts: hosts, IPv6: c.Is("family", "ipv6"), LossPerMillion: 1}
	if c.Is("mtu", "4096") {
		o.MTU = 5000
	}
	switch c.Get("shape") {
	case "tree":
		l.buildTree(o)
	case "stick":
		l.buildStick(o, c)
	case "standby":
		l.buildStandby(o, c)
	case "etcd":
		l.buildBed(o, c, "", etcd.Start(l.t, 1))
	case "two-workers":
		o.Queues = 2
		l.buildBed(o, c, "workers: 2\n", nil)
	default:
		l.buildBed(o, c, "", nil)
	}
	for i, h := range l.hosts {
		in, out := 0, 0
		switch rate := 20_000; {
		case c.Is("loss", "legs") && i > 0:
			in = rate
		case c.Is("loss", "uplink") && i == 0:
			out = rate
		case c.Is("loss", "answers") && i == 0:
			in = rate
		case c.Is("loss", "answers"):
			out = rate
		}
		l.check(h.Loss.LoseEach(in, out))
	}
	return l
}

// buildBed makes a box with a port for each host. Its groups are in etcd, if there is a cluster.
func (l *lab) buildBed(o bed.Options, c matrix.Cell, lines string, cluster *etcd.Cluster) {
	b := l.newBed(o)
	lines += hostsLines(c, b.IP(), b.GroupIP()) + cmLines(c, b.GroupIP(), b.Hosts) + perftestLines(c)
	if cluster != nil {
		lines += l.storeLines(cluster, b.Box, "box")
	}
	at := l.daemon(b.Box, b.Ports(), lines)
	l.ip = b.IP()
	for _, h := range b.Hosts {
		l.add(b, h, port{at, h.Port.Name})
	}
}

// storeLines are the lines of rocastd.yaml with which a box has its groups in etcd.
func (l *lab) storeLines(cluster *etcd.Cluster, in *netns.NS, name string) string {
	if l.ca == nil {
		ca, err := certs.NewAuthority(l.t.TempDir())
		l.check(err)
		l.ca = ca
	}
	return cluster.Lines(l.t, in, l.ca, name)
}

// buildStick makes a switch with all hosts, and a box with one port on it.
func (l *lab) buildStick(o bed.Options, c matrix.Cell) {
	b := l.newBed(o)
	l.ip = b.IP().Prev()
	ns := l.stickOn(b, "stick", l.ip)
	at := l.daemon(ns, []string{"eth1"}, hostsLines(c, l.ip, b.GroupIP())+cmLines(c, b.GroupIP(), b.Hosts)+perftestLines(c))
	at.own = l.ip
	for _, h := range b.Hosts {
		l.add(b, h, port{at, "eth1"})
	}
	if c.Is("edge", "shared") {
		l.openEdges(b)
	}
}

// stickOn makes a box with one port, eth1, on the switch of a bed.
func (l *lab) stickOn(b *bed.Bed, name string, ip netip.Addr) *netns.NS {
	ns, _, err := b.AddStick(name, ip)
	l.permitted(err)
	l.t.Cleanup(func() { l.check(ns.Close()) })
	return ns
}

// buildStandby makes a switch with all hosts, and two boxes with one port each, whose groups are in
// etcd. The first one has the address and the MAC that the hosts know.
func (l *lab) buildStandby(o bed.Options, c matrix.Cell) {
	cluster, b := etcd.Start(l.t, 1), l.newBed(o)
	l.ip = b.IP().Prev().Prev()
	for i, name := range []string{"first", "second"} {
		own := b.IP().Next()
		if i > 0 {
			own = b.IP().Prev()
		}
		ns := l.stickOn(b, name, own)
		l.check(bed.RouteVirtually(ns))
		if i == 0 {
			l.check(bed.Hold(ns, l.ip))
		}
		l.daemon(ns, []string{"eth1"}, l.storeLines(cluster, ns, name)).own = own
	}
	for _, h := range b.Hosts {
		l.add(b, h, port{l.boxes[0], "eth1"})
	}
}

// buildTree makes two boxes with a router between them. The second one has two receivers, and the
// host that may join.
func (l *lab) buildTree(o bed.Options) {
	f := fabric.Build(l.t, o, fabric.Router, []int{hosts / 2, hosts / 2}, []int{0})
	set := boxes.Up(l.t, f, "root", "leaf")
	for _, b := range set.Boxes {
		at := &box{Running: b, ns: b.Box.Box, start: b.Start, stop: b.Stop, kill: b.Kill, stateDir: b.StateDir()}
		l.boxes = append(l.boxes, at)
		for _, h := range b.Hosts {
			l.add(b.Bed, h, port{at, h.Port.Name})
		}
	}
	l.ip = f.Boxes[0].IP()
}

func (l *lab) newBed(o bed.Options) *bed.Bed {
	b, err := bed.New(o)
	l.permitted(err)
	l.t.Cleanup(func() { l.check(b.Close()) })
	return b
}

func (l *lab) add(b *bed.Bed, h *bed.Host, p port) {
	l.hosts, l.at, l.ports = append(l.hosts, h), append(l.at, b), append(l.ports, p)
}

// daemon starts a daemon with these ports, and more lines of config.
func (l *lab) daemon(ns *netns.NS, ports []string, lines string) *box {
	d := boxes.Launch(l.t, ns, boxes.Ports(ports...)+lines)
	b := &box{
		Running: d, ns: ns, stop: d.Stop, kill: d.Kill, stateDir: d.StateDir(),
		start: func(ctx context.Context) error { return d.Start(ctx, ns) },
	}
	l.boxes = append(l.boxes, b)
	return b
}

func (l *lab) begin(b *box) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	l.check(b.start(ctx))
}

// patience bounds each step of a cell. A cell that holds never waits that long.
const patience = 40 * time.Second

func (l *lab) group() api.Group {
	l.t.Helper()
	g, err := l.boxes[0].Client().Group(l.t.Context(), l.name)
	l.check(err)
	return g
}

func (l *lab) state() string { return boxes.State(l.t, l.name, l.boxes...) }

func (l *lab) eventually(what string, done func() bool) {
	l.t.Helper()
	testlab.Eventually(l.t, patience, what, done, l.state)
}

func (l *lab) permitted(err error) {
	l.t.Helper()
	testlab.Permitted(l.t, err)
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil && !errors.Is(err, context.Canceled) {
		l.t.Fatal(err)
	}
}
