package edge

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

// wire is a machine in front of a host, with an edge.
//
//	switch ── uplink [br0, with the wire's IP] tohost ── the host
type wire struct {
	*netns.NS
	ip   netip.Addr
	edge *edges.Edge
}

// insert puts a wire with an edge in front of a host.
func insert(t *testing.T, at *bed.Bed, h *bed.Host, ip netip.Addr) *wire {
	t.Helper()
	path, err := build()
	testlab.Must(t, err)
	w := &wire{ip: ip}
	w.NS, err = at.InsertWire(h, ip)
	testlab.Must(t, err)
	t.Cleanup(func() { testlab.Must(t, w.Close()) })
	w.edge, err = edges.New(path, w.NS, "--ip", h.IP.String(), "--wire", bed.WireUplink)
	testlab.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the edge in front of %v:\n%s", h.IP, w.edge.Log())
		}
		testlab.Must(t, w.edge.Close())
	})
	return w
}

// wireIP is an address of the site's network that no host has.
func (s *site) wireIP() netip.Addr {
	if s.IP().Is6() {
		return netip.MustParseAddr("fd00:4d::314")
	}
	return netip.MustParseAddr("10.77.3.20")
}

// newWiredSite is a site whose last receiver has its edge in the wire.
func newWiredSite(t *testing.T, ipv6 bool) (*site, *wire) {
	t.Helper()
	var w *wire
	s := newSiteWith(t, ipv6, "afxdp", func(s *site) string {
		last := s.Hosts[len(s.Hosts)-1]
		w = insert(t, s.Bed, last, s.wireIP())
		return fmt.Sprintf(", wires: [{ip: \"%v\", host: \"%v\"}]", w.ip, last.IP)
	})
	testlab.Must(t, w.edge.Start(s.asks))
	return s, w
}

// A host whose edge is in the wire shares as the others do, to the last byte. The edge may be
// killed and started again in the middle of a transfer. Removed, the wire still carries the host's
// own packets, and the host gets copies of its own.
func TestAnEdgeInTheWire(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %t", ipv6), func(t *testing.T) {
			s, w := newWiredSite(t, ipv6)
			host := s.Hosts[len(s.Hosts)-1]
			s.sharing(3)
			if shared := s.write(); shared < most || shared > packets {
				t.Errorf("%d of %d packets were shared", shared, packets)
			}
			for _, m := range s.shown().Members {
				if want := " at " + w.ip.String() + ": "; m.IP == host.IP.String() && !strings.Contains(m.Edge, want) {
					t.Errorf("the edge is shown as %q, which lacks %q", m.Edge, want)
				}
			}
			s.group.Write(t, s.group.Members[0], 4<<10, func() {
				testlab.Must(t, w.edge.Kill())
				testlab.Must(t, w.edge.Start(s.asks))
			})
			testlab.Eventually(t, testlab.Patience, "it shares again", func() bool {
				s.write()
				legs := s.shown().Shares
				return len(legs) == 1 && legs[0].Working == 3
			}, func() string { return fmt.Sprint(s.copies()) })
			// The group's queue pairs are the only ones that a NIC here may hear of.
			for _, h := range s.Hosts {
				if c := h.RNIC.Counters(); c.Rejected() != 0 {
					t.Errorf("%v refused frames: %v", h.IP, c.ByName())
				}
			}
			status, err := w.edge.Do("status")
			if err != nil || !strings.Contains(status, "uplink  xdp native frags  1 mappings  ") {
				t.Errorf("%v, %q", err, status)
			}

			testlab.Must(t, w.edge.Kill())
			said, err := w.edge.Do("remove")
			if want := "uplink has no program of rocast-edge any more\n"; err != nil || said != want {
				t.Errorf("%v, %q", err, said)
			}
			s.writeAround()
			ping(t, s.Hosts[0], host.IP, 56)
		})
	}
}

// A machine in the wire gets the mappings of the host that the box's config names, and of no other.
func TestAnEdgeThatAsksForAStranger(t *testing.T) {
	s, w := newWiredSite(t, false)
	s.sharing(3)
	path, err := build()
	testlab.Must(t, err)
	// At its port to the uplink it would see by itself that the host is not behind it.
	greedy, err := edges.New(path, w.NS, "--ip", s.Hosts[1].IP.String(), "--wire", bed.WireToHost)
	testlab.Must(t, err)
	t.Cleanup(func() { testlab.Must(t, greedy.Close()) })
	testlab.Must(t, greedy.Start(s.asks))
	want := fmt.Sprintf("%v may not ask for %v; edges: wires: in this box's rocastd.yaml says which address asks for which host", w.ip, s.Hosts[1].IP)
	testlab.Eventually(t, testlab.Patience, "it is told that it may not", func() bool {
		status, err := greedy.Do("status")
		return err == nil && strings.Contains(status, want) && strings.Contains(status, " 0 mappings ")
	}, greedy.Log)
	if shared := s.write(); shared < most || shared > packets {
		t.Errorf("%d of %d packets were shared", shared, packets)
	}
}

// A port that is not in the bridge to the host, or that is the one behind which the host is, has
// no shared copies for it, and the edge says so.
func TestAPortBesideTheWire(t *testing.T) {
	s, w := newWiredSite(t, false)
	for _, args := range []string{"link add beside type bridge", "link add port type veth peer name far", "link set port master beside", "link set beside up", "link set port up"} {
		_, err := w.NS.Exec("ip", strings.Fields(args)...)
		testlab.Must(t, err)
	}
	path, err := build()
	testlab.Must(t, err)
	for wire, want := range map[string]string{
		"port":         "which is not the bridge that has port; put the ports",
		bed.WireToHost: fmt.Sprintf("%v is behind %s itself; --wire names the bridge's other port", s.Hosts[3].IP, bed.WireToHost),
	} {
		e, err := edges.New(path, w.NS, "--ip", s.Hosts[3].IP.String(), "--wire", wire)
		testlab.Must(t, err)
		t.Cleanup(func() { testlab.Must(t, e.Close()) })
		testlab.Must(t, e.Start(s.asks))
		testlab.Eventually(t, testlab.Patience, "it says what is wrong", func() bool {
			status, err := e.Do("status")
			return err == nil && strings.Contains(status, want)
		}, e.Log)
	}
}

func ping(t *testing.T, from *bed.Host, to netip.Addr, bytes int) {
	t.Helper()
	said, err := from.NS.Exec("ping", "-q", "-c", "100", "-i", "0.002", "-s", fmt.Sprint(bytes), to.String())
	if err != nil || !strings.Contains(said, " 100 received, 0% packet loss") {
		t.Errorf("%v: %s", err, said)
	}
}

// A machine in the wire carries every frame that is not a shared copy as it is, in both directions,
// while its edge maps: of any type, with VLAN tags, of any size.
func TestAWireCarriesEveryFrame(t *testing.T) {
	testlab.NeedRoot(t)
	b, err := bed.New(bed.Options{Hosts: 2, MTU: 4200})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, b.Close()) })
	l := &lab{Bed: b, t: t, shared: netip.MustParseAddr("239.77.0.1")}
	testlab.Must(t, edges.Snoop(b.Box, bed.Bridge))
	l.box = l.openBox()
	behind, other := b.Hosts[0], b.Hosts[1]
	w := insert(t, b, behind, netip.MustParseAddr("10.77.3.20"))
	testlab.Must(t, w.edge.Start(l.box.address))
	h := &host{Host: behind, edge: w.edge}
	l.box.set(w.ip, api.EdgeAnswer{Number: 3, Mappings: []api.EdgeMapping{l.mapping(h, 0xabc, 500)}})
	l.loaded(h, w.ip, 3, true)

	// The switch asks who is still there, and hears the answer: more often than whoever joins says
	// so unasked.
	for range 4 {
		last := l.remembers(h) // before the question: the answer may come at once
		for _, querier := range []string{"0", "1"} {
			b.Box.MustRun(t, "ip link set %s type bridge mcast_querier %s", bed.Bridge, querier)
		}
		testlab.Eventually(t, testlab.Patience, "the switch has heard of the membership again", func() bool {
			now := l.remembers(h)
			again := now > last
			last = now
			return again
		}, nil)
	}
	for _, size := range []int{16, 64, 1024, 4096} {
		ping(t, other, behind.IP, size)
		ping(t, behind, other.IP, size)
	}
	for name, way := range map[string][2]*bed.Host{"to the host": {other, behind}, "from the host": {behind, other}} {
		var sent [][]byte
		for i, size := range []int{64, 65, 128, 576, 1024, 1500, 4096, 4214} {
			for j, kind := range [][]byte{
				{0x88, 0xb5},                                  // of an experiment
				{0x88, 0xcc},                                  // LLDP, to a host's address
				{0x81, 0, 0x00, 0x05, 0x88, 0xb5},             // VLAN 5
				{0x81, 0, 0xe0, 0x00, 0x88, 0xb5},             // a priority only
				{0x88, 0xa8, 0, 7, 0x81, 0, 0, 5, 0x88, 0xb5}, // VLAN 5 in VLAN 7
			} {
				to, from := way[1].RNIC.MAC(), way[0].RNIC.MAC()
				f := append(append(append([]byte(nil), to[:]...), from[:]...), kind...)
				sent = append(sent, append(f, bed.Random(max(0, size-len(f)), byte(16*i+j))...))
			}
		}
		// To all hosts, and to a multicast address that is not the edge's.
		sent = append(sent, addressed(sent[0], roce.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), addressed(sent[1], roce.MAC{0x33, 0x33, 0, 0, 0, 1}))
		carried(t, name, way[0], way[1], sent)
	}
	status, err := w.edge.Do("status")
	if want := "1 mappings  0 mapped  0 without mapping  0 refused\n"; err != nil || !strings.Contains(status, want) {
		t.Errorf("%v, %q, want %q", err, status, want)
	}
}

// remembers is for how many seconds the switch will know that a host has joined.
func (l *lab) remembers(h *host) (seconds float64) {
	for line := range strings.Lines(l.Box.MustRun(l.t, "bridge -s mdb show")) {
		if words := strings.Fields(line); strings.Contains(line, "port "+h.Port.Name+" grp "+l.shared.String()+" ") {
			_, err := fmt.Sscan(words[len(words)-1], &seconds)
			testlab.Must(l.t, err)
		}
	}
	return seconds
}

func addressed(frame []byte, to roce.MAC) []byte {
	frame = bytes.Clone(frame)
	copy(frame, to[:])
	return frame
}

// carried checks that each frame which one host sends is received by another, to the byte.
func carried(t *testing.T, name string, from, to *bed.Host, sent [][]byte) {
	t.Helper()
	in, out := -1, -1
	testlab.Must(t, to.NS.Do(func() (err error) { in, err = openRaw(to.End.Index); return err }))
	defer unix.Close(in)
	testlab.Must(t, from.NS.Do(func() (err error) { out, err = openRaw(from.End.Index); return err }))
	defer unix.Close(out)
	for _, f := range sent {
		testlab.Must(t, unix.Sendto(out, f, 0, &unix.SockaddrLinklayer{Ifindex: from.End.Index}))
	}
	missing := map[string]int{}
	for _, f := range sent {
		missing[string(f)]++
	}
	deadline := time.Now().Add(testlab.Patience)
	for len(missing) > 0 && time.Now().Before(deadline) {
		f, err := receiveRaw(in)
		testlab.Must(t, err)
		if missing[string(f)]--; missing[string(f)] <= 0 {
			delete(missing, string(f)) // or it is a frame of somebody else, such as ARP
		}
	}
	for f := range missing {
		t.Errorf("%s: a frame of %d bytes is missing: %x ...", name, len(f), f[:24])
	}
}

func openRaw(ifindex int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}
	if err == nil {
		all := uint16(unix.ETH_P_ALL)
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: ifindex})
	}
	return fd, err
}

// receiveRaw receives a frame as it was on the link: the kernel takes the first VLAN tag out of it.
// After a while without one it returns none.
func receiveRaw(fd int) ([]byte, error) {
	frame, control := make([]byte, 8<<10), make([]byte, 128)
	n, nControl, _, _, err := unix.Recvmsg(fd, frame, control, 0)
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	frame = frame[:n]
	messages, err := unix.ParseSocketControlMessage(control[:nControl])
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		var aux unix.TpacketAuxdata
		if _, err := binary.Decode(m.Data, binary.NativeEndian, &aux); err != nil {
			return nil, err
		}
		if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, aux.Vlan_tpid), aux.Vlan_tci)
			frame = append(append(bytes.Clone(frame[:12]), tag...), frame[12:]...)
		}
	}
	return frame, err
}
