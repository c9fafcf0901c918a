package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/etcd"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// box is a machine with a daemon.
type box struct {
	ns       *netns.NS
	client   *client.Client
	start    func(context.Context) error
	stop     func() error
	kill     func() error
	log      func() string
	stateDir string
	own      netip.Addr // of a box with one port
}

// lab is what a cell runs on. The group is created at the first box, to which the first host, its
// source, is attached.
type lab struct {
	t     *testing.T
	boxes []*box
	hosts []*bed.Host
	at    []*bed.Bed // the bed of each host, whose box its packets go to
	ports []port     // of each host
	ip    netip.Addr // of the first box, where the hosts are
	ca    *certs.Authority
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
	l := &lab{t: t}
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
	lines += hostsLines(c, b.IP(), b.GroupIP())
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
	cert, key, err := l.ca.Issue(l.t.TempDir(), time.Now().Add(certs.Lifetime), name)
	l.check(err)
	return fmt.Sprintf("store: etcd\netcd: {endpoints: [%q], lease: 60s}\napi: {listen: \"0.0.0.0:7471\", cert: %s, key: %s, ca: %s}\n",
		cluster.Reach(l.t, in), cert, key, l.ca.Path)
}

// buildStick makes a switch with all hosts, and a box with one port on it.
func (l *lab) buildStick(o bed.Options, c matrix.Cell) {
	b := l.newBed(o)
	l.ip = b.IP().Prev()
	ns := l.stickOn(b, o, "stick", l.ip)
	at := l.daemon(ns, []string{"eth1"}, hostsLines(c, l.ip, b.GroupIP()))
	at.own = l.ip
	for _, h := range b.Hosts {
		l.add(b, h, port{at, "eth1"})
	}
}

// stickOn makes a box with one port, eth1, on the switch of a bed.
func (l *lab) stickOn(b *bed.Bed, o bed.Options, name string, ip netip.Addr) *netns.NS {
	ns, err := b.Create()
	l.permitted(err)
	l.t.Cleanup(func() { l.check(ns.Close()) })
	end, _, err := netns.CreateVeth(ns, "eth1", b.Box, name, netns.VethOptions{MTU: o.MTU})
	l.check(err)
	l.check(end.AddAddress(netip.PrefixFrom(ip, b.Network().Bits()).String()))
	l.run(b.Box, "ip", "link", "set", name, "master", bed.Bridge)
	l.run(b.Box, "ethtool", "-K", name, "gro", "on") // so that it takes what XDP redirects to it
	return ns
}

// The interface of a virtual router, as keepalived makes one with use_vmac.
const (
	virtualMAC  = "00:00:5e:00:01:33"
	virtualName = "vrrp51"
)

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
		ns := l.stickOn(b, o, name, own)
		l.check(ns.Sysctl("net.ipv4.conf.eth1.arp_ignore", "1")) // the address has the virtual MAC only
		l.run(ns, "ip", "link", "add", "link", "eth1", "name", virtualName, "address", virtualMAC, "type", "macvlan", "mode", "private")
		l.check(ns.Sysctl("net.ipv4.conf."+virtualName+".arp_notify", "1")) // say so to the switch when it comes up
		if i == 0 {
			l.hold(ns)
		}
		l.daemon(ns, []string{"eth1"}, l.storeLines(cluster, ns, name)).own = own
	}
	for _, h := range b.Hosts {
		l.add(b, h, port{l.boxes[0], "eth1"})
	}
}

// hold gives the hosts' address, with its MAC, to a box.
func (l *lab) hold(ns *netns.NS) {
	l.run(ns, "ip", "address", "add", netip.PrefixFrom(l.ip, l.ip.BitLen()).String(), "dev", virtualName, "nodad")
	l.run(ns, "ip", "link", "set", virtualName, "up")
}

// release takes them away.
func (l *lab) release(ns *netns.NS) {
	l.run(ns, "ip", "address", "del", netip.PrefixFrom(l.ip, l.ip.BitLen()).String(), "dev", virtualName)
	l.run(ns, "ip", "link", "set", virtualName, "down")
}

// buildTree makes two boxes with a router between them. The second one has two receivers, and the
// host that may join.
func (l *lab) buildTree(o bed.Options) {
	f := &fabric.Fabric{}
	l.t.Cleanup(func() { l.check(f.Close()) })
	for range 2 {
		o.Hosts = hosts / 2
		_, err := f.AddBox(o)
		l.permitted(err)
	}
	_, err := f.Join(f.Boxes[0], f.Boxes[1], fabric.Router, 1, 0)
	l.check(err)
	set, err := boxes.New(f, filepath.Dir(boxes.MustProgram(l.t)), "root", "leaf")
	l.check(err)
	l.t.Cleanup(func() { l.check(set.Close()) })
	for i, b := range set.Boxes {
		l.boxes = append(l.boxes, &box{
			ns: b.Box.Box, client: b.Client(), start: b.Start, stop: b.Stop, kill: b.Kill, log: b.Log,
		})
		l.begin(l.boxes[i])
		for _, h := range b.Hosts {
			l.add(b.Bed, h, port{l.boxes[i], h.Port.Name})
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
		ns: ns, client: d.Client(), stop: d.Stop, kill: d.Kill, log: d.Log, stateDir: d.StateDir(),
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
	g, err := l.boxes[0].client.Group(l.t.Context(), groupName)
	l.check(err)
	return g
}

func (l *lab) state() string {
	var s strings.Builder
	for i, b := range l.boxes {
		g, err := b.client.Group(context.WithoutCancel(l.t.Context()), groupName)
		fmt.Fprintf(&s, "box %d: %v, %s, %s, counters %v\n", i, err, g.State, g.Reason, g.Counters)
		for _, m := range g.Members {
			fmt.Fprintf(&s, "  %s %s %s %s\n", m.IP, m.State, m.Part, m.Reason)
		}
		lines := strings.Split(b.log(), "\n")
		fmt.Fprintln(&s, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
	return s.String()
}

func (l *lab) eventually(what string, done func() bool) {
	l.t.Helper()
	testlab.Eventually(l.t, patience, what, func() bool {
		if done() {
			return true
		}
		time.Sleep(time.Millisecond) // the daemon has to be asked
		return false
	}, l.state)
}

func (l *lab) run(ns *netns.NS, name string, args ...string) {
	l.t.Helper()
	_, err := ns.Exec(name, args...)
	l.check(err)
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
