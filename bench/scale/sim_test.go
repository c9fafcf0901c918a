package scale

import (
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/verify/sim"
)

// compared is a transfer that is played here, and in verify/sim by whole frames through whole
// cores.
type compared struct {
	loss   float64
	policy feedback.Policy
	seed   uint64
}

const (
	comparedMessages = 64
	comparedBytes    = 64 << 10
	comparedTimeout  = 8
	comparedPatience = 4096 * time.Nanosecond << comparedTimeout
)

// The receivers are at the switch of the source, in its pod, and in two other pods.
func comparedReceivers() []int { return []int{1, 2, 4, 6, 13} }

// result is what the source sees of a transfer.
type result struct {
	took              time.Duration
	resent            uint64
	acks, naks        uint64
	goBacks, timeouts uint64
}

func resultOf(took time.Duration, c *rnic.Counters) result {
	return result{took, c.Get(rnic.FramesRetransmitted), c.Get(rnic.ACKsReceived), c.Get(rnic.NAKSequenceReceived), c.Get(rnic.GoBacks), c.Get(rnic.Timeouts)}
}

func (c *compared) config() Config {
	cfg := Papers(FatTree(4), 100*gigabit)
	cfg.Seed, cfg.Loss, cfg.Timeout, cfg.MessageBytes, cfg.RateControl = c.seed, c.loss, comparedTimeout, comparedBytes, rnic.RateControl{}
	return cfg
}

// here plays the transfer in this package.
func (c *compared) here(t *testing.T) (result, *Group) {
	t.Helper()
	n := network(t, c.config())
	g := makeGroup(t, n, c.policy, 0, comparedReceivers()...)
	g.Send(n, comparedMessages*comparedBytes)
	// Boxes with repair say their last ACK again, and a run of verify/sim ends before that.
	for at := Microsecond; g.Heard() == 0; at += Microsecond {
		if over, err := n.Run(at); over || err != nil {
			t.Fatal(over, err)
		}
	}
	return resultOf(time.Duration(g.Heard()/Nanosecond), g.source.qp.Counters()), g
}

// there plays the same transfer over the same tree in verify/sim.
func (c *compared) there(t *testing.T, g *Group) result {
	t.Helper()
	cfg := c.config()
	cable := sim.Link{PicosPerByte: int64(Second) * 8 / cfg.Rate, Delay: cfg.Delay, QueueBytes: cfg.QueueBytes}
	lossy := cable
	lossy.Loss = c.loss
	s := sim.TreeScenario{
		Scenario: sim.Scenario{
			Seed: c.seed, Policy: c.policy, MTUBytes: cfg.MTUBytes, Regions: 1, MemoryBytes: comparedBytes, RepairChunks: 16384,
			Timeout: comparedTimeout, RetryCount: retryForEver, RNRRetry: retryForEver, Limit: time.Hour,
			Hosts: []sim.Host{{ToSwitch: cable, ToHost: cable, SendPSN: firstPSN, Outstanding: postedMessages}},
		},
		At: []int{0},
	}
	for i := range comparedMessages {
		s.Hosts[0].Messages = append(s.Hosts[0].Messages, sim.Message{Op: rnic.Write, Bytes: comparedBytes, From: i % 64})
	}
	for _, r := range g.receivers {
		s.Hosts = append(s.Hosts, sim.Host{ToSwitch: cable, ToHost: cable, Receiver: true, RecvPSN: firstPSN})
		s.At = append(s.At, int(r.box))
	}
	for _, b := range g.boxes {
		s.Boxes = append(s.Boxes, sim.TreeBox{Parent: max(0, int(b.parent)), Up: lossy, Down: lossy, DownPSN: firstPSN, Policy: c.policy, Chunks: 16384})
	}
	var r sim.Runner
	played, err := r.RunTree(s)
	if err != nil {
		t.Fatal(err)
	}
	if played.Failure != nil || played.Status != rnic.Success {
		t.Fatal(played.Failure, played.Status)
	}
	return resultOf(played.Took, &played.Source)
}

func near(a, b, part float64) bool { return a >= b*(1-part) && a <= b*(1+part) }

// Without loss the source sees the same: as many answers, and the end at the same time. In
// verify/sim a frame takes up to a nanosecond more on each link.
func TestASmallTreeIsAsInTheSimulationOfFrames(t *testing.T) {
	for _, policy := range []feedback.Policy{{}, {Repair: feedback.RepairLocal}} {
		c := compared{policy: policy, seed: 1}
		here, g := c.here(t)
		there := c.there(t, g)
		if !near(float64(here.took), float64(there.took), 0.005) {
			t.Errorf("%+v: took %v, in verify/sim %v", policy, here.took, there.took)
		}
		here.took, there.took = 0, 0
		if here != there || here.acks == 0 {
			t.Errorf("%+v: the source saw %+v, in verify/sim %+v", policy, here, there)
		}
	}
}

// With loss the two draw other losses. Over many runs the source sees the same on average: what it
// resends, how often it goes back, how long that takes. A timeout costs more than everything else
// and is rare, so timeouts are counted apart.
func TestLossCostsAsMuchAsInTheSimulationOfFrames(t *testing.T) {
	testlab.Long(t)
	const runs = 40
	for _, policy := range []feedback.Policy{{}, {Nak: feedback.NakLower}, {Repair: feedback.RepairLocal}} {
		var here, there sum
		for seed := range uint64(runs) {
			c := compared{loss: 2e-3, policy: policy, seed: seed}
			a, g := c.here(t)
			here.add(a)
			there.add(c.there(t, g))
		}
		if !near(here.took, there.took, 0.1) {
			t.Errorf("%+v: %d runs took %.4f s, in verify/sim %.4f", policy, runs, here.took, there.took)
		}
		if !near(here.resent, there.resent, 0.1) || !near(here.goBacks, there.goBacks, 0.1) || !near(here.acks, there.acks, 0.1) {
			t.Errorf("%+v: %+v, in verify/sim %+v", policy, here, there)
		}
		if apart := here.timeouts - there.timeouts; apart*apart > 9*(here.timeouts+there.timeouts) { // three deviations
			t.Errorf("%+v: %.0f timeouts, in verify/sim %.0f", policy, here.timeouts, there.timeouts)
		}
		if lossless := policy.Repair == feedback.RepairLocal; (here.goBacks == 0) != lossless || here.took == 0 {
			t.Errorf("%+v: %+v", policy, here)
		}
	}
}

// sum is the results of some runs together.
type sum struct{ took, resent, goBacks, acks, timeouts float64 }

func (s *sum) add(r result) {
	s.took += r.took.Seconds() - float64(r.timeouts)*comparedPatience.Seconds()
	s.resent, s.goBacks = s.resent+float64(r.resent), s.goBacks+float64(r.goBacks)
	s.acks, s.timeouts = s.acks+float64(r.acks), s.timeouts+float64(r.timeouts)
}
