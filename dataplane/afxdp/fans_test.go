package afxdp

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// fanWorld is a switch with all fans, of which all but 7 and 9 are used by armed groups.
type fanWorld struct {
	*world
	f *fanOut
}

func newFanWorld(t *testing.T) fanWorld {
	w := newWorld(t)
	for n := 1; n <= 2; n++ {
		w.plug(n, netns.VethOptions{})
		w.run(w.host, "ethtool", "-K", w.far[n].Name, "gro", "on") // takes redirected frames
	}
	w.open(Config{Ports: []string{"p1", "p2"}, FanOut: true})
	if w.sw.fanOut.Load() == nil {
		t.Skip(w.sw.noFanOut)
	}
	v := fanWorld{w, w.sw.fanOut.Load()}
	for n := range bpf.Fans {
		v.wanted(setOf(n))
	}
	if fans := v.f.devices.Load().fans; len(fans) != bpf.Fans {
		t.Fatalf("%d fans for %d sets of ports", len(fans), bpf.Fans)
	}
	for i := range bpf.Fans {
		v.use(i, i, i != 7 && i != 9)
	}
	t.Cleanup(func() {
		for i := range v.f.uses {
			v.f.word(i).Store(0)
		}
	})
	return v
}

// setOf returns the n-th set of ports.
func setOf(n int) ports { return ports{uint8(n % 40), uint8(1 + n/40)} }

// wanted publishes the devices while workers want these sets, and returns the fans.
func (w *fanWorld) wanted(sets ...ports) map[ports]uint32 {
	w.sw.mu.Lock()
	defer w.sw.mu.Unlock()
	for _, s := range sets {
		w.f.want(s)
	}
	w.sw.publishDevices()
	return w.f.devices.Load().fans
}

// use makes the group at a slot use a fan.
func (w *fanWorld) use(slot, fan int, armed bool) {
	w.f.uses[slot].Store(uint32(fan))
	w.f.word(slot).Store(encodeWord(dataplane.FanWord{Armed: armed}, 1))
}

// When all fans are taken, a new set of ports gets the fan of a set that no group uses. It has to
// be wanted twice: workers that were told of the fan may be about to use it.
func TestAnUnusedFanIsGivenAway(t *testing.T) {
	w := newFanWorld(t)
	f, wanted, set := w.f, w.wanted, setOf
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
	f.kernel.Slot(slotOf(300)).Payload = 77 // of the last time that a group was armed there
	arm(300, one)
	if w := f.Load(300); w.Payload != 0 {
		t.Errorf("%d bytes are counted before the first packet", w.Payload)
	}
	// A set that is wanted again keeps its fan.
	if fans := wanted(other, set(9)); len(fans) != bpf.Fans || fans[set(9)] != 9 {
		t.Errorf("%d fans; the set that is wanted again has %d", len(fans), fans[set(9)])
	}
	wanted(other)
	if fans := wanted(other); fans[other] != 9 || has(fans, set(9)) {
		t.Errorf("the new set has %d", fans[other])
	}
	arm(301, other)
	wanted(third)
	wanted(third)
	if fans := wanted(third); len(fans) != bpf.Fans || has(fans, third) {
		t.Errorf("%d fans; a set took one that is in use", len(fans))
	}
}

// Two groups may want a set before control sees it. The fan is not given away at once, because the
// workers are not yet told that it is retired.
func TestAFanIsNotGivenAwayBeforeTheWorkersAreTold(t *testing.T) {
	w := newFanWorld(t)
	one := setOf(bpf.Fans)
	if fans := w.wanted(one, one); has(fans, one) || has(fans, setOf(7)) || len(fans) != bpf.Fans-1 {
		t.Errorf("%d fans; the new set has one: %v, the retired one is still known: %v", len(fans), has(fans, one), has(fans, setOf(7)))
	}
	w.wanted(setOf(7)) // so the workers are told of it again
	if fans := w.wanted(one); has(fans, one) || fans[setOf(7)] != 7 {
		t.Errorf("the new set has one: %v, the one in front of it has %d", has(fans, one), fans[setOf(7)])
	}
	if fans := w.wanted(one); fans[one] != 9 {
		t.Errorf("the new set has fan %d", fans[one])
	}
}

// A set that has just got a fan keeps it while another fan is unused: its group needs time to be
// armed.
func TestTwoNewSetsGetTwoFans(t *testing.T) {
	w := newFanWorld(t)
	one, other := setOf(bpf.Fans), setOf(bpf.Fans+1)
	w.wanted(one)
	w.wanted(one)
	w.wanted(other)
	if fans := w.wanted(other); fans[one] != 7 || fans[other] != 9 {
		t.Errorf("the new sets have fans %d (%v) and %d (%v)", fans[one], has(fans, one), fans[other], has(fans, other))
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitsInside reports whether a goroutine inside a function waits for a channel.
func waitsInside(function string) bool {
	stacks := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if state, _, _ := strings.Cut(g, "\n"); strings.Contains(state, "[select") && strings.Contains(g, function) {
			return true
		}
	}
	return false
}

// A worker arms a group by what it was told before the fan was retired.
func TestAFanIsNotGivenAwayWhileAWorkerArmsAGroup(t *testing.T) {
	w := newFanWorld(t)
	arming, given := make(chan struct{}), make(chan struct{})
	go w.sw.Do(0, func() {
		told := w.f.devices.Load()
		close(arming)
		for ; w.f.devices.Load() == told; time.Sleep(time.Millisecond) {
		}
		for ; !isClosed(given) && !waitsInside("afxdp.(*Switch).publishDevices"); time.Sleep(time.Millisecond) {
		}
		w.use(300, int(told.fans[setOf(7)]), true)
	})
	<-arming
	one := setOf(bpf.Fans)
	w.wanted(one)
	fans := w.wanted(one)
	close(given)
	w.sw.Do(0, func() {})
	if fan := w.f.uses[300].Load(); fan != 7 || has(fans, one) && fans[one] == fan {
		t.Errorf("an armed group uses fan %d, and fan %d was given to another set", fan, fans[one])
	}
	w.wanted(one)
	if fans := w.wanted(one); fans[one] != 9 {
		t.Errorf("the new set has fan %d", fans[one])
	}
}

// A group that stays with AF_XDP takes no fan from the others.
func TestAGroupWithoutTheKernelTakesNoFan(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}, FanOut: true})
	if w.sw.fanOut.Load() == nil {
		t.Skip(w.sw.noFanOut)
	}
	for engine, want := range map[mft.Engine]int{mft.EngineAFXDP: 0, mft.EngineAuto: 1} {
		g := *w.group
		g.QPN, g.Source.RemoteQPN, g.Engine, g.Paths = 2, 2, engine, []mft.Path{w.group.Paths[0]}
		g.Paths[0].Port, g.Paths[0].RemoteQPN = 0, 2
		w.sw.fanOut.Load().fans = nil
		id, err := w.sw.Add(&g)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(w.sw.fanOut.Load().fans); n != want {
			t.Errorf("engine %v: %d fans, want %d", engine, n, want)
		}
		if err := w.sw.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
}

// The kernel sends by native ports only, so no frame shows what the driver of another one does.
func TestAGenericPortIsNotProbed(t *testing.T) {
	for mode, probed := range map[Mode]bool{ModeGeneric: false, ModeCopy: true} {
		w := newWorld(t)
		w.plug(1, netns.VethOptions{})
		w.open(Config{Ports: []string{"p1"}, FanOut: true, Mode: mode})
		if w.sw.fanOut.Load() == nil {
			t.Skip(w.sw.noFanOut)
		}
		if got := w.sw.interfaces[0].transmit.of != 0; got != probed {
			t.Errorf("mode %s: probed %v, want %v", mode, got, probed)
		}
		if reason := w.port(1).NoFanOut; (mode == ModeGeneric) != strings.Contains(reason, "not attached in native mode") {
			t.Errorf("mode %s: %q", mode, reason)
		}
	}
}

// A driver drops every frame of a link that is down, whatever the driver is.
func TestThePortOfALinkThatIsDownIsProbedWhenItIsUp(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.run(w.box, "ip", "link", "set", "p1", "down")
	w.open(Config{Ports: []string{"p1"}, FanOut: true})
	if w.sw.fanOut.Load() == nil {
		t.Skip(w.sw.noFanOut)
	}
	w.refresh()
	if p := w.port(1); p.State != dataplane.PortDown || p.NoFanOut != "its link is down" {
		t.Errorf("the port is %s, and the kernel does not use it because %q", p.State, p.NoFanOut)
	}
	w.run(w.box, "ip", "link", "set", "p1", "up")
	w.eventually("its driver was probed", func() bool {
		w.refresh()
		return w.sw.interfaces[0].transmit.of != 0 && w.port(1).NoFanOut != "its link is down"
	})

	// Once it was probed, a link that goes down takes no group from the kernel.
	w.sw.interfaces[0].transmit.err = nil
	w.run(w.box, "ip", "link", "set", "p1", "down")
	w.refresh()
	if p := w.port(1); p.State != dataplane.PortDown || p.NoFanOut != "" {
		t.Errorf("the port is %s, and the kernel does not use it because %q", p.State, p.NoFanOut)
	}
}

func has(fans map[ports]uint32, set ports) bool { _, ok := fans[set]; return ok }
