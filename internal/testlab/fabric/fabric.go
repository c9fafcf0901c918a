// Package fabric builds a lab of several boxes on one machine. Each box is a bed with hosts of its
// own subnet; links join the boxes. Between the ends of a link is one more namespace, a bridge or a
// plain router, which counts the RoCE packets that cross the link and may lose some.
//
//	hosts ─ box ─ up0 ── bridge or router ── up0 ─ box ─ hosts
package fabric

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Fabric is a lab. Close removes it.
type Fabric struct {
	Boxes []*Box
	Links []*Link
}

// Box is a bed with links to other boxes.
type Box struct {
	*bed.Bed
	links []string // the names of its ports to other boxes
}

// Between is what is between the two ends of a link.
type Between int

const (
	Bridge Between = iota // the ends are in one subnet
	Router                // the ends are in two subnets
	Flat                  // the ends are ports of the boxes' bridges: all hosts and boxes are in one network
	// Segment: a bridge that all links share whose first end is one box. That box has one port to
	// it. The Wire of a link is at the port of its second end.
	Segment
)

// Link joins two boxes.
type Link struct {
	Ends [2]End
	// Wire counts and loses packets: in is from the first end to the second, out is the way back.
	Wire *lossy.Link
	// Near counts at the port of the first end of a Segment's first link, and loses nothing.
	Near    *lossy.Link
	between *netns.NS
	shares  bool // between is that of another link, too
}

// Middle is the namespace between the ends. Its interface p0 leads to the first end, p1 to the
// other.
func (l *Link) Middle() *netns.NS { return l.between }

// End is one end of a link.
type End struct {
	Box *Box
	IP  netip.Addr
}

// Network is the subnet of the end.
func (e *End) Network() netip.Prefix {
	if e.IP.Is6() {
		return netip.PrefixFrom(e.IP, 64).Masked()
	}
	return netip.PrefixFrom(e.IP, 24).Masked()
}

// in is an address with the length of the end's network, as the kernel is told.
func (e *End) in(addr netip.Addr) string { return netip.PrefixFrom(addr, e.Network().Bits()).String() }

// firstNet is bed.Options.Net of the first box.
const firstNet = 81

// Build makes a fabric for a test: a box for each entry of hosts, with that many hosts, and a link
// from each box but the first to the box that above names. The links between the boxes lose as many
// packets as those of the hosts; o.Seed differs from box to box.
func Build(t testing.TB, o bed.Options, between Between, hosts, above []int) *Fabric {
	t.Helper()
	testlab.NeedRoot(t)
	f := &Fabric{}
	t.Cleanup(func() { testlab.Must(t, f.Close()) })
	add := f.AddBox
	if between == Flat {
		add = f.AddFlatBox
	}
	for i, n := range hosts {
		o.Hosts, o.Seed = n, uint32(100*(i+1))
		_, err := add(o)
		testlab.Permitted(t, err)
	}
	for i, up := range above {
		f.Link(t, up, i+1, between, o.LossPerMillion)
	}
	return f
}

// Link is Join for a test. The boxes are named by their numbers.
func (f *Fabric) Link(t testing.TB, a, b int, between Between, perMillion int) {
	t.Helper()
	_, err := f.Join(f.Boxes[a], f.Boxes[b], between, uint32(len(f.Links)+1), perMillion)
	testlab.Must(t, err)
}

// AddBox adds a box with a network of its own. Options.Net is set by the fabric.
func (f *Fabric) AddBox(o bed.Options) (*Box, error) {
	o.Net = byte(firstNet + len(f.Boxes))
	return f.add(o)
}

// AddFlatBox adds a box to the network of the first box. It is for links of kind Flat.
func (f *Fabric) AddFlatBox(o bed.Options) (*Box, error) {
	o.Net, o.Number = firstNet, byte(len(f.Boxes))
	return f.add(o)
}

func (f *Fabric) add(o bed.Options) (*Box, error) {
	b, err := bed.New(o)
	if err != nil {
		return nil, err
	}
	box := &Box{Bed: b}
	f.Boxes = append(f.Boxes, box)
	return box, nil
}

// Ports are the names of the box's ports, to hosts and to other boxes.
func (b *Box) Ports() []string { return append(b.Bed.Ports(), b.links...) }

// Join adds a link that loses perMillion of a million RoCE packets in each direction.
func (f *Fabric) Join(a, b *Box, between Between, seed uint32, perMillion int) (l *Link, err error) {
	if between == Segment {
		for _, first := range f.Links {
			if first.Ends[0].Box == a {
				return f.extend(first, b, seed, perMillion)
			}
		}
	}
	n := byte(len(f.Links))
	l = &Link{Ends: [2]End{{Box: a}, {Box: b}}}
	if l.between, err = a.Create(); err != nil {
		return nil, err
	}
	f.Links = append(f.Links, l)
	var middle [2]netns.Link
	for i := range l.Ends {
		if middle[i], err = l.plug(i, between, n); err != nil {
			return nil, fmt.Errorf("join two boxes: %w", err)
		}
	}
	if between == Router {
		err = l.route()
	} else {
		err = l.bridge(middle)
	}
	if err == nil && between == Segment {
		l.Wire, err = lossy.Attach(middle[1], seed, perMillion)
		if err == nil {
			l.Near, err = lossy.Attach(middle[0], seed, 0)
		}
	} else if err == nil {
		l.Wire, err = lossy.Attach(middle[0], seed, perMillion)
	}
	return l, err
}

// extend adds a link by the bridge of another one.
func (f *Fabric) extend(first *Link, b *Box, seed uint32, perMillion int) (l *Link, err error) {
	n := byte(len(f.Links))
	l = &Link{Ends: [2]End{first.Ends[0], {Box: b}}, between: first.between, shares: true}
	f.Links = append(f.Links, l)
	name := fmt.Sprintf("up%d", len(b.links))
	port, middle, err := netns.CreateVeth(b.Box, name, l.between, fmt.Sprintf("p%d", n+1), netns.VethOptions{MTU: b.MTU})
	if err != nil {
		return nil, err
	}
	b.links = append(b.links, name)
	if _, err := l.between.Exec("ethtool", "-K", middle.Name, "gro", "on"); err != nil {
		return nil, err
	}
	e := &l.Ends[1]
	e.IP = first.Ends[1].IP
	for range n {
		e.IP = e.IP.Next()
	}
	if _, err := l.between.Exec("ip", "link", "set", middle.Name, "master", "br0"); err != nil {
		return nil, err
	}
	if err := port.AddAddress(e.in(e.IP)); err != nil {
		return nil, err
	}
	l.Wire, err = lossy.Attach(middle, seed, perMillion)
	return l, err
}

// plug joins end i with the namespace in the middle, and gives it an address.
func (l *Link) plug(i int, between Between, n byte) (middle netns.Link, err error) {
	e := &l.Ends[i]
	name := fmt.Sprintf("up%d", len(e.Box.links))
	port, middle, err := netns.CreateVeth(e.Box.Box, name, l.between, fmt.Sprintf("p%d", i), netns.VethOptions{MTU: e.Box.MTU})
	if err != nil {
		return middle, err
	}
	e.Box.links = append(e.Box.links, name)
	// As in package bed: the end takes what XDP redirects to it.
	if _, err := l.between.Exec("ethtool", "-K", middle.Name, "gro", "on"); err != nil {
		return middle, err
	}
	if between == Flat {
		e.IP = e.Box.IP()
		_, err := e.Box.Box.Exec("ip", "link", "set", port.Name, "master", bed.Bridge)
		return middle, err
	}
	net, host := byte(201), byte(i+1)
	if between == Router {
		net, host = byte(202+i), 1
	}
	e.IP = netip.AddrFrom4([4]byte{10, net, n, host})
	if e.Box.IP().Is6() {
		e.IP = netip.AddrFrom16([16]byte{0: 0xFD, 3: net, 5: n, 15: host})
	}
	if between == Router {
		err = middle.AddAddress(e.in(e.IP.Next()))
	}
	return middle, errors.Join(err, port.AddAddress(e.in(e.IP)))
}

func (l *Link) bridge(middle [2]netns.Link) error {
	commands := [][]string{{"link", "add", "br0", "type", "bridge"}, {"link", "set", "br0", "up"}}
	for _, m := range middle {
		commands = append(commands, []string{"link", "set", m.Name, "master", "br0"})
	}
	for _, c := range commands {
		if _, err := l.between.Exec("ip", c...); err != nil {
			return err
		}
	}
	return nil
}

func (l *Link) route() error {
	forwarding := "net.ipv4.ip_forward"
	if l.Ends[0].IP.Is6() {
		forwarding = "net.ipv6.conf.all.forwarding"
	}
	errs := []error{l.between.Sysctl(forwarding, "1")}
	for i, e := range l.Ends {
		_, err := e.Box.Box.Exec("ip", "route", "add", l.Ends[1-i].Network().String(), "via", e.IP.Next().String())
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close removes the fabric.
func (f *Fabric) Close() error {
	var errs []error
	for _, l := range f.Links {
		if l.Wire != nil {
			errs = append(errs, l.Wire.Close())
		}
		if l.Near != nil {
			errs = append(errs, l.Near.Close())
		}
		if !l.shares {
			errs = append(errs, l.between.Close())
		}
	}
	for _, b := range f.Boxes {
		errs = append(errs, b.Bed.Close())
	}
	return errors.Join(errs...)
}
