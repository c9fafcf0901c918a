package sim

import (
	"testing"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
)

// repairing is calm with repair on.
func repairing() Scenario {
	s := calm()
	s.Policy.Repair, s.RepairChunks = feedback.RepairLocal, 1<<12
	return s
}

// repairingWithin is repairing with so many buffers for the group.
func repairingWithin(buffers int) Scenario {
	s := repairing()
	s.Policy.RepairBytes = buffers * mft.BufferBytes
	return s
}

// legLoss is repairing with losses on the receivers' links, in both directions, and a source that
// waits 67 ms.
func legLoss(seed uint64, rate float64) Scenario {
	s := repairing()
	s.Seed, s.Timeout = seed, 14
	for i := range s.Hosts[1:] {
		s.Hosts[1+i].ToHost.Loss, s.Hosts[1+i].ToSwitch.Loss = rate, rate
	}
	return s
}

// What is lost on the legs the source never hears of: it resends nothing, and does not wait for its
// timeout either. With the engine in front, too.
func TestLossOnTheLegsIsUnheard(t *testing.T) {
	testlab.Long(t)
	for seed := range uint64(100) {
		s := legLoss(seed, 2e-2)
		s.FanOut = seed%2 == 0
		result := mustHold(t, s)
		c := &result.Source
		if n := c.Get(rnic.FramesRetransmitted) + c.Get(rnic.NAKSequenceReceived) + c.Get(rnic.RNRNAKsReceived) + c.Get(rnic.Timeouts); n != 0 {
			t.Errorf("seed %d: %v", seed, c.ByName())
		}
		if result.Tally[Loss].Data == 0 {
			t.Errorf("seed %d: nothing was lost: %+v", seed, result.Tally[Loss])
		}
	}
}

// The repair of one leg changes nothing on the others: they carry what they carry when nothing is
// lost.
func TestTheRepairOfOneLegLeavesTheOthersAlone(t *testing.T) {
	frames := func(rate float64) (c, d uint64) {
		s := legLoss(3, 0)
		s.Hosts[1].ToHost.Loss, s.Hosts[1].ToSwitch.Loss = rate, rate
		var r Runner
		if result := play(t, &r, s); result.Failure != nil {
			t.Fatal(result.Failure)
		}
		return r.w.hosts[2].toHost.offered, r.w.hosts[3].toHost.offered
	}
	c, d := frames(0)
	if c != 64*4 || d != c {
		t.Fatalf("without loss %d and %d frames", c, d)
	}
	if withC, withD := frames(5e-2); withC != c || withD != d {
		t.Errorf("%d and %d frames instead of %d", withC, withD, c)
	}
}
