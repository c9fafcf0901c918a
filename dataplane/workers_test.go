package dataplane_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// ofSecond returns a switch with two workers, and a group that the second one owns.
func ofSecond(t *testing.T) (*porttest.Net, *mft.Group) {
	t.Helper()
	net := porttest.NewWorkers(4, 2)
	first, g := group(), group()
	first.QPN = 2
	for i := range first.Paths {
		first.Paths[i].RemoteQPN = 2
	}
	for _, g := range []*mft.Group{first, g} {
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	if dataplane.Claim(net.Switch, first.ID, 0) != 0 || dataplane.Claim(net.Switch, g.ID, 1) != 1 {
		t.Fatal("the groups have other owners")
	}
	return net, g
}

// numbered returns the i-th of groups that can exist side by side.
func numbered(i int) *mft.Group {
	g := group()
	g.Name, g.QPN = fmt.Sprint("g", i), roce.QPN(100+i)
	for k := range g.Paths {
		g.Paths[k].RemoteQPN = roce.QPN(100 + i)
	}
	return g
}

// dataOf returns the first packet of the i-th group.
func dataOf(t *testing.T, i int) []byte {
	return with(write(firstPSN, nil), func(p *packet) { p.bth.DestQPN = roce.QPN(100 + i) }).frame(t)
}

// A group belongs to the worker at which its data arrives. So its data is not handed off, and the
// answers of its receivers are, if they arrive at another worker.
func TestAGroupBelongsToTheWorkerThatReceivesItsData(t *testing.T) {
	net := porttest.NewWorkers(4, 2)
	g := group()
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	if _, ok := net.Switch.GroupState(g.ID); !ok || dataplane.Owner(net.Switch, g.ID) >= 0 {
		t.Error("a group without traffic has an owner after it was looked at")
	}
	smaller := *g // a next hop changed, and a member left
	smaller.Paths = g.Paths[:2]
	if err := net.Switch.Replace(g.ID, &smaller); err != nil || dataplane.Owner(net.Switch, g.ID) >= 0 {
		t.Errorf("a group without traffic has an owner after a member left (%v)", err)
	}
	net.Queues[1][0].Put(write(firstPSN, nil).frame(t))
	net.Switch.Workers()[1].Poll()
	for port := 1; port <= 2; port++ {
		if n := len(net.Queues[1][port].Take()); n != 1 {
			t.Errorf("%d copies by port %d of the worker that received the data", n, port)
		}
	}
	for _, p := range []packet{
		ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), ack(ipC, 0xFFFFF3, roce.SyndromeUnlimited),
	} {
		net.Queues[0][portOf[p.src]].Put(p.frame(t))
	}
	net.Poll()
	if s := snapshot(t, net.Switch, g); s.Merged != firstPSN {
		t.Errorf("state %+v, counters %v", s, moved(net.Switch))
	}
	if dataplane.HasState(net.Switch.Workers()[0], g.ID) || dataplane.Owner(net.Switch, g.ID) != 1 {
		t.Error("the other worker has state of the group")
	}
}

// The answer of a receiver does not say where the group's data arrives: the worker with the fewest
// groups becomes the owner.
func TestAnAnswerBeforeTheFirstPacket(t *testing.T) {
	net := porttest.NewWorkers(4, 2)
	g := group()
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	net.Queues[1][1].Put(ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited).frame(t))
	net.Poll()
	if w := dataplane.Owner(net.Switch, g.ID); w != 0 {
		t.Errorf("worker %d owns the group", w)
	}
}

// While no data has arrived, or the worker that receives it has too many groups, the worker with
// the fewest groups becomes the owner.
func TestGroupsAreSharedAmongTheWorkers(t *testing.T) {
	const n = 16
	net := porttest.NewWorkers(4, 2)
	ids := make([]mft.GroupID, n)
	owned := func() (counts [2]int) {
		for _, id := range ids {
			for w, worker := range net.Switch.Workers() {
				if dataplane.HasState(worker, id) {
					counts[w]++
				}
			}
		}
		return counts
	}
	for round := range 2 { // the slots are used again
		for i := range n {
			id, err := net.Switch.Add(numbered(i))
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = id
		}
		for i := range n {
			net.Queues[0][0].Put(dataOf(t, i))
			net.Poll()
		}
		net.Queues[0][0].Put(dataOf(t, n)) // of no group, so nobody becomes an owner
		net.Poll()
		if got := owned(); got != [2]int{9, 7} { // the difference is an eighth at most
			t.Errorf("round %d: the workers own %v groups", round, got)
		}
		if a, b := dataplane.GroupsOf(net.Switch, 0), dataplane.GroupsOf(net.Switch, 1); a != 9 || b != 7 {
			t.Errorf("round %d: the workers own %d and %d groups", round, a, b)
		}
		for _, id := range ids {
			if err := net.Switch.Remove(id); err != nil {
				t.Fatal(err)
			}
		}
		if got := owned(); got != [2]int{} {
			t.Errorf("round %d: the workers have state of %v removed groups", round, got)
		}
		if a, b := dataplane.GroupsOf(net.Switch, 0), dataplane.GroupsOf(net.Switch, 1); a != 0 || b != 0 {
			t.Errorf("round %d: the workers own %d and %d groups, and there are none", round, a, b)
		}
		for _, id := range ids {
			if w := dataplane.Owner(net.Switch, id); w >= 0 {
				t.Fatalf("round %d: worker %d owns the slot of group %d, which is removed", round, w, id)
			}
		}
	}
}

// Frames that arrive on the queue of another worker are handled by the worker that owns their
// group. The copies leave by that worker's queues, and equal those of a switch with one worker,
// including tags, two buffers and merged answers.
func TestFramesOfAnothersGroup(t *testing.T) {
	net, g := ofSecond(t)
	alone := newNet(t, group())
	for _, n := range []*porttest.Net{net, alone} {
		g := n.Switch.Table().Group(map[*porttest.Net]mft.GroupID{net: g.ID}[n])
		version := *g
		version.Paths = append([]mft.Path(nil), g.Paths...)
		version.PathMTU = 4096
		tagged := &version.Paths[1]
		tagged.L2Bytes = uint8(copy(tagged.L2[:], roce.AppendVLAN(nil, mac(ipC), macBox, 7, 0x0800)))
		if err := n.Switch.Replace(g.ID, &version); err != nil {
			t.Fatal(err)
		}
	}
	payload := []byte(strings.Repeat("0123456789abcdef", 256))
	for _, p := range []packet{
		write(firstPSN, []byte("one buffer")), write(firstPSN+1, payload),
		ack(ipB, 0xFFFFF3, roce.SyndromeUnlimited), tagged(ack(ipC, 0xFFFFF4, roce.SyndromeUnlimited), 7),
		ack(ipD, 0xFFFFF5, roce.SyndromeUnlimited),
	} {
		for _, n := range []*porttest.Net{net, alone} {
			n.Ports[portOf[p.src]].Put(p.frame(t))
			n.Poll()
		}
		for port := range alone.Ports {
			if out := net.Queues[0][port].Take(); len(out) != 0 {
				t.Errorf("port %d: the worker that does not own the group sent %+v", port, decode(t, out[0]))
			}
			if diff := cmp.Diff(alone.Ports[port].Take(), net.Queues[1][port].Take()); diff != "" {
				t.Errorf("port %d (-one worker +two):\n%s", port, diff)
			}
		}
	}
	if got := moved(net.Switch); got["merged"] != 1 || got["forwarded"] != 2 {
		t.Errorf("counters %v", got)
	}
}

// A sleeping worker is woken once by a batch with frames for it: waking is a system call.
func TestASleepingWorkerIsWokenOnceABatch(t *testing.T) {
	net, _ := ofSecond(t)
	waiter := net.Waiters[1]
	waiter.Waiting = func() {
		for psn := range roce.PSN(10) {
			net.Ports[0].Put(write(firstPSN+psn, nil).frame(t))
		}
		net.Switch.Workers()[0].Poll()
	}
	dataplane.Sleep(net.Switch.Workers()[1])
	if n := waiter.Wakes.Load(); n != 1 {
		t.Errorf("woken %d times for a batch of 10", n)
	}
	net.Poll()
	if got := moved(net.Switch); got["forwarded"] != 10 || len(got) != 1 {
		t.Errorf("counters %v", got)
	}
	waiter.Waiting = func() {
		net.Ports[0].Put(with(write(firstPSN, nil), func(p *packet) { p.bth.DestQPN = 2 }).frame(t)) // the first worker's group
		net.Switch.Workers()[0].Poll()
	}
	dataplane.Sleep(net.Switch.Workers()[1])
	if n := waiter.Wakes.Load(); n != 1 {
		t.Error("a worker is woken by a batch without a frame for it")
	}
	waiter.Waiting = func() {
		net.Ports[0].Put(with(write(firstPSN, nil), func(p *packet) { p.bth.DestQPN = 3 }).frame(t)) // of no group
		net.Switch.Workers()[0].Poll()
	}
	dataplane.Sleep(net.Switch.Workers()[1])
	if n := counter(t, net.Switch, "unknown-qpn"); n != 1 || waiter.Wakes.Load() != 1 {
		t.Errorf("a frame of no group is counted %d times, and another worker is woken %d times", n, waiter.Wakes.Load()-1)
	}
	waiter.Waiting = nil
	net.Ports[0].Put(write(firstPSN+10, nil).frame(t))
	net.Switch.Workers()[0].Poll()
	if n := waiter.Wakes.Load(); n != 1 {
		t.Error("a worker that does not sleep is woken")
	}
	waiter.Waiting = func() { t.Error("a worker sleeps while a frame waits for it") }
	dataplane.Sleep(net.Switch.Workers()[1])
}

// The ring between two workers holds as many frames as its bound says, and further frames are
// counted.
func TestTheRingBetweenWorkersIsBounded(t *testing.T) {
	if (1<<32)%dataplane.HandoffFrames != 0 {
		t.Error("the ring's places do not go on where its counters begin again, after 2^32 frames")
	}
	net, g := ofSecond(t)
	const more = 3
	sent := roce.PSN(firstPSN)
	for range 3 { // so that the ring wraps
		for range dataplane.HandoffFrames + more {
			net.Ports[0].Put(write(sent, nil).frame(t))
			sent = sent.Next()
		}
		sent = sent.Add(-more) // the source resends what was lost
		for net.Switch.Workers()[0].Poll() > 0 {
		}
		net.Poll()
		if s := snapshot(t, net.Switch, g); s.Sent != sent.Prev() {
			t.Fatalf("PSN %d is the last that got through, want %d; counters %v", s.Sent, sent.Prev(), moved(net.Switch))
		}
	}
	if n := moved(net.Switch)["handoff-full"]; n != 3*more {
		t.Errorf("%d frames found the ring full, want %d", n, 3*more)
	}
}

// Frames wait in the ring while their worker has no buffer.
func TestAWorkerWithoutBuffers(t *testing.T) {
	net, g := ofSecond(t)
	net.Pools[1].Empty = true
	net.Ports[0].Put(write(firstPSN, nil).frame(t))
	net.Poll()
	if got := moved(net.Switch); len(got) != 0 {
		t.Errorf("counters %v", got)
	}
	net.Pools[1].Empty = false
	net.Poll()
	if s := snapshot(t, net.Switch, g); s.Sent != firstPSN {
		t.Errorf("PSN %d is the last that got through", s.Sent)
	}
}

// A frame that is longer than any packet of a group is not handed off.
func TestLongFramesAreNotHandedOff(t *testing.T) {
	net, _ := ofSecond(t)
	frame := write(firstPSN, nil).frame(t)
	long := func(n int) []byte { return append(frame, make([]byte, n-len(frame))...) }
	net.Ports[0].Put(long(dataplane.HandoffBytes))
	net.Ports[0].Put(long(dataplane.HandoffBytes + 1))
	net.Poll()
	if diff := cmp.Diff(map[string]uint64{"forwarded": 1, "over-mtu": 1}, moved(net.Switch)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A frame may be classified for a group that is published while the frame is received.
func TestAGroupIsThereWithItsFirstFrame(t *testing.T) {
	net := porttest.New(4)
	net.Ports[1].Receiving = func() {
		if net.Switch.Table().Len() == 0 {
			if _, err := net.Switch.Add(group()); err != nil {
				t.Fatal(err)
			}
			net.Ports[1].Put(with(write(firstPSN, nil), func(p *packet) { p.src = ipA }).frame(t))
		}
	}
	net.Poll()
	if got := moved(net.Switch); got["group-gone"] != 0 || got["wrong-port"] != 1 {
		t.Errorf("counters %v", got)
	}
}

// Several workers may see the first frame of a group at one time, and all of them find the same
// owner.
func TestWorkersAgreeOnTheOwner(t *testing.T) {
	const workers, groups = 4, 50_000
	net := porttest.NewWorkers(4, workers)
	var found [workers][groups]int
	var all sync.WaitGroup
	start := make(chan struct{})
	for w := range workers {
		all.Go(func() {
			<-start
			for id := range mft.GroupID(groups) {
				found[w][id] = dataplane.Claim(net.Switch, id, w)
			}
		})
	}
	close(start)
	all.Wait()
	sum := 0
	for w := range workers {
		sum += dataplane.GroupsOf(net.Switch, w)
		if found[w] != found[0] {
			t.Errorf("workers 0 and %d found different owners", w)
		}
	}
	if sum != groups {
		t.Errorf("the workers own %d groups, and there are %d", sum, groups)
	}
}

// A member joins a group before the group's first packet. That the other members were there first
// is merging state, so the group has an owner from then on, whichever worker receives that packet.
func TestAMemberThatJoinsBeforeTheFirstPacket(t *testing.T) {
	net := porttest.NewWorkers(4, 2)
	g := group()
	all := g.Paths
	g.Paths = all[:2]
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	joined := *g
	joined.Paths = all
	if err := net.Switch.Replace(g.ID, &joined); err != nil {
		t.Fatal(err)
	}
	net.Queues[1][0].Put(write(firstPSN, nil).frame(t))
	net.Poll()
	if s := snapshot(t, net.Switch, g); s.Sent != firstPSN || dataplane.Owner(net.Switch, g.ID) != 0 {
		t.Errorf("worker %d owns %+v", dataplane.Owner(net.Switch, g.ID), s)
	}
}

// The same holds when a group without traffic gets another source: the old one has left the group.
func TestASourceThatLeavesBeforeTheFirstPacket(t *testing.T) {
	net := porttest.NewWorkers(4, 2)
	g := group()
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	other := *g
	other.Source.FirstPSN++
	if err := net.Switch.Replace(g.ID, &other); err != nil || dataplane.Owner(net.Switch, g.ID) != 0 {
		t.Errorf("the owner is %d (%v)", dataplane.Owner(net.Switch, g.ID), err)
	}
}

// BenchmarkHandOff measures what it costs that a frame arrives on another worker's queue: into the
// ring on one thread and out of it on another. A packet to three receivers pays it once.
func BenchmarkHandOff(b *testing.B) {
	for _, bytes := range []int{64, 1024, 4096} {
		b.Run(fmt.Sprintf("%dB", bytes), func(b *testing.B) {
			ring, pool := dataplane.NewHandoff(), new(porttest.Pool)
			frame := dataplane.Frame{Buf: make([]byte, bytes), FragmentCount: 1}
			frame.Fragments[0] = frame.Buf
			stop := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				runtime.LockOSThread()
				for {
					select {
					case <-stop:
						return
					default:
						ring.Put(&frame)
					}
				}
			}()
			var frames [64]dataplane.Frame
			b.SetBytes(int64(bytes))
			for taken := 0; b.Loop(); taken-- {
				for taken == 0 {
					taken = ring.Take(pool, frames[:])
					for i := range frames[:taken] {
						pool.Put(&frames[i])
					}
				}
			}
			close(stop)
			<-ended
		})
	}
}
