package branches

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

const outageBytes = 8 << 20

// twoWays is two boxes with two links between them, each over a router. The boxes know each other
// by addresses of their loopbacks, so that the routes say which link is used.
//
//	source, receiver ── leaf1 ══ router ══ leaf2 ── receiver
//	                       ╚════ router ════╝  ╚═══ receiver, by a switch to two ports
type twoWays struct {
	t       *testing.T
	lab     *fabric.Fabric
	daemons []*boxes.Daemon
	group   *softgroup.Group
	source  *softgroup.Member
	mover   *netns.NS // the switch of the receiver that moves
}

func loopback(box int) netip.Addr { return netip.AddrFrom4([4]byte{10, 250, 0, byte(box + 1)}) }

func newTwoWays(t *testing.T) *twoWays {
	t.Helper()
	w := &twoWays{t: t}
	w.lab = fabric.Build(t, bed.Options{}, fabric.Router, []int{2, 3}, []int{0})
	w.lab.Link(t, 0, 1, fabric.Router, 0)
	w.switchLastHost()
	ca, err := certs.NewAuthority(t.TempDir())
	testlab.Must(w.t, err)
	for i, b := range w.lab.Boxes {
		w.prepare(i)
		for _, h := range b.Hosts[:2] {
			h.NS.MustRun(w.t, "ip route add default via %v", b.IP())
		}
		cert, key, err := ca.Issue(t.TempDir(), time.Now().Add(certs.Lifetime), fmt.Sprintf("leaf%d", i+1))
		testlab.Must(w.t, err)
		d, err := boxes.NewDaemon(boxes.MustProgram(t), boxes.Ports(b.Ports()...)+fmt.Sprintf(
			"api: {listen: 0.0.0.0:7471, cert: %s, key: %s, ca: %s}\n"+
				"neighbours: [{name: leaf%d, address: %v, local: %v, url: \"https://%v:7471\", behind: [%v]}]\n",
			cert, key, ca.Path, 2-i, loopback(1-i), loopback(i), loopback(1-i), netip.PrefixFrom(w.lab.Boxes[1-i].IP(), 22).Masked()))
		testlab.Must(w.t, err)
		t.Cleanup(func() { testlab.Must(w.t, d.Remove()) })
		w.daemons = append(w.daemons, d)
	}
	w.routes("primary")
	for i, d := range w.daemons {
		d.StartFor(t, w.lab.Boxes[i].Box)
	}
	w.create()
	return w
}

// switchLastHost puts a switch between the host that moves and the ports of the last two hosts; the
// very last host is not used.
func (w *twoWays) switchLastHost() {
	b := w.lab.Boxes[1]
	w.mover = netns.New(w.t)
	b.Box.MustRun(w.t, "ip link set eth2 netns %s", w.mover.Name())
	_, _, err := netns.CreateVeth(b.Box, "eth2", w.mover, "m2", netns.VethOptions{})
	testlab.Must(w.t, err)
	b.Box.MustRun(w.t, "ip link set eth2 master %s", bed.Bridge)
	b.Hosts[2].NS.MustRun(w.t, "ip link set eth0 netns %s name m3", w.mover.Name())
	w.mover.MustRun(w.t, "ip link add br0 type bridge")
	for _, name := range []string{"eth2", "m2", "m3"} {
		w.mover.MustRun(w.t, "ip link set %s master br0", name)
	}
	for _, name := range []string{"br0", "eth2", "m2"} {
		w.mover.MustRun(w.t, "ip link set %s up", name)
	}
	w.mover.MustRun(w.t, "ethtool -K m2 gro on")
}

// prepare gives a box the address of its loopback, and tells the routers the way there.
func (w *twoWays) prepare(i int) {
	b := w.lab.Boxes[i]
	b.Box.MustRun(w.t, "ip addr add %v/32 dev lo", loopback(i))
	testlab.Must(w.t, b.Box.Sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", "1"))
	for _, l := range w.lab.Links {
		l.Middle().MustRun(w.t, "ip route add %v via %v", loopback(i), l.Ends[i].IP)
	}
}

// routes sets the ways between the boxes: "primary" is by the first link and, if that is down, by
// the second; "secondary" is by the second one; "both" is by both. "crossed" is by both too, in
// another order at the second box: the kernel chooses by a hash of the address, so that the boxes
// choose the same link either with "both" or with "crossed", and different ones with the other.
func (w *twoWays) routes(how string) {
	for i, b := range w.lab.Boxes {
		via := func(link int) netip.Addr { return w.lab.Links[link].Ends[i].IP.Next() }
		to := fmt.Sprintf("%v/32", loopback(1-i))
		switch how {
		case "primary":
			b.Box.MustRun(w.t, "ip route replace %s metric 100 via %v", to, via(0))
			b.Box.MustRun(w.t, "ip route replace %s metric 200 via %v", to, via(1))
		case "secondary":
			b.Box.MustRun(w.t, "ip route del %s metric 100", to)
		case "both", "crossed":
			first := 0
			if how == "crossed" {
				first = i
			}
			b.Box.MustRun(w.t, "ip route replace %s metric 100 nexthop via %v nexthop via %v", to, via(first), via(1-first))
		case "first", "second":
			b.Box.MustRun(w.t, "ip route replace %s metric 100 via %v", to, via(map[string]int{"first": 0, "second": 1}[how]))
		}
	}
}

// create makes the group, and connects its members.
func (w *twoWays) create() {
	w.t.Helper()
	first, second := w.lab.Boxes[0], w.lab.Boxes[1]
	w.group = newGroup(first.GroupIP(), outageBytes)
	w.group.Keys = "repair: local"
	w.group.State = func() string { return boxes.State(w.t, groupName, w.daemons...) }
	w.source = w.group.Add(first.Hosts[0], softgroup.Sends, sourceQPN, sourcePSN, 0)
	for i, h := range []*bed.Host{first.Hosts[1], second.Hosts[0], second.Hosts[1]} {
		w.group.Add(h, softgroup.Receives, roce.QPN(100+i), 0, roce.PSN(5000*i))
	}
	w.daemons[0].Create(w.t, groupName, w.group.File())
	w.ready()
	w.group.Connect(w.t)
}

// ready waits until the group is ready at both boxes.
func (w *twoWays) ready() {
	w.t.Helper()
	boxes.Ready(w.t, groupName, w.daemons...)
}

// write lets the source write to all receivers, and returns the longest time between two
// completions. midway is called when half of the WRITEs are complete.
func (w *twoWays) write(midway func()) (outage time.Duration) {
	w.t.Helper()
	return w.group.Write(w.t, w.source, 64<<10, midway).Outage
}

// linkInUse is the link by which the routes lead now.
func (w *twoWays) linkInUse() (inUse int) {
	w.t.Helper()
	before := w.passed(0)
	w.write(nil)
	if w.passed(0) > before+outageBytes/softgroup.PathMTU/2 {
		return 0
	}
	return 1
}

// passed is how many packets of data a link has carried.
func (w *twoWays) passed(link int) uint64 {
	w.t.Helper()
	down, _, err := w.lab.Links[link].Wire.Passed()
	testlab.Must(w.t, err)
	return down
}

// The network changes in the middle of a transfer. The queue pairs live within their retries, and
// every receiver gets all data. The test prints how long the source made no progress.
func TestWhatAChangeOfTheNetworkCosts(t *testing.T) {
	w := newTwoWays(t)
	both := func(l *fabric.Link, state string) {
		for _, name := range []string{"p0", "p1"} {
			l.Middle().MustRun(w.t, "ip link set %s %s", name, state)
		}
	}
	inUse, moves := 0, true
	for _, c := range []struct {
		what          string
		before, event func()
	}{
		{"the route changes", func() {}, func() { w.routes("secondary") }},
		{"a link goes down", func() { w.routes("primary") }, func() { both(w.lab.Links[0], "down") }},
		{"a member of ECMP is withdrawn", func() {
			both(w.lab.Links[0], "up")
			for i := range w.lab.Boxes { // the kernel has removed what led through the link
				w.lab.Links[0].Middle().MustRun(w.t, "ip route replace %v via %v", loopback(i), w.lab.Links[0].Ends[i].IP)
			}
			w.routes("both")
			inUse = w.linkInUse()
		}, func() { w.routes([]string{"second", "first"}[inUse]) }},
		{"a member of ECMP in another order is withdrawn", func() {
			w.routes("crossed")
			inUse = w.linkInUse()
		}, func() { w.routes([]string{"second", "first"}[inUse]) }},
		{"nothing happens", func() { moves = false }, func() {}},
		{"a neighbour crashes and comes back", func() {}, func() { testlab.Must(w.t, w.daemons[1].Kill()); w.daemons[1].StartFor(t, w.lab.Boxes[1].Box) }},
		{"a receiver moves to another port", func() {}, func() {
			w.mover.MustRun(w.t, "ip link set m2 down")
			w.mover.MustRun(w.t, "ip link set m3 up")
		}},
		{"a receiver gets another MAC", func() {}, func() {
			to, mac := w.group.Members[2], roce.MAC{2, 0, 0, 0, 0x77, 0x77}
			to.NS.MustRun(w.t, "ip link set %s address %s", to.End.Name, net.HardwareAddr(mac[:]))
			to.RNIC.SetMAC(mac)
			to.Renamed = true
		}},
		{"the source gets another MAC", func() {}, func() {
			from, mac := w.lab.Boxes[0].Hosts[0], roce.MAC{2, 0, 0, 0, 0x88, 0x88}
			from.NS.MustRun(w.t, "ip link set %s address %s", from.End.Name, net.HardwareAddr(mac[:]))
			from.RNIC.SetMAC(mac)
		}},
	} {
		c.before()
		w.ready()
		before := w.passed(1 - inUse)
		outage := w.write(c.event)
		t.Logf("%s: %v", c.what, outage.Round(time.Millisecond))
		if moves && w.passed(1-inUse) < before+outageBytes/softgroup.PathMTU/4 {
			t.Errorf("%s: the data have not moved to the other link", c.what)
		}
	}
}
