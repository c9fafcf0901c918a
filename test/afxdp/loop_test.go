package afxdp

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// hopLimit is the counter of packets whose hop limit is used up.
const hopLimit = "hop-limit-exceeded"

// Two boxes are joined by one link, and each has a group whose only receiver is the group of the
// other box. A packet that enters the loop ends in it: every copy has one hop less.
func TestAPacketDoesNotCirculateBetweenTwoBoxes(t *testing.T) {
	for _, family := range []struct {
		name string
		ips  [2]netip.Addr
	}{
		{"IPv4", [2]netip.Addr{netip.MustParseAddr("10.77.3.100"), netip.MustParseAddr("10.77.3.101")}},
		{"IPv6", [2]netip.Addr{netip.MustParseAddr("fd77::100"), netip.MustParseAddr("fd77::101")}},
	} {
		for name, step := range map[string]int32{"the same PSN comes back": 0, "the next PSN comes back": 1} {
			for _, hops := range []uint8{1, 2, 64, 255} {
				t.Run(fmt.Sprintf("%s/%s/%d hops", family.name, name, hops), func(t *testing.T) {
					loop := newLoop(t, family.ips, step)
					loop.enter(t, hops)
					loop.ends(t, uint64(hops)-1)
				})
			}
		}
	}
}

// loop is two boxes that are each other's receiver.
type loop struct {
	ips   [2]netip.Addr
	ports [2]netns.Link
	sw    [2]*afxdp.Switch
}

const loopPSN = 100

func newLoop(t *testing.T, ips [2]netip.Addr, step int32) *loop {
	t.Helper()
	testlab.NeedRoot(t)
	l := &loop{ips: ips}
	l.ports[0], l.ports[1] = netns.Veth(t, netns.New(t), "left", netns.New(t), "right", netns.VethOptions{})
	for i, port := range l.ports {
		check(t, port.NS.Do(func() (err error) {
			l.sw[i], err = afxdp.Open(afxdp.Config{Ports: []string{port.Name}})
			return err
		}))
		run(t, l.sw[i])
	}
	// The first box adds nothing to the PSN, the second box adds step.
	for i := range l.sw {
		_, err := l.sw[i].Add(l.group(i, loopPSN+step*int32(i)))
		check(t, err)
	}
	return l
}

// group is the group of box i. Both its source and its receiver are the other box.
func (l *loop) group(i int, firstPSN int32) *mft.Group {
	other := 1 - i
	leg := mft.Leg{Src: l.ips[i], Dst: l.ips[other], DestQPN: groupQPN}
	etherType := uint16(0x0800)
	if leg.Src.Is6() {
		etherType = 0x86DD
	}
	header := roce.AppendEthernet(nil, roce.MAC(l.ports[other].MAC), roce.MAC(l.ports[i].MAC), etherType)
	leg.L2Bytes = uint8(copy(leg.L2[:], header))
	return &mft.Group{
		Name: "loop", IP: l.ips[i], QPN: groupQPN, PathMTU: 1024,
		Source: mft.Source{Leg: leg, FirstPSN: loopPSN},
		Paths:  []mft.Path{{Leg: leg, RemoteQPN: groupQPN + 1, FirstPSN: roce.PSN(firstPSN)}},
	}
}

// enter sends a packet from the second box to the first.
func (l *loop) enter(t *testing.T, hops uint8) {
	t.Helper()
	inject(t, l.ports[1], packet{
		from: l.ips[1], to: l.ips[0], mac: roce.MAC(l.ports[0].MAC), hops: hops,
		bth:  roce.BTH{Opcode: roce.OpSendOnly, DestQPN: groupQPN, PSN: loopPSN},
		rest: []byte("round and round."),
	})
}

// ends waits until a packet has been dropped because its hop limit is used up, and checks how many
// copies were sent before.
func (l *loop) ends(t *testing.T, want uint64) {
	t.Helper()
	dropped := func() uint64 { return counter(t, l.sw[0], hopLimit) + counter(t, l.sw[1], hopLimit) }
	copies := func() uint64 { return l.sw[0].Ports()[0].TxFrames + l.sw[1].Ports()[0].TxFrames }
	for deadline := time.Now().Add(patience); dropped() == 0; runtime.Gosched() {
		if n := copies(); n > want || time.Now().After(deadline) {
			t.Fatalf("%d copies were sent, want %d; counters %v and %v", n, want, l.sw[0].Counters(), l.sw[1].Counters())
		}
	}
	if n, d := copies(), dropped(); n != want || d != 1 {
		t.Errorf("%d copies were sent and %d packets dropped, want %d and 1", n, d, want)
	}
}
