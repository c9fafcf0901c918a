package lossy

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Of RoCE packets about the given share is lost in each direction. Other packets pass.
func TestALinkLosesItsShareOfRoCEPackets(t *testing.T) {
	for perMillion, bounds := range map[int]struct{ least, most int }{
		0:         {0, 0},
		300_000:   {500, 700}, // 600 and five standard deviations
		1_000_000: {2000, 2000},
	} {
		for _, first := range []int{perMillion, 1_000_000 - perMillion} {
			t.Run(fmt.Sprintf("%d, first %d", perMillion, first), func(t *testing.T) { loses(t, first, perMillion, bounds.least, bounds.most) })
		}
	}
}

// loses expects that a link loses so many of 2000 packets. At first it loses another share.
func loses(t *testing.T, first, perMillion, least, most int) {
	const packets = 2000
	a, b := netns.New(t), netns.New(t)
	left, right := netns.Veth(t, a, "p0", b, "p1", netns.VethOptions{})
	for _, c := range []struct {
		end  netns.Link
		ip   string
		peer netns.Link
		far  string
	}{{left, "10.0.0.1", right, "10.0.0.2"}, {right, "10.0.0.2", left, "10.0.0.1"}} {
		if err := c.end.AddAddress(c.ip + "/24"); err != nil {
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
	lost := func(direction int) uint64 {
		in, out, err := link.Lost()
		if err != nil {
			t.Fatal(err)
		}
		return [2]uint64{in, out}[direction]
	}
	for _, port := range []string{"4791", "4790"} {
		l, r := listen(t, a, "10.0.0.1:"+port), listen(t, b, "10.0.0.2:"+port)
		for direction, way := range [2][2]*net.UDPConn{{l, r}, {r, l}} {
			before := lost(direction)
			arrived := transfer(t, way[0], way[1], packets, func() int { return int(lost(direction) - before) })
			switch missing := packets - arrived; {
			case port == "4790" && missing != 0:
				t.Errorf("direction %d: %d packets to another port were lost", direction, missing)
			case port == "4791" && (missing < least || missing > most):
				t.Errorf("direction %d: %d of %d RoCE packets were lost, want %d to %d", direction, missing, packets, least, most)
			}
		}
	}
	if err := link.Close(); err != nil {
		t.Fatal(err)
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
	if err := ns.Do(func() (err error) { conn, err = net.ListenPacket("udp4", address); return err }); err != nil {
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
