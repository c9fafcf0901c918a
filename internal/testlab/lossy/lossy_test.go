package lossy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Of RoCE packets about the given share is lost in each direction. Other packets pass.
func TestALinkLosesItsShareOfRoCEPackets(t *testing.T) {
	for _, perMillion := range []int{0, 300_000, 1_000_000} {
		for _, first := range []int{perMillion, 1_000_000 - perMillion} {
			for family, f := range families {
				t.Run(fmt.Sprintf("%s, %d, first %d", family, perMillion, first), func(t *testing.T) {
					f.loses(t, first, perMillion)
				})
			}
		}
	}
}

// family is an address family, with the addresses of both ends of a link.
type family struct {
	left, right string
	bits        int
}

var families = map[string]family{
	"IPv4": {"10.0.0.1", "10.0.0.2", 24},
	"IPv6": {"fd00::1", "fd00::2", 64},
}

// loses expects that a link loses its share of packets. At first it loses another share.
func (f family) loses(t *testing.T, first, perMillion int) {
	const packets = 2000
	a, b := f.namespace(t), f.namespace(t)
	left, right := netns.Veth(t, a, "p0", b, "p1", netns.VethOptions{})
	for _, c := range []struct {
		end  netns.Link
		ip   string
		peer netns.Link
		far  string
	}{{left, f.left, right, f.right}, {right, f.right, left, f.left}} {
		if err := c.end.AddAddress(fmt.Sprintf("%s/%d", c.ip, f.bits)); err != nil {
			t.Fatal(err)
		}
		if err := c.end.AddNeighbour(c.far, c.peer.MAC); err != nil {
			t.Fatal(err)
		}
	}
	link, err := Attach(right, 7, first)
	if err != nil {
		t.Fatal(err)
	}
	if first != perMillion {
		if err := link.Lose(perMillion); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(direction int) (lost, passed int) {
		lostIn, lostOut, errLost := link.Lost()
		in, out, errPassed := link.Passed()
		if err := errors.Join(errLost, errPassed); err != nil {
			t.Fatal(err)
		}
		return int([2]uint64{lostIn, lostOut}[direction]), int([2]uint64{in, out}[direction])
	}
	for _, port := range []string{"4791", "4790"} {
		l, r := listen(t, a, net.JoinHostPort(f.left, port)), listen(t, b, net.JoinHostPort(f.right, port))
		for direction, way := range [2][2]*net.UDPConn{{l, r}, {r, l}} {
			lostBefore, passedBefore := counts(direction)
			arrived := transfer(t, way[0], way[1], packets, func() int { lost, _ := counts(direction); return lost - lostBefore })
			lost, passed := counts(direction)
			lost, passed = lost-lostBefore, passed-passedBefore
			switch {
			case port == "4790" && (arrived != packets || lost+passed != 0):
				t.Errorf("direction %d: of %d packets to another port %d arrived, %d count as lost and %d as passed",
					direction, packets, arrived, lost, passed)
			case port == "4791" && (arrived != passed || lost+passed != packets):
				t.Errorf("direction %d: of %d RoCE packets %d arrived, %d count as lost and %d as passed",
					direction, packets, arrived, lost, passed)
			case port == "4791" && !isShare(lost, packets, perMillion):
				t.Errorf("direction %d: %d of %d RoCE packets were lost, which is not about %d of a million", direction, lost, packets, perMillion)
			}
		}
	}
	if err := link.Close(); err != nil {
		t.Fatal(err)
	}
}

// A link that loses packets of all protocols loses those of other ports, too, in both directions.
func TestALinkLosesAllIPPackets(t *testing.T) {
	for family, f := range families {
		a, b := f.namespace(t), f.namespace(t)
		left, right := netns.Veth(t, a, "p0", b, "p1", netns.VethOptions{})
		testlab.Must(t, errors.Join(
			left.AddAddress(fmt.Sprintf("%s/%d", f.left, f.bits)), left.AddNeighbour(f.right, right.MAC),
			right.AddAddress(fmt.Sprintf("%s/%d", f.right, f.bits)), right.AddNeighbour(f.left, left.MAC)))
		link, err := AttachToAll(right, 7, 1_000_000)
		testlab.Must(t, err)
		const packets = 20
		l, r := listen(t, a, net.JoinHostPort(f.left, "9")), listen(t, b, net.JoinHostPort(f.right, "9"))
		for direction, way := range [2][2]*net.UDPConn{{l, r}, {r, l}} {
			lost := func() int {
				in, out, err := link.Lost()
				testlab.Must(t, err)
				return int([2]uint64{in, out}[direction])
			}
			before := lost()
			arrived := transfer(t, way[0], way[1], packets, func() int { return lost() - before })
			if got := lost() - before; arrived != 0 || got < packets { // the kernel may send packets of its own, too
				t.Errorf("%s, direction %d: %d of %d packets arrived, and %d count as lost", family, direction, arrived, packets, got)
			}
		}
		testlab.Must(t, link.Close())
	}
}

// isShare reports whether so many lost packets are within five standard deviations of the binomial
// distribution.
func isShare(lost, packets, perMillion int) bool {
	p := float64(perMillion) / 1_000_000
	return math.Abs(float64(lost)-float64(packets)*p) <= 5*math.Sqrt(float64(packets)*p*(1-p))
}

func (f family) namespace(t *testing.T) *netns.NS {
	n := netns.New(t)
	if err := n.Sysctl("net.ipv6.conf.default.disable_ipv6", "0"); err != nil {
		t.Fatal(err)
	}
	return n
}

// Frames whose tag is in the frame are lost like all others; frames that are too short for what
// their EtherType says are not.
func TestTaggedFramesAreLost(t *testing.T) {
	a, b := netns.New(t), netns.New(t)
	left, right := netns.Veth(t, a, "p0", b, "p1", netns.VethOptions{})
	link, err := Attach(right, 7, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	// The protocol and the UDP port of a packet; everything else is 0.
	packet := func(protocolAt, headerBytes int, port uint16) []byte {
		b := make([]byte, headerBytes+60)
		b[protocolAt] = 17
		binary.BigEndian.PutUint16(b[headerBytes+2:], port)
		return b
	}
	roce4, roce6, other6 := packet(9, 20, 4791), packet(6, 40, 4791), packet(6, 40, 4790)
	for _, c := range []struct {
		name      string
		tagged    bool
		etherType uint16
		packet    []byte
		lost      uint64
	}{
		{"IPv4", false, 0x0800, roce4, 1}, {"IPv4, tagged", true, 0x0800, roce4, 1},
		{"IPv6", false, 0x86DD, roce6, 1}, {"IPv6, tagged", true, 0x86DD, roce6, 1},
		{"IPv6, another port", false, 0x86DD, other6, 0}, {"IPv6, another port, tagged", true, 0x86DD, other6, 0},
		{"IPv6, cut", false, 0x86DD, roce6[:47], 0}, {"IPv6, cut, tagged", true, 0x86DD, roce6[:47], 0},
		{"IPv4, cut, tagged", true, 0x0800, roce4[:27], 0},
	} {
		header := make([]byte, 12) // of Ethernet, without addresses
		if c.tagged {
			header = append(header, 0x81, 0, 0, 77)
		}
		frame := append(binary.BigEndian.AppendUint16(header, c.etherType), c.packet...)
		for direction, from := range []netns.Link{left, right} {
			lost := func() uint64 {
				in, out, err := link.Lost()
				if err != nil {
					t.Fatal(err)
				}
				return [2]uint64{in, out}[direction]
			}
			before := lost()
			sendRaw(t, from, frame)
			// A second packet, which is lost for certain, shows that the first one was seen.
			sendRaw(t, from, append(binary.BigEndian.AppendUint16(make([]byte, 12), 0x0800), roce4...))
			testlab.Eventually(t, testlab.Patience, "the second packet is lost", func() bool { return lost() > before+c.lost }, nil)
			if n := lost() - before; n != c.lost+1 {
				t.Errorf("%s, direction %d: %d packets were lost", c.name, direction, n)
			}
		}
	}
}

func sendRaw(t *testing.T, from netns.Link, frame []byte) {
	t.Helper()
	err := from.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: from.Index})
	})
	if err != nil && !errors.Is(err, unix.ENOBUFS) { // it says that the frame was lost at once
		t.Fatal(err)
	}
}

// Each direction has a share of its own.
func TestDirectionsLoseDifferently(t *testing.T) {
	a, b := netns.New(t), netns.New(t)
	left, right := netns.Veth(t, a, "p0", b, "p1", netns.VethOptions{})
	link, err := Attach(right, 7, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	frame := make([]byte, 14+20+60) // IPv4 and UDP to port 4791
	frame[12], frame[14+9] = 0x08, 17
	binary.BigEndian.PutUint16(frame[14+20+2:], 4791)
	for _, way := range [][2]int{{1_000_000, 0}, {0, 1_000_000}} {
		if err := link.LoseEach(way[0], way[1]); err != nil {
			t.Fatal(err)
		}
		for direction, from := range []netns.Link{left, right} {
			counts := func() (lost, passed uint64) {
				in, out, err := link.Lost()
				goodIn, goodOut, err2 := link.Passed()
				if err := errors.Join(err, err2); err != nil {
					t.Fatal(err)
				}
				return [2]uint64{in, out}[direction], [2]uint64{goodIn, goodOut}[direction]
			}
			lost, passed := counts()
			sendRaw(t, from, frame)
			testlab.Eventually(t, testlab.Patience, "the packet is counted", func() bool { l, p := counts(); return l+p > lost+passed }, nil)
			if l, _ := counts(); (l > lost) != (way[direction] > 0) {
				t.Errorf("%d of a million are to be lost in direction %d: lost %d", way[direction], direction, l-lost)
			}
		}
	}
}

// More than everything, and less than nothing, cannot be lost.
func TestAShareThatIsNoShareIsRefused(t *testing.T) {
	for _, perMillion := range []int{-1, 1_000_001} {
		if _, err := Attach(netns.Link{Name: "p1"}, 7, perMillion); err == nil {
			t.Errorf("%d of a million packets are lost", perMillion)
		}
	}
}

func listen(t *testing.T, ns *netns.NS, address string) *net.UDPConn {
	t.Helper()
	var conn net.PacketConn
	if err := ns.Do(func() (err error) { conn, err = net.ListenPacket("udp", address); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.UDPConn)
}

// transfer sends packets and returns how many arrive. It waits until each has arrived or is counted
// as lost.
func transfer(t *testing.T, from, to *net.UDPConn, packets int, lost func() int) (arrived int) {
	t.Helper()
	for sent := 1; sent <= packets; sent++ {
		if _, err := from.WriteTo(make([]byte, 64), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if sent%50 != 0 { // the receive buffer has room for these
			continue
		}
		testlab.Eventually(t, testlab.Patience, "all packets are accounted for", func() bool {
			for arrived+lost() < sent {
				if err := to.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				if _, _, err := to.ReadFrom(make([]byte, 64)); err != nil {
					return false
				}
				arrived++
			}
			return true
		}, nil)
	}
	return arrived
}
