package scale

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

const gigabit = 1_000_000_000

func network(t *testing.T, c Config) *Net {
	t.Helper()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func makeGroup(t *testing.T, n *Net, p feedback.Policy, source int, receivers ...int) *Group {
	t.Helper()
	g, err := n.NewGroup(source, receivers, p)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func makeFlow(t *testing.T, n *Net, from, to int, bytes int64) Flow {
	t.Helper()
	f, err := n.Send(from, to, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func finish(t *testing.T, n *Net) {
	t.Helper()
	if err := n.Finish(100 * Second); err != nil {
		t.Fatal(err)
	}
}

// upTo returns all hosts from 1 to n.
func upTo(n int) (hosts []int) {
	for h := 1; h <= n; h++ {
		hosts = append(hosts, h)
	}
	return hosts
}

// At 100 Gb/s a byte takes 80 ps. The frame of a WRITE of 64 bytes has 138 bytes: Ethernet 14, IPv4
// 20, UDP 8, BTH 12, RETH 16, ICRC 4. Its ACK has 62.
const (
	bytePicos = 80
	hop64     = 138*bytePicos + 500_000
	hopACK    = 62*bytePicos + 500_000
)

func TestOneFlowTakesAsLongAsByHand(t *testing.T) {
	for _, c := range []struct {
		Shape
		to    int
		links Time
	}{{OneSwitch(2), 1, 2}, {FatTree(4), 1, 2}, {FatTree(4), 2, 4}, {FatTree(4), 4, 6}} {
		n := network(t, Papers(c.Shape, 100*gigabit))
		f := makeFlow(t, n, 0, c.to, 64)
		finish(t, n)
		if f.Arrived() != c.links*hop64 || f.conn.heardAt != c.links*(hop64+hopACK) {
			t.Errorf("over %d links: arrived after %d ps, heard after %d", c.links, f.Arrived(), f.conn.heardAt)
		}
	}
}

// A message of 30 packets: the first has a RETH. The second link is busy from the time when the
// first packet has come until all have left.
func TestAMessageTakesAsLongAsByHand(t *testing.T) {
	n := network(t, Papers(OneSwitch(2), 100*gigabit))
	f := makeFlow(t, n, 0, 1, 30*4096)
	finish(t, n)
	const first, others = 74 + 4096, 58 + 4096
	if want := Time(first*bytePicos + 500_000 + (first+29*others)*bytePicos + 500_000); f.Arrived() != want {
		t.Errorf("arrived after %d ps; by hand %d", f.Arrived(), want)
	}
}

// Two flows from one host take turns on its link, so both take twice as long as one.
func TestTwoFlowsShareALink(t *testing.T) {
	n := network(t, Papers(OneSwitch(3), 100*gigabit))
	const bytes = 16 << 20
	one, two := makeFlow(t, n, 0, 1, bytes), makeFlow(t, n, 0, 2, bytes)
	finish(t, n)
	alone := Time(bytes / 4096 * 4154 * bytePicos)
	for _, f := range []Flow{one, two} {
		if a := f.Arrived(); a < 2*alone-2*alone/100 || a > 2*alone+2*alone/50 {
			t.Errorf("arrived after %d ps; one alone sends for %d ps", a, alone)
		}
	}
}

// A group takes as long as one flow to the receiver that is farthest away.
func TestAGroupTakesAsLongAsOneFlow(t *testing.T) {
	n := network(t, Papers(FatTree(4), 100*gigabit))
	g := makeGroup(t, n, feedback.Policy{}, 0, upTo(15)...)
	g.Send(n, 64)
	finish(t, n)
	if g.Arrived() != 6*hop64 || g.Heard() != 6*(hop64+hopACK) {
		t.Errorf("arrived after %d ps, heard after %d", g.Arrived(), g.Heard())
	}
	for i, r := range g.receivers {
		if links := Time(len(n.way(0, i+1, 0))); r.arrivedAt != links*hop64 {
			t.Errorf("receiver %d: after %d ps over %d links", i, r.arrivedAt, links)
		}
	}
}

// A message goes from host to host: in a chain three times one after the other, in a binomial tree
// in two rounds. A host that passes it on sends its own ACK first.
func TestRelaysTakeAsLongAsByHand(t *testing.T) {
	for name, c := range map[string]struct {
		relaying.Shape
		took Time
	}{
		"chain": {relaying.Chain, 3*2*hop64 + 2*62*bytePicos}, "binomial": {relaying.Binomial, 2*2*hop64 + 62*bytePicos},
		"unicast": {relaying.Unicast, 2*hop64 + 2*138*bytePicos},
	} {
		n := network(t, Papers(OneSwitch(4), 100*gigabit))
		r, err := n.NewRelay(0, upTo(3), c.Shape, 64, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Start(n)
		finish(t, n)
		if r.Arrived() != c.took {
			t.Errorf("%s: %d ps; by hand %d", name, r.Arrived(), c.took)
		}
	}
}

// A chain of slices is a pipeline: each host but the last passes a slice on while it gets the next.
func TestAChainOfSlicesIsAPipeline(t *testing.T) {
	n := network(t, Papers(OneSwitch(9), 100*gigabit))
	const bytes, slices = 8 << 20, 32
	r, err := n.NewRelay(0, upTo(8), relaying.Chain, bytes, bytes/slices)
	if err != nil {
		t.Fatal(err)
	}
	r.Start(n)
	finish(t, n)
	alone := float64(bytes / 4096 * 4154 * bytePicos)
	if got, want := float64(r.Arrived()), alone*(slices+7)/slices; got < want || got > 1.06*want {
		t.Errorf("%.0f ps; a pipeline of 8 takes at least %.0f", got, want)
	}
}

// Without loss each link of the tree carries each packet once, and no other link carries any.
func TestEachLinkCarriesAPacketOnce(t *testing.T) {
	n := network(t, Papers(FatTree(4), 100*gigabit))
	g := makeGroup(t, n, feedback.Policy{}, 0, upTo(15)...)
	const packets = 512
	g.Send(n, packets*4096)
	finish(t, n)
	// All 8 edge switches, one above them in each of 4 pods, one core.
	if len(g.boxes) != 8+4+1 {
		t.Errorf("the tree has %d boxes", len(g.boxes))
	}
	u := n.Use()
	if links := 1 + 15 + len(g.boxes) - 1; u.Links != links || u.Busiest != packets || u.Traversals != uint64(links*packets) {
		t.Errorf("%+v: %d links carry %d packets each", u, links, packets)
	}
	if source, boxes := g.Resent(); source+boxes+u.Lost+u.Dropped != 0 || g.Delivered() != packets {
		t.Errorf("resent by the source %d, by boxes %d; %+v; %d delivered", source, boxes, u, g.Delivered())
	}
	if rejected := g.source.qp.Counters().Rejected(); rejected != 0 {
		t.Errorf("the requester refused %d answers", rejected)
	}
}

// Every group and flow ends although every link loses packets, nothing is acknowledged falsely, and
// no packet vanishes otherwise.
func TestEverythingArrivesOverLossyLinks(t *testing.T) {
	testlab.Long(t)
	for _, policy := range []feedback.Policy{{}, {Nak: feedback.NakLower}, {Repair: feedback.RepairLocal}} {
		for seed := range uint64(5) {
			c := Papers(FatTree(4), 100*gigabit)
			c.Seed, c.Loss, c.LossEverywhere, c.Timeout = seed, 5e-3, true, 8
			n := network(t, c)
			const packets = 600
			g, h := makeGroup(t, n, policy, 0, upTo(15)...), makeGroup(t, n, policy, 9, 1, 5, 14)
			g.Send(n, packets*4096)
			h.Send(n, packets*4096)
			f := makeFlow(t, n, 3, 12, packets*4096)
			finish(t, n)
			for _, d := range []int{g.Delivered(), h.Delivered(), f.Delivered()} {
				if d != packets {
					t.Errorf("%+v, seed %d: %d of %d packets delivered", policy, seed, d, packets)
				}
			}
			source, boxes := g.Resent()
			if lost := n.Use().Lost; lost == 0 || source+boxes == 0 || (boxes > 0) != (policy.Repair == feedback.RepairLocal) {
				t.Errorf("%+v, seed %d: %d lost, the source resent %d, the boxes %d", policy, seed, lost, source, boxes)
			}
		}
	}
}

// Packets are lost between switches, and on the links of hosts only if all links lose some.
func TestLossIsWhereItIsSaidToBe(t *testing.T) {
	for _, everywhere := range []bool{false, true} {
		c := Papers(FatTree(4), 100*gigabit)
		c.Loss, c.LossEverywhere = 2e-2, everywhere
		n := network(t, c)
		makeGroup(t, n, feedback.Policy{Repair: feedback.RepairLocal}, 0, upTo(15)...).Send(n, 1000*4096)
		finish(t, n)
		var atHosts, between, passed uint64
		for i := range n.links {
			if l := &n.links[i]; n.betweenSwitches(int32(i)) {
				between, passed = between+l.lost, passed+l.offered
			} else {
				atHosts += l.lost
			}
		}
		if (atHosts > 0) != everywhere || float64(between) < 0.017*float64(passed) || float64(between) > 0.023*float64(passed) {
			t.Errorf("everywhere: %v; %d packets lost at hosts, %d of %d between switches", everywhere, atHosts, between, passed)
		}
	}
}

// A queue that is full drops packets, and the flows end all the same.
func TestFullQueuesDrop(t *testing.T) {
	c := Papers(OneSwitch(5), 100*gigabit)
	c.QueueBytes, c.Marks.KmaxBytes, c.Timeout = 100_000, 0, 8
	n := network(t, c)
	for from := 1; from < 5; from++ {
		makeFlow(t, n, from, 0, 4<<20)
	}
	finish(t, n)
	if u := n.Use(); u.Dropped == 0 || u.Marked != 0 || u.Longest > 100_000*bytePicos || u.Longest < 90_000*bytePicos {
		t.Errorf("%+v", u)
	}
}

// The same seed gives the same events, and another seed others.
func TestARunIsTheSameEveryTime(t *testing.T) {
	play := func(seed uint64) (hash, events uint64) {
		c := Papers(FatTree(4), 100*gigabit)
		c.Seed, c.Loss = seed, 1e-3
		n := network(t, c)
		g := makeGroup(t, n, feedback.Policy{Repair: feedback.RepairLocal}, 0, upTo(15)...)
		g.Send(n, 8<<20)
		makeFlow(t, n, 1, 2, 4<<20)
		n.At(100*Microsecond, func() { makeFlow(t, n, 5, 2, 4<<20) })
		finish(t, n)
		return n.Hash(), n.Events()
	}
	hash, events := play(1)
	if again, also := play(1); again != hash || also != events {
		t.Errorf("%d events with hash %x, then %d with %x", events, hash, also, again)
	}
	if other, _ := play(2); other == hash {
		t.Error("another seed changes nothing")
	}
}

// A group, and a flow to one of its receivers, share the link evenly with DCQCN, use it, and lose
// nothing.
func TestAGroupSharesALinkWithAFlow(t *testing.T) {
	testlab.Long(t)
	n := network(t, Papers(FatTree(4), 100*gigabit))
	g := makeGroup(t, n, feedback.Policy{}, 0, upTo(15)...)
	g.Send(n, 1<<32)
	f := makeFlow(t, n, 4, 9, 1<<32)
	const half = 20 * Millisecond
	until := func(at Time) {
		t.Helper()
		if over, err := n.Run(at); over || err != nil {
			t.Fatal(over, err)
		}
	}
	until(half)
	group, flow := g.Delivered(), f.Delivered()
	until(2 * half)
	rates := []float64{float64(g.Delivered() - group), float64(f.Delivered() - flow)}
	line := half.Seconds() * 100 * gigabit / 8 / 4154
	if fair := Fairness(rates); fair < 0.95 || rates[0]+rates[1] < 0.85*line {
		t.Errorf("packets %v of %.0f, fairness %.3f", rates, line, fair)
	}
	if u := n.Use(); u.Marked == 0 || u.Dropped+u.Lost != 0 {
		t.Errorf("%+v", u)
	}
	if g.source.qp.Counters().Get(rnic.CNPsReceived) == 0 {
		t.Error("the source of the group heard no notification")
	}
}

// What the checks are for: each finds what it is to find.
func TestChecksFindWhatIsWrong(t *testing.T) {
	delivered := func() (*Net, *Group) {
		n := network(t, Papers(FatTree(4), 100*gigabit))
		g := makeGroup(t, n, feedback.Policy{}, 0, upTo(15)...)
		g.Send(n, 3*4096)
		finish(t, n)
		return n, g
	}
	last := firstPSN.Add(2)
	for name, c := range map[string]struct {
		meddle func(*Net, *Group)
		want   string
	}{
		"nothing":            {func(n *Net, g *Group) { g.checkReply(n, &g.boxes[0], ack(last, 1)) }, ""},
		"a NAK beyond":       {func(n *Net, g *Group) { g.checkReply(n, &g.boxes[0], nak(last.Next(), 1)) }, ""},
		"an ACK too far":     {func(n *Net, g *Group) { g.checkReply(n, &g.boxes[0], ack(last.Next(), 1)) }, "acknowledges packet"},
		"a NAK too far":      {func(n *Net, g *Group) { g.checkReply(n, &g.boxes[0], nak(last.Next().Next(), 1)) }, "acknowledges packet"},
		"an MSN too far":     {func(n *Net, g *Group) { g.checkReply(n, &g.boxes[0], ack(last, 2)) }, "acknowledges packet"},
		"a message missed":   {func(n *Net, g *Group) { g.source.completed++; n.checkCompleted(g.source) }, "messages completed"},
		"a packet gone":      {func(n *Net, _ *Group) { n.links[0].delivered--; n.failure = n.checkConserved() }, "link 0"},
		"a packet made":      {func(n *Net, g *Group) { g.source.sent--; n.failure = n.checkConserved() }, "host 0 sent"},
		"taken and not sent": {func(n *Net, g *Group) { g.receivers[0].taken++; n.failure = n.checkConserved() }, "host 1 took"},
		"not taken":          {func(n *Net, g *Group) { g.receivers[0].taken--; n.failure = n.checkConserved() }, "host 1 took"},
		"a flow missed": {func(n *Net, g *Group) {
			f := makeFlow(t, n, 0, 1, 64)
			f.conn.completed = 1
			n.checkCompleted(f.conn)
		}, "messages completed"},
	} {
		n, g := delivered()
		c.meddle(n, g)
		if got := n.failure; c.want == "" && got != nil || c.want != "" && (got == nil || !strings.Contains(got.Error(), c.want)) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func ack(psn roce.PSN, msn roce.MSN) *feedback.Action {
	return &feedback.Action{Kind: feedback.Reply, PSN: psn, MSN: msn, Syndrome: roce.SyndromeUnlimited}
}

func nak(psn roce.PSN, msn roce.MSN) *feedback.Action {
	return &feedback.Action{Kind: feedback.Reply, PSN: psn, MSN: msn, Syndrome: roce.NAKSequence}
}

// Hosts that are not there are refused.
func TestStrangersAreRefused(t *testing.T) {
	n := network(t, Papers(FatTree(4), 100*gigabit))
	for _, h := range []int{0, 16, -1} {
		if _, err := n.NewGroup(0, []int{1, h}, feedback.Policy{}); err == nil {
			t.Errorf("host %d is taken for a receiver", h)
		}
	}
	for _, h := range []int{0, 16} {
		if _, err := n.Send(0, h, 1); err == nil {
			t.Errorf("a flow to host %d is made", h)
		}
	}
	if _, err := n.NewRelay(0, []int{1}, relaying.Chain, 64, 0); err == nil {
		t.Error("slices of nothing are taken")
	}
}

// A box gives each new group to the neighbour with the fewest groups: eight groups from one edge
// switch with eight ways up share none.
func TestGroupsAreSpreadOverTheWaysUp(t *testing.T) {
	n := network(t, Papers(FatTree(16), 100*gigabit))
	for h := range 8 {
		makeGroup(t, n, feedback.Policy{}, h, 500+8*h)
	}
	if most := n.BusiestGroups(); most != 1 {
		t.Errorf("%d groups share a link", most)
	}
}

// A run up to a time includes what happens at that time, and goes on from there.
func TestARunGoesUpToATime(t *testing.T) {
	n := network(t, Papers(OneSwitch(2), 100*gigabit))
	var happened []Time
	for _, at := range []Time{100, 101} {
		n.At(at, func() { happened = append(happened, n.Now()) })
	}
	if over, err := n.Run(100); over || err != nil || len(happened) != 1 {
		t.Errorf("%v, %v, %v", over, err, happened)
	}
	n.At(100, func() { happened = append(happened, n.Now()) }) // earlier than what waits
	if over, err := n.Run(200); !over || err != nil || len(happened) != 3 || happened[1] != 100 || happened[2] != 101 {
		t.Errorf("%v, %v, %v", over, err, happened)
	}
}

// The state of a switch is counted for all groups.
func TestStateCountsGroupsAndPaths(t *testing.T) {
	n := network(t, Papers(FatTree(4), 100*gigabit))
	makeGroup(t, n, feedback.Policy{}, 0, 1, 2, 3) // edge switch 0, one above it, edge switch 1
	makeGroup(t, n, feedback.Policy{}, 0, 1)
	all := n.State()
	paths, groups := 0, 0
	for _, s := range all {
		paths, groups = paths+s.Paths, groups+s.Groups
	}
	if len(all) != 3 || all[0] != (BoxState{"edge", 2, 3}) || groups != 4 || paths != 6 {
		t.Errorf("%+v", all)
	}
}

func TestFairnessIsJainsIndex(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  float64
	}{{[]float64{3, 3, 3}, 1}, {[]float64{0, 0, 7, 0}, 0.25}, {[]float64{1, 3}, 0.8}, {[]float64{0}, 0}} {
		if got := Fairness(c.rates); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%v: %g, want %g", c.rates, got, c.want)
		}
	}
}

// What follows a transfer begins when the last receiver has everything, once, and may begin
// another.
func TestOneTransferFollowsAnother(t *testing.T) {
	n := network(t, Papers(FatTree(4), 100*gigabit))
	g := makeGroup(t, n, feedback.Policy{}, 0, 1, 15)
	r, err := n.NewRelay(0, []int{1, 15}, relaying.Chain, 64, 64)
	if err != nil {
		t.Fatal(err)
	}
	var order []Time
	f := makeFlow(t, n, 0, 4, 64)
	f.Then(func() { order = append(order, n.Now()); g.Send(n, 64) })
	g.Then(func() { order = append(order, n.Now()); r.Start(n) })
	r.Then(func() { order = append(order, n.Now()) })
	finish(t, n)
	if len(order) != 3 || order[0] != f.Arrived() || order[1] != g.Arrived() || order[2] != r.Arrived() ||
		g.Began() != f.Arrived() || r.Began() != g.Arrived() {
		t.Errorf("%v; flow %v, group %v to %v, chain %v to %v", order, f.Arrived(), g.Began(), g.Arrived(), r.Began(), r.Arrived())
	}
}
