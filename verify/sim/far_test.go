package sim

import (
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
)

// Scenarios of all kinds hold where another box passes on what is for some of the receivers.
func TestFarReceivers(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 300
	}
	var r Runner
	carried, shared := uint64(0), uint64(0)
	var faults Tally
	for seed := range seeds {
		result, err := r.Run(DrawFar(seed))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if result.Failure != nil {
			t.Errorf("seed %d: %v", seed, result.Failure)
		}
		carried += result.Engine.Carried
		shared += result.Engine.Shared
		faults.Add(&result.Tally)
	}
	if carried == 0 || shared == 0 || faults[FarCrash].Data == 0 || faults[FarCrash].Feedback == 0 {
		t.Errorf("the engine carried %d frames, %d copies were shared, and the far box lost %+v", carried, shared, faults[FarCrash])
	}
}

// fastAndSlow is a group of which a near part is a quorum, and the others are behind a slow link.
func fastAndSlow(seed uint64, loss float64) Scenario {
	near := Link{PicosPerByte: 80, Delay: time.Microsecond, QueueBytes: 64 << 20, Loss: loss}
	far := Link{PicosPerByte: 80 * int64(5+seed%8), Delay: time.Duration(20+seed%80) * time.Microsecond, QueueBytes: 64 << 20, Loss: loss}
	s := Scenario{
		Seed: seed, Policy: feedback.Policy{Ack: 2, Repair: feedback.RepairLocal}, MTUBytes: 1024, Regions: 1, MemoryBytes: 64 << 10,
		RepairChunks: manyChunks, FarLink: FarLink{Down: far, Up: far}, FanOut: seed%2 == 0, Edges: Edges{Shares: seed%4 > 1},
		Timeout: 14, RetryCount: 7, RNRRetry: 7, Limit: time.Minute, GoesOn: true,
	}
	source := Host{ToSwitch: near, ToHost: near, Outstanding: 4, SendPSN: 0xFFFF00}
	for i := range 100 {
		source.Messages = append(source.Messages, Message{Op: rnic.Write, Bytes: 8 << 10, From: i % 8 * 1024})
	}
	s.Hosts = []Host{source}
	for i := range 4 {
		s.Hosts = append(s.Hosts, Host{ToSwitch: near, ToHost: near, Receiver: true, RecvPSN: 500, Far: i >= 2})
	}
	return s
}

// With a quorum in the near part and healthy receivers behind a slow link, these come to have
// everything, whether links lose packets or not.
func TestFastNearPartSlowFarPart(t *testing.T) {
	seeds := uint64(334)
	if testing.Short() {
		seeds = 10
	}
	for _, loss := range []float64{0, 1e-3, 1e-2} {
		var w world
		ahead := 0
		for seed := range seeds {
			s := fastAndSlow(seed, loss)
			if err := w.open(&s); err != nil {
				t.Fatal(err)
			}
			if w.run(); w.failure != nil {
				t.Errorf("seed %d, loss %g: %v", seed, loss, w.failure)
			}
			for i := 1; i < len(w.hosts); i++ {
				h := &w.hosts[i]
				if has := h.qp.Counters().Get(rnic.RequestsExecuted); h.behind || h.membership != member || has != 800 {
					t.Errorf("seed %d, loss %g: %v has %d of 800 packets, is behind: %t", seed, loss, h, has, h.behind)
				}
			}
			if w.took < w.now/2 {
				ahead++
			}
		}
		if ahead == 0 {
			t.Errorf("loss %g: the near part was never ahead of the far part", loss)
		}
		t.Logf("loss %g: in %d of %d runs the source had ended in the first half, by the near part alone; no receiver was left behind", loss, ahead, seeds)
	}
}

// The far box is away for longer than repair tries to reach the receivers behind it, and the quorum
// needs one of these: the source goes back again and again. All that they lack is retained, so
// nobody is behind.
func TestNobodyIsBehindWhileTheFarBoxIsAway(t *testing.T) {
	var w world
	for seed := range uint64(20) {
		s := fastAndSlow(seed, 2e-2)
		s.Policy.Ack, s.Timeout = 3, 12
		s.Timed = []Timed{{Kind: FarCrash, AfterPacket: 200, For: 300 * time.Millisecond}}
		if err := w.open(&s); err != nil {
			t.Fatal(err)
		}
		if w.run(); w.failure != nil {
			t.Errorf("seed %d: %v", seed, w.failure)
		}
		for i := 1; i < len(w.hosts); i++ {
			h := &w.hosts[i]
			if has := h.qp.Counters().Get(rnic.RequestsExecuted); h.behind || has != 800 {
				t.Errorf("seed %d: %v has %d of 800 packets, is behind: %t", seed, h, has, h.behind)
			}
		}
		if w.tally[FarCrash].Times != 1 {
			t.Errorf("seed %d: the far box was not away", seed)
		}
	}
}

// A receiver that is much slower than the quorum falls further behind than what is retained, on one
// box and behind another one. What bounds that is repair-window, or the memory of repair-bytes.
// With on-slow: wait the source waits for it, and it comes to have everything. With go-on it may
// lose what nobody has any more. Then it is behind, which is reported: nobody is stranded without a
// word.
func TestASlowReceiverBeyondWhatIsRetained(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 10
	}
	for _, policy := range []feedback.SlowPolicy{feedback.SlowWait, feedback.SlowGoOn} {
		for _, far := range []bool{false, true} {
			var w world
			left := 0
			for seed := range seeds {
				s := fastAndSlow(seed, 1e-2)
				s.Policy.OnSlow, s.Policy.RepairWindow = policy, 128
				if seed%2 == 1 {
					s.Policy.RepairWindow, s.Policy.RepairBytes = 1024, 128*mft.PacketBytes(s.MTUBytes)
				}
				s.FarLink.Down.PicosPerByte *= 20
				for i := range s.Hosts {
					if h := &s.Hosts[i]; h.Far && !far {
						h.Far, h.ToHost = false, s.FarLink.Down
					}
				}
				if err := w.open(&s); err != nil {
					t.Fatal(err)
				}
				if w.run(); w.failure != nil {
					t.Errorf("%v, far %t, seed %d: %v", policy, far, seed, w.failure)
				}
				for i := 1; i < len(w.hosts); i++ {
					h := &w.hosts[i]
					switch has := h.qp.Counters().Get(rnic.RequestsExecuted); {
					case h.behind && policy == feedback.SlowGoOn:
						left++
					case h.behind || h.membership != member || has != 800:
						t.Errorf("%v, far %t, seed %d: %v has %d of 800 packets, is behind: %t", policy, far, seed, h, has, h.behind)
					}
				}
			}
			if (left > 0) != (policy == feedback.SlowGoOn) {
				t.Errorf("%v, far %t: %d receivers were left behind", policy, far, left)
			}
		}
	}
}
