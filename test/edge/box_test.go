package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

// site is a box with a daemon and one port, on a switch with a source and three receivers whose
// hosts have edges.
type site struct {
	*bed.Bed
	t      *testing.T
	box    *netns.NS
	daemon *boxes.Daemon
	asks   netip.AddrPort
	edges  []*edges.Edge
	group  *softgroup.Group
}

const written = 256 << 10 // bytes

func newSite(t *testing.T, ipv6 bool, engine string) *site {
	t.Helper()
	return newSiteWith(t, ipv6, engine, nil)
}

// newSiteWith is newSite whose last host has no edge but what inWire puts in front of it, which
// returns the box's keys for that; nil: it has one.
func newSiteWith(t *testing.T, ipv6 bool, engine string, inWire func(*site) string) *site {
	t.Helper()
	testlab.NeedRoot(t)
	path, err := build()
	testlab.Must(t, err)
	s := &site{t: t}
	s.Bed, err = bed.New(bed.Options{Hosts: 4, IPv6: ipv6})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, s.Bed.Close()) })
	testlab.Must(t, edges.Snoop(s.Bed.Box, bed.Bridge))
	ip, groupIPs, addresses := netip.MustParseAddr("10.77.3.10"), "10.77.3.200", "239.77.0.0/28"
	if ipv6 {
		ip, groupIPs, addresses = netip.MustParseAddr("fd00:4d::30a"), "fd00:4d::3c8", "ff15::4d00/124"
	}
	s.box, _, err = s.AddStick("box", ip)
	testlab.Must(t, err)
	t.Cleanup(func() { testlab.Must(t, s.box.Close()) })
	atHosts, keys := s.Hosts[1:], ""
	if inWire != nil {
		atHosts, keys = s.Hosts[1:3], inWire(s)
	}
	s.asks = netip.AddrPortFrom(ip, port)
	s.daemon = boxes.Launch(t, s.box, boxes.Ports("eth1")+
		fmt.Sprintf("hosts: {listen: \"%v\", groupIPs: [\"%s\"]}\nedges: {addresses: [\"%s\"]%s}\n", s.asks, groupIPs, addresses, keys))
	for _, h := range atHosts {
		e, err := edges.New(path, h.NS)
		testlab.Must(t, err)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the edge of %v:\n%s", h.IP, e.Log())
			}
			testlab.Must(t, e.Close())
		})
		testlab.Must(t, e.Start(s.asks))
		s.edges = append(s.edges, e)
	}
	s.group = &softgroup.Group{
		Name: "story", IP: s.GroupIP(), QPN: 0x21, Bytes: written, Keys: "engine: " + engine,
		State: func() string { return boxes.State(t, "story", s.daemon) },
	}
	s.group.Add(s.Hosts[0], softgroup.Sends, 17, 0xFFFFF0, 0)
	for i, h := range s.Hosts[1:] {
		s.group.Add(h, softgroup.Receives, roce.QPN(100+i), 0, roce.PSN(1000*i))
	}
	s.daemon.Create(t, s.group.Name, s.group.File())
	s.group.Connect(t)
	return s
}

func (s *site) shown() api.Group {
	s.t.Helper()
	g, err := s.daemon.Client().Group(s.t.Context(), s.group.Name)
	testlab.Must(s.t, err)
	return g
}

// sharing waits until as many receivers share, and returns the leg.
func (s *site) sharing(members int) (leg api.Share) {
	s.t.Helper()
	testlab.Eventually(s.t, testlab.Patience, fmt.Sprintf("%d receivers share", members), func() bool {
		g := s.shown()
		if members == 0 {
			return len(g.Shares) == 0
		}
		if len(g.Shares) != 1 {
			return false
		}
		leg = g.Shares[0]
		return leg.Members == members && leg.Working == members && !leg.Retired
	}, func() string {
		g := s.shown()
		return fmt.Sprintf("%+v %s %+v", g.Shares, g.CopiesOwn, s.copies())
	})
	return leg
}

// copies is what is shown of each receiver's copies.
func (s *site) copies() (list []string) {
	for _, m := range s.shown().Members {
		if m.Copies != "" {
			list = append(list, m.IP+" "+m.Copies)
		}
	}
	return list
}

// write lets the source write, and returns how many copies have left by the leg.
func (s *site) write() (shared uint64) {
	s.t.Helper()
	before := s.packets()
	s.group.Write(s.t, s.group.Members[0], 64<<10, nil)
	return s.packets() - before
}

func (s *site) packets() (sum uint64) {
	for _, leg := range s.shown().Shares {
		sum += leg.Packets
	}
	return sum
}

// packets are those of one write, and most of them leave by the leg: on a busy machine the source
// may send some again, which go to single receivers.
const (
	packets = written / softgroup.PathMTU
	most    = packets * 9 / 10
)

// Receivers whose edges have confirmed get one copy together, to the last byte, whether the kernel
// sends the copy or the daemon.
func TestReceiversShare(t *testing.T) {
	for _, c := range []struct {
		ipv6   bool
		engine string
	}{{false, "afxdp"}, {true, "afxdp"}, {false, "auto"}, {true, "auto"}} {
		ipv6, engine := c.ipv6, c.engine
		t.Run(fmt.Sprintf("IPv6 %t, engine %s", ipv6, engine), func(t *testing.T) {
			s := newSite(t, ipv6, engine)
			s.sharing(3)
			if engine == "auto" {
				testlab.Eventually(t, testlab.Patience, "the kernel has carried as many packets as a write has", func() bool {
					s.write()
					return s.shown().Engine.Carried >= packets
				}, func() string { return fmt.Sprintf("%+v", s.shown().Engine) })
			}
			if shared := s.write(); shared < most || shared > packets {
				t.Errorf("%d of %d packets were shared", shared, packets)
			}
			for _, m := range s.shown().Members[1:] {
				if m.Copies != "shared" {
					t.Errorf("%s: %s", m.IP, m.Copies)
				}
			}
			for _, h := range s.Hosts {
				if c := h.RNIC.Counters(); c.Rejected() != 0 {
					t.Errorf("%v refused frames: %v", h.IP, c.ByName())
				}
			}
		})
	}
}

// A receiver that leaves is in no generation any more: what its edge mapped so far, it maps no
// longer, and the others go on to share.
func TestAReceiverLeaves(t *testing.T) {
	s := newSite(t, false, "afxdp")
	before := s.sharing(3)
	s.write()
	left := s.group.Members[3]
	s.group.Members = s.group.Members[:3]
	if _, err := s.daemon.Client().UpdateGroup(t.Context(), s.group.Name, []byte(s.group.File())); err != nil {
		t.Fatal(err)
	}
	after := s.sharing(2)
	if after.QPN == before.QPN {
		t.Errorf("the leg of those that stay still has the QPN %d", after.QPN)
	}
	heard := left.RNIC.Counters()
	if shared := s.write(); shared < most || shared > packets {
		t.Errorf("%d of %d packets were shared", shared, packets)
	}
	now := left.RNIC.Counters()
	// The switch floods for a while. Without a mapping the copies are of no queue pair.
	now.Count[rnic.RejectQPN] = heard.Count[rnic.RejectQPN]
	if now != heard {
		t.Errorf("a queue pair of the receiver that has left got frames: %v, and before %v", now.ByName(), heard.ByName())
	}
	testlab.Eventually(t, testlab.Patience, "its edge has no mapping", func() bool {
		status, err := s.edges[2].Do("status")
		return err == nil && strings.Contains(status, " 0 mappings ")
	}, nil)
}

// A receiver whose edge is gone gets copies of its own, and everybody has the data all the same.
// When the edge is back it shares again.
func TestAnEdgeIsGone(t *testing.T) {
	s := newSite(t, false, "afxdp")
	s.sharing(3)
	s.write()
	e := s.edges[1]
	testlab.Must(t, e.Kill())
	if _, err := e.Do("remove"); err != nil {
		t.Fatal(err)
	}
	gone := s.group.Members[2]
	s.writeAround()
	if got := s.copies(); !slices.ContainsFunc(got, func(text string) bool {
		return strings.HasPrefix(text, gone.IP.String()+" own: shared copies do not arrive")
	}) {
		t.Errorf("%q", got)
	}
	testlab.Must(t, e.Start(s.asks))
	testlab.Eventually(t, testlab.Patience, "it shares again", func() bool {
		s.writeAround()
		legs := s.shown().Shares
		return len(legs) == 1 && legs[0].Working == 3
	}, func() string { return fmt.Sprint(s.copies()) })
}

// writeAround is write where a NIC may refuse frames: without an edge it sees shared copies until
// the switch forgets it.
func (s *site) writeAround() {
	s.t.Helper()
	x, err := s.group.Send(s.t.Context(), s.group.Members[0], 64<<10, nil)
	testlab.Must(s.t, err)
	for _, r := range s.group.Members[1:] {
		if !r.HasAt(0, x.Data) {
			s.t.Errorf("%v lacks the data", r.IP)
		}
	}
}

// A box that is killed and started again shares again, with edges that have gone on mapping.
func TestABoxIsKilled(t *testing.T) {
	s := newSite(t, false, "afxdp")
	s.sharing(3)
	s.write()
	testlab.Must(t, s.daemon.Kill())
	s.daemon.StartFor(t, s.box)
	boxes.Ready(t, s.group.Name, s.daemon)
	s.write()
	s.sharing(3)
	var shared uint64
	// A receiver that a busy machine keeps from answering has copies of its own for a while.
	testlab.Eventually(t, testlab.Patience, "most packets are shared", func() bool {
		shared = s.write()
		return shared >= most
	}, func() string { return fmt.Sprintf("%d of %d packets", shared, packets) })
	if shared > packets {
		t.Errorf("%d of %d packets were shared", shared, packets)
	}
}

// A group is told in the middle of a transfer to stop sharing, and then to share again. All
// receivers have all of the data, and no NIC gets a frame that a correct peer does not send.
func TestARunningGroupIsToldWhetherToShare(t *testing.T) {
	s := newSite(t, false, "afxdp")
	before := s.sharing(3)
	tell := func(copies string) {
		s.group.Keys = "engine: afxdp\ncopies: " + copies
		_, err := s.daemon.Client().UpdateGroup(t.Context(), s.group.Name, []byte(s.group.File()))
		testlab.Must(t, err)
	}
	s.group.Write(t, s.group.Members[0], 4<<10, func() { tell("own") })
	s.sharing(0)
	if g := s.shown(); g.CopiesOwn != "its file says copies: own" {
		t.Errorf("%q", g.CopiesOwn)
	}
	s.group.Write(t, s.group.Members[0], 4<<10, func() { tell("auto") })
	if after := s.sharing(3); after.QPN == before.QPN {
		t.Errorf("the leg still has the QPN %d", after.QPN)
	}
	if shared := s.write(); shared < most || shared > packets {
		t.Errorf("%d of %d packets were shared", shared, packets)
	}
}

// Groups that cannot share say so in a sentence.
func TestGroupsThatDoNotShare(t *testing.T) {
	s := newSite(t, false, "afxdp")
	s.sharing(3)
	if _, err := s.daemon.Client().RemoveGroup(t.Context(), s.group.Name); err != nil {
		t.Fatal(err)
	}
	s.group.Keys = "engine: afxdp\nrepair: off\n"
	s.daemon.Create(t, s.group.Name, s.group.File())
	if g := s.shown(); g.CopiesOwn != "the group is without repair" || len(g.Shares) != 0 {
		t.Errorf("%q, %+v", g.CopiesOwn, g.Shares)
	}
}
