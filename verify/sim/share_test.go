package sim

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

func TestFairnessIsJainsIndex(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  float64
	}{
		{[]float64{5}, 1}, {[]float64{3, 3, 3}, 1}, {[]float64{0, 0, 7, 0}, 0.25}, {[]float64{1, 3}, 0.8},
	} {
		if got := fairness(c.rates); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %g, want %g", c.rates, got, c.want)
		}
	}
}

func measureShares(t *testing.T, c sharedCase, period time.Duration) shares {
	t.Helper()
	m, err := c.run(period)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func total(rates []float64) (sum float64) {
	for _, r := range rates {
		sum += r
	}
	return sum
}

// A group and unicast flows behind one leg share it evenly, use nearly all of it, and lose nothing.
// The same sources lose frames if nothing is marked, and share unevenly.
func TestAGroupSharesALegWithUnicastFlows(t *testing.T) {
	testlab.Long(t)
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		c := beside(3, false)
		c.policy.Repair = repair
		m := measureShares(t, c, warmUp)
		rates := m.over(1, 2)
		if f := fairness(rates); f < 0.98 || total(rates) < 0.9*sharedRate {
			t.Errorf("repair %v: rates %.3g, fairness %.3f", repair, rates, f)
		}
		if m.lost != 0 || m.marked == 0 || m.heard == 0 {
			t.Errorf("repair %v: %d lost, %d marked, the source heard %d notifications", repair, m.lost, m.marked, m.heard)
		}
	}
	m := measureShares(t, beside(3, true), warmUp)
	if f := fairness(m.over(1, 2)); m.lost == 0 || f > 0.9 || m.marked != 0 || m.heard != 0 {
		t.Errorf("without marks: fairness %.3f, %d lost, %d marked, %d notifications", f, m.lost, m.marked, m.heard)
	}
}

// When a flow begins behind a leg of the group, both soon have the same rate; when the flow has
// ended, the group has the link for itself again.
func TestAGroupFollowsCongestionThatMoves(t *testing.T) {
	testlab.Long(t)
	const period = 10 * time.Millisecond
	c := moving()
	m := measureShares(t, c, period)
	at := func(of time.Duration) []float64 { n := int(of / period); return m.over(n-1, n) }
	for i, f := range c.flows {
		rates := at(f.Until)
		if pair := []float64{rates[0], rates[1+i]}; fairness(pair) < 0.98 || total(pair) < 0.9*sharedRate {
			t.Errorf("at the end of flow %d: %.3g", i+1, pair)
		}
	}
	for _, when := range []time.Duration{c.flows[0].Begin, c.flows[1].Begin} {
		if alone := at(when)[0]; alone < 0.95*sharedRate {
			t.Errorf("the group has %.3g bit/s for itself after %v", alone, when)
		}
	}
	if m.lost != 0 {
		t.Errorf("%d frames lost", m.lost)
	}
}

// The more legs are congested, the less a group gets that hears the notifications of all of them.
func TestTheFilterKeepsTheShareOfAGroup(t *testing.T) {
	testlab.Long(t)
	filtered, all := measureShares(t, congestedLegs(8, feedback.CNPFilter), warmUp), measureShares(t, congestedLegs(8, feedback.CNPAll), warmUp)
	if f, a := filtered.over(1, 2)[0], all.over(1, 2)[0]; f < 0.3*sharedRate || a > 0.2*sharedRate || filtered.lost != 0 {
		t.Errorf("with the filter %.3g bit/s, with all notifications %.3g; %d frames lost", f, a, filtered.lost)
	}
}

// A run is the same every time, and another one with another seed.
func TestSharesAreTheSameEveryTime(t *testing.T) {
	c := beside(1, false)
	c.takes = 10 * time.Millisecond
	first, again := measureShares(t, c, time.Millisecond), measureShares(t, c, time.Millisecond)
	if len(first.series) != 10 || !reflect.DeepEqual(first, again) {
		t.Errorf("%+v\n%+v", first, again)
	}
	c.seed++
	if reflect.DeepEqual(first, measureShares(t, c, time.Millisecond)) {
		t.Error("another seed changes nothing")
	}
}
