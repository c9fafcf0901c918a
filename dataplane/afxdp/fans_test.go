package afxdp

import (
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// When all fans are taken, a new set of ports gets the fan of a set that no group uses. It has to
// be wanted twice: workers that were told of the fan may be about to use it.
func TestAnUnusedFanIsGivenAway(t *testing.T) {
	w := newWorld(t)
	for n := 1; n <= 2; n++ {
		w.plug(n, netns.VethOptions{})
		w.run(w.host, "ethtool", "-K", w.far[n].Name, "gro", "on") // takes redirected frames
	}
	w.open(Config{Ports: []string{"p1", "p2"}, FanOut: true})
	if w.sw.fanOut == nil {
		t.Skip(w.sw.noFanOut)
	}
	f := w.sw.fanOut
	set := func(n int) ports { return ports{uint8(n % 40), uint8(1 + n/40)} }
	wanted := func(sets ...ports) map[ports]uint32 {
		for _, s := range sets {
			w.sw.mu.Lock()
			f.want(s)
			w.sw.publishDevices()
			w.sw.mu.Unlock()
		}
		return f.devices.Load().fans
	}
	for n := range bpf.Fans {
		wanted(set(n))
	}
	if fans := f.devices.Load().fans; len(fans) != bpf.Fans {
		t.Fatalf("%d fans for %d sets of ports", len(fans), bpf.Fans)
	}
	// All places together use all fans but two.
	for i := range bpf.Fans {
		f.uses[i].Store(uint32(i))
		f.word(i).Store(encodeWord(dataplane.FanWord{Armed: i != 7 && i != 9}, 1))
	}
	one, other, third := set(bpf.Fans), set(bpf.Fans+1), set(bpf.Fans+2)
	if fans := wanted(one); len(fans) != bpf.Fans-1 || has(fans, one) || has(fans, set(7)) {
		t.Errorf("%d fans; the new set has one: %v, the unused one is still known: %v", len(fans), has(fans, one), has(fans, set(7)))
	}
	if fans := wanted(one); len(fans) != bpf.Fans || fans[one] != 7 || has(fans, set(7)) {
		t.Errorf("%d fans; the new set has %d", len(fans), fans[one])
	}
	arm := func(id mft.GroupID, s ports) {
		t.Helper()
		b := &mft.Block{From: roce.Flow{Src: groupIP, Dst: groupIP}}
		for port, n := range s {
			for range n {
				b.Paths = append(b.Paths, mft.BlockPath{Path: &mft.Path{Leg: mft.Leg{Port: mft.PortID(port)}}, Edit: new(roce.Edit)})
			}
		}
		if err := f.Arm(id, b, dataplane.FanWord{Armed: true}, 0); err != nil {
			t.Error(err)
		}
	}
	arm(300, one)
	// A set that is wanted again keeps its fan.
	if fans := wanted(other, set(9)); len(fans) != bpf.Fans || fans[set(9)] != 9 {
		t.Errorf("%d fans; the set that is wanted again has %d", len(fans), fans[set(9)])
	}
	if fans := wanted(other, other); fans[other] != 9 || has(fans, set(9)) {
		t.Errorf("the new set has %d", fans[other])
	}
	arm(301, other)
	if fans := wanted(third, third, third); len(fans) != bpf.Fans || has(fans, third) {
		t.Errorf("%d fans; a set took one that is in use", len(fans))
	}
	for i := range f.uses {
		f.word(i).Store(0)
	}
}

func has(fans map[ports]uint32, set ports) bool { _, ok := fans[set]; return ok }
