package branches

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

const (
	outageBytes = 8 << 20
	writeBytes  = 64 << 10
)

// twoWays is two boxes with two links between them, each over a router. The boxes know each other
// by addresses of their loopbacks, so that the routes say which link is used.
//
//	source, receiver ── leaf1 ══ router ══ leaf2 ── receiver
//	                       ╚════ router ════╝  ╚═══ receiver, by a switch to two ports
type twoWays struct {
	t         *testing.T
	lab       *fabric.Fabric
	daemons   [2]*boxes.Daemon
	source    *endpoint.QP
	receivers []*receiver
	mover     *netns.NS // the switch of the receiver that moves
	changed   *receiver // that has another MAC than at first
	writes    byte
}

func loopback(box int) netip.Addr { return netip.AddrFrom4([4]byte{10, 250, 0, byte(box + 1)}) }

func newTwoWays(t *testing.T) *twoWays {
	t.Helper()
	testlab.NeedRoot(t)
	w := &twoWays{t: t, lab: &fabric.Fabric{}}
	t.Cleanup(func() { w.check(w.lab.Close()) })
	for _, hosts := range []int{2, 3} {
		_, err := w.lab.AddBox(bed.Options{Hosts: hosts})
		w.check(err)
	}
	for range 2 {
		_, err := w.lab.Join(w.lab.Boxes[0], w.lab.Boxes[1], fabric.Router, 1, 0)
		w.check(err)
	}
	w.switchLastHost()
	ca, err := certs.NewAuthority(t.TempDir())
	w.check(err)
	for i, b := range w.lab.Boxes {
		w.prepare(i)
		for _, h := range b.Hosts[:2] {
			w.run(h.NS, "ip route add default via %v", b.IP())
		}
		cert, key, err := ca.Issue(t.TempDir(), time.Now().Add(certs.Lifetime), fmt.Sprintf("leaf%d", i+1))
		w.check(err)
		w.daemons[i], err = boxes.NewDaemon(boxes.MustProgram(t), boxes.Ports(b.Ports()...)+fmt.Sprintf(
			"api: {listen: 0.0.0.0:7471, cert: %s, key: %s, ca: %s}\n"+
				"neighbours: [{name: leaf%d, address: %v, local: %v, url: \"https://%v:7471\", behind: [%v]}]\n",
			cert, key, ca.Path, 2-i, loopback(1-i), loopback(i), loopback(1-i), netip.PrefixFrom(w.lab.Boxes[1-i].IP(), 22).Masked()))
		w.check(err)
		t.Cleanup(func() { w.check(w.daemons[i].Remove()) })
	}
	w.routes("primary")
	for i := range w.daemons {
		w.start(i)
	}
	w.create()
	return w
}

// switchLastHost puts a switch between the host that moves and the ports of the last two hosts; the
// very last host is not used.
func (w *twoWays) switchLastHost() {
	b := w.lab.Boxes[1]
	w.mover = netns.New(w.t)
	w.run(b.Box, "ip link set eth2 netns %s", w.mover.Name())
	_, _, err := netns.CreateVeth(b.Box, "eth2", w.mover, "m2", netns.VethOptions{})
	w.check(err)
	w.run(b.Box, "ip link set eth2 master %s", bed.Bridge)
	w.run(b.Hosts[2].NS, "ip link set eth0 netns %s name m3", w.mover.Name())
	w.run(w.mover, "ip link add br0 type bridge")
	for _, name := range []string{"eth2", "m2", "m3"} {
		w.run(w.mover, "ip link set %s master br0", name)
	}
	for _, name := range []string{"br0", "eth2", "m2"} {
		w.run(w.mover, "ip link set %s up", name)
	}
	w.run(w.mover, "ethtool -K m2 gro on")
}

// prepare gives a box the address of its loopback, and tells the routers the way there.
func (w *twoWays) prepare(i int) {
	b := w.lab.Boxes[i]
	w.run(b.Box, "ip addr add %v/32 dev lo", loopback(i))
	w.check(b.Box.Sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", "1"))
	for _, l := range w.lab.Links {
		w.run(l.Middle(), "ip route add %v via %v", loopback(i), l.Ends[i].IP)
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
			w.run(b.Box, "ip route replace %s metric 100 via %v", to, via(0))
			w.run(b.Box, "ip route replace %s metric 200 via %v", to, via(1))
		case "secondary":
			w.run(b.Box, "ip route del %s metric 100", to)
		case "both", "crossed":
			first := 0
			if how == "crossed" {
				first = i
			}
			w.run(b.Box, "ip route replace %s metric 100 nexthop via %v nexthop via %v", to, via(first), via(1-first))
		case "first", "second":
			w.run(b.Box, "ip route replace %s metric 100 via %v", to, via(map[string]int{"first": 0, "second": 1}[how]))
		}
	}
}

func (w *twoWays) run(in *netns.NS, format string, args ...any) {
	w.t.Helper()
	words := strings.Fields(fmt.Sprintf(format, args...))
	_, err := in.Exec(words[0], words[1:]...)
	w.check(err)
}

func (w *twoWays) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *twoWays) start(i int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	w.check(w.daemons[i].Start(ctx, w.lab.Boxes[i].Box))
}

func (w *twoWays) create() {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	ip := w.lab.Boxes[0].GroupIP()
	hosts := []*bed.Host{w.lab.Boxes[0].Hosts[1], w.lab.Boxes[1].Hosts[0], w.lab.Boxes[1].Hosts[1]}
	var text strings.Builder
	fmt.Fprintf(&text, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nrepair: local\nmemory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n"+
		"  - {ip: %v, qpn: 17, psn: %d, role: source}\n",
		groupName, ip, groupQPN, pathMTU, memoryVA, outageBytes, memoryKey, w.lab.Boxes[0].Hosts[0].IP, sourcePSN)
	for i, h := range hosts {
		fmt.Fprintf(&text, "  - {ip: %v, qpn: %d, psn: %d, regions: {va: 0, length: %d, rkey: 7}}\n", h.IP, 100+i, 5000*i, outageBytes)
	}
	if _, err := w.daemons[0].Client().CreateGroup(ctx, []byte(text.String())); err != nil {
		t.Fatalf("%v\n%s", err, w.logs())
	}
	w.ready()
	connect := func(h *bed.Host, qpn roce.QPN, sends, expects roce.PSN) *endpoint.QP {
		qp, err := h.RNIC.NewQP(patient(qpn, sends))
		w.check(err)
		within, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		w.check(qp.Connect(within, endpoint.Peer{IP: ip, QPN: groupQPN, PSN: expects}))
		return qp
	}
	for i, h := range hosts {
		r := &receiver{Host: h, memory: make([]byte, outageBytes)}
		w.receivers = append(w.receivers, r)
		w.check(h.RNIC.Register(rnic.Region{VA: 0, RKey: 7, Access: rnic.RemoteWrite, Bytes: r.memory}))
		connect(h, roce.QPN(100+i), 0, roce.PSN(5000*i))
	}
	w.source = connect(w.lab.Boxes[0].Hosts[0], 17, sourcePSN, 0)
}

func (w *twoWays) logs() string { return w.daemons[0].Log() + "\n" + w.daemons[1].Log() }

// ready waits until all members are reached.
func (w *twoWays) ready() {
	w.t.Helper()
	testlab.Eventually(w.t, patience, "the tree is ready", func() bool {
		for _, d := range w.daemons {
			if g, err := d.Client().Group(w.t.Context(), groupName); err != nil || g.State != api.Ready {
				return false
			}
		}
		return true
	}, w.logs)
}

// write fills the group's memory and returns the longest time between two completions. midway is
// called when half of the WRITEs are complete. All receivers must have the data in the end.
func (w *twoWays) write(midway func()) (outage time.Duration) {
	w.t.Helper()
	w.writes++
	data := bed.Random(outageBytes, w.writes)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	outage, err := bed.Write(ctx, w.source, rnic.Remote{VA: memoryVA, RKey: memoryKey}, data, writeBytes, midway)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.logs())
	}
	for _, r := range w.receivers {
		err := r.CheckReceived(r.memory, data)
		if c := r.RNIC.Counters(); r == w.changed && r.Has(r.memory, data) && c.Rejected() == c.Get(rnic.RejectDstMAC) {
			err = nil // what went to its old MAC
		}
		if err != nil {
			w.t.Error(err)
		}
	}
	if err := bed.CheckResponses(w.source); err != nil {
		w.t.Error(err)
	}
	return outage
}

// linkInUse is the link by which the routes lead now.
func (w *twoWays) linkInUse() (inUse int) {
	w.t.Helper()
	before := w.passed(0)
	w.write(nil)
	if w.passed(0) > before+outageBytes/pathMTU/2 {
		return 0
	}
	return 1
}

// passed is how many packets of data a link has carried.
func (w *twoWays) passed(link int) uint64 {
	w.t.Helper()
	down, _, err := w.lab.Links[link].Wire.Passed()
	w.check(err)
	return down
}

// The network changes in the middle of a transfer. The queue pairs live within their retries, and
// every receiver gets all data. The test prints how long the source made no progress.
func TestWhatAChangeOfTheNetworkCosts(t *testing.T) {
	w := newTwoWays(t)
	both := func(l *fabric.Link, state string) {
		for _, name := range []string{"p0", "p1"} {
			w.run(l.Middle(), "ip link set %s %s", name, state)
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
				w.run(w.lab.Links[0].Middle(), "ip route replace %v via %v", loopback(i), w.lab.Links[0].Ends[i].IP)
			}
			w.routes("both")
			inUse = w.linkInUse()
		}, func() { w.routes([]string{"second", "first"}[inUse]) }},
		{"a member of ECMP in another order is withdrawn", func() {
			w.routes("crossed")
			inUse = w.linkInUse()
		}, func() { w.routes([]string{"second", "first"}[inUse]) }},
		{"nothing happens", func() { moves = false }, func() {}},
		{"a neighbour crashes and comes back", func() {}, func() { w.check(w.daemons[1].Kill()); w.start(1) }},
		{"a receiver moves to another port", func() {}, func() {
			w.run(w.mover, "ip link set m2 down")
			w.run(w.mover, "ip link set m3 up")
		}},
		{"a receiver gets another MAC", func() {}, func() {
			to, mac := w.receivers[1], roce.MAC{2, 0, 0, 0, 0x77, 0x77}
			w.run(to.NS, "ip link set %s address %s", to.End.Name, net.HardwareAddr(mac[:]))
			to.RNIC.SetMAC(mac)
			w.changed = to
		}},
		{"the source gets another MAC", func() {}, func() {
			from, mac := w.lab.Boxes[0].Hosts[0], roce.MAC{2, 0, 0, 0, 0x88, 0x88}
			w.run(from.NS, "ip link set %s address %s", from.End.Name, net.HardwareAddr(mac[:]))
			from.RNIC.SetMAC(mac)
		}},
	} {
		c.before()
		w.ready()
		before := w.passed(1 - inUse)
		outage := w.write(c.event)
		t.Logf("%s: %v", c.what, outage.Round(time.Millisecond))
		if moves && w.passed(1-inUse) < before+outageBytes/pathMTU/4 {
			t.Errorf("%s: the data have not moved to the other link", c.what)
		}
	}
}
