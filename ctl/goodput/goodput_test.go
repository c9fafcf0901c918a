package goodput

import (
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// run plays windows of a second. In each the group sends and acknowledges packets.
type run struct {
	t      *testing.T
	now    time.Time
	sample Sample
	limits Limits
	Meter
}

func newRun(t *testing.T) *run {
	r := &run{t: t, now: time.Unix(1000, 0), limits: Limits{Below: 0.25, After: 3 * time.Second}}
	r.sample = Sample{Sent: 0xFFFF00, Merged: 0xFFFF00} // the PSNs wrap
	r.expect(None)
	return r
}

// second plays a second, at the end of which waiting packets are outstanding.
func (r *run) second(acked, waiting int32) Change {
	r.now = r.now.Add(time.Second)
	r.sample.Merged = r.sample.Merged.Add(acked)
	r.sample.Sent = r.sample.Merged.Add(waiting)
	return r.Step(r.now, r.sample, r.limits)
}

func (r *run) expect(want Change) {
	r.t.Helper()
	if got := r.Step(r.now, r.sample, r.limits); got != want {
		r.t.Errorf("%v, want %v", got, want)
	}
}

// seconds plays a second for each entry, and compares the changes.
func (r *run) seconds(acked []int32, waiting int32, want ...Change) {
	r.t.Helper()
	var got []Change
	for _, n := range acked {
		got = append(got, r.second(n, waiting))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("with %v packets acknowledged: %v, want %v", acked, got, want)
	}
}

func TestAGroupThatSlowsDownIsDegradedAndRestored(t *testing.T) {
	r := newRun(t)
	r.seconds([]int32{1000, 1000, 800}, 5, None, None, None)
	if r.Best() < 970 || r.Best() > 1000 || r.Rate() != 800 || r.IsDegraded() {
		t.Errorf("%+v", r.Meter)
	}
	r.seconds([]int32{200, 200, 200, 200}, 5, None, None, Degraded, None)
	if !r.IsDegraded() {
		t.Error("it is not")
	}
	before := r.Best()
	r.seconds([]int32{900, 900, 100, 900, 900, 900, 900}, 5, None, None, None, None, None, Restored, None)
	if r.IsDegraded() || before < 900 {
		t.Errorf("%+v", r.Meter)
	}
}

// A short dip is not what a program should fall back for.
func TestAShortDipIsNone(t *testing.T) {
	r := newRun(t)
	r.seconds([]int32{1000, 100, 100, 1000, 100, 100, 1000}, 5, None, None, None, None, None, None, None)
}

func TestAGroupThatStandsStill(t *testing.T) {
	r := newRun(t)
	r.limits.Below = 0
	r.seconds([]int32{1000, 1, 1, 1, 1}, 5, None, None, None, None, None)
	r.seconds([]int32{0, 0, 0}, 5, None, None, Degraded)
	// Everything got through: it is restored at once.
	r.seconds([]int32{5}, 0, Restored)
}

// Nothing was ever acknowledged: there is no rate to compare with.
func TestAGroupThatNeverBegan(t *testing.T) {
	r := newRun(t)
	r.seconds([]int32{0, 0, 0, 0}, 5, None, None, None, Degraded) // in the first window the packets were not yet there
}

// A source with nothing to send is not slow, and neither is one that sends a little.
func TestIdleIsNotDegraded(t *testing.T) {
	r := newRun(t)
	r.seconds([]int32{1000, 0, 0, 0, 0, 0}, 0, None, None, None, None, None, None)
	r.seconds([]int32{1, 1, 1, 1, 1}, 0, None, None, None, None, None)
	for range 10 { // now and then a packet is on its way
		r.seconds([]int32{1}, 1, None)
		r.seconds([]int32{1}, 0, None)
	}
	if r.Best() != 1000 {
		t.Errorf("the best rate is %v", r.Best())
	}
}

// A degraded group that nobody uses any more stays degraded: nothing shows that it works.
func TestADegradedGroupThatIsIdleStaysDegraded(t *testing.T) {
	r := newRun(t)
	r.seconds([]int32{1000, 0, 0, 0}, 5, None, None, None, Degraded)
	r.seconds([]int32{0, 0, 0, 0}, 0, None, None, None, None)
	r.seconds([]int32{0, 0, 0, 0}, 5, None, None, None, None)
	r.seconds([]int32{7}, 0, Restored)
}

// A source whose turn is over before the next sample has shown that the group gets on. A group that
// was only made anew has shown nothing.
func TestAShortTurnRestoresAGroup(t *testing.T) {
	for _, tt := range []struct {
		turned  bool
		waiting int32
		want    Change
	}{{true, 0, Restored}, {true, 5, None}, {false, 0, None}} {
		r := newRun(t)
		r.seconds([]int32{1000, 0, 0, 0}, 5, None, None, None, Degraded)
		r.sample = Sample{Epoch: 1, Merged: 40, Turned: tt.turned}
		r.seconds([]int32{0}, tt.waiting, tt.want)
		if tt.waiting > 0 {
			r.seconds([]int32{0}, tt.waiting, None) // the turn goes on, and nothing gets through
		}
	}
	r := newRun(t) // and one that was not degraded stays as it is
	r.sample = Sample{Epoch: 1, Merged: 40, Turned: true}
	r.seconds([]int32{0}, 0, None)
}

// What a group did long ago is forgotten while it works at another pace, and kept while it is idle.
func TestTheBestRateIsForgotten(t *testing.T) {
	r := newRun(t)
	r.second(1000, 5)
	for range 60 {
		r.second(400, 5)
	}
	if r.Best() < 550 || r.Best() > 650 {
		t.Errorf("after a minute the best rate is %v", r.Best())
	}
	for range 600 {
		r.second(400, 5)
	}
	if r.Best() != 400 {
		t.Errorf("after eleven minutes the best rate is %v", r.Best())
	}
	for range 600 {
		r.second(0, 0)
	}
	if r.Best() != 400 {
		t.Errorf("idle, it has become %v", r.Best())
	}
}

// After a switch of the source, or when the group was published anew, PSNs cannot be compared.
func TestAnotherPSNSpace(t *testing.T) {
	r := newRun(t)
	r.seconds([]int32{1000, 0, 0}, 5, None, None, None)
	r.sample = Sample{Epoch: 1, Sent: 77, Merged: 70}
	r.seconds([]int32{0, 0}, 5, None, None)
	if r.Rate() != 0 || r.Best() != 1000 {
		t.Errorf("%+v", r.Meter)
	}
	r.seconds([]int32{0, 0}, 5, None, Degraded)
	r.sample = Sample{Epoch: 2}
	r.seconds([]int32{0, 100}, 0, None, Restored)
	if r.Best() != 1000 {
		t.Errorf("the best rate is %v", r.Best())
	}
	r.second(1<<20, 0)
	r.sample = Sample{Epoch: 3} // the sample before was of this space already, and did not say so
	r.second(0, 0)
	if r.Best() != 1000 {
		t.Errorf("the best rate is %v", r.Best())
	}
	r.sample.Merged = r.sample.Merged.Add(-50) // it went back without a word
	r.seconds([]int32{0}, 0, None)
	if r.Rate() != 0 {
		t.Errorf("the rate is %v", r.Rate())
	}
}

func TestAGroupThatIsNotWatched(t *testing.T) {
	r := newRun(t)
	r.limits.After = 0
	r.seconds([]int32{1000, 0, 0, 0, 0, 0}, 5, None, None, None, None, None, None)
	r.limits.After = time.Second
	r.seconds([]int32{0, 0}, 5, Degraded, None)
	r.limits.After = 0 // by an update
	r.seconds([]int32{0, 0}, 5, Restored, None)
}

// Two samples of one moment have no window between them.
func TestASampleOfTheSameMoment(t *testing.T) {
	r := newRun(t)
	r.second(1000, 5)
	r.sample.Merged = r.sample.Merged.Add(3)
	r.expect(None)
	if r.Rate() != 1000 {
		t.Errorf("the rate is %v", r.Rate())
	}
}

func TestReceiversThatStall(t *testing.T) {
	var s Stalls[string]
	at := time.Unix(1000, 0)
	step := func(epoch uint64, a, b, c int32, want ...string) {
		t.Helper()
		at = at.Add(time.Second)
		var all []Progress[string]
		for i, n := range []int32{a, b, c} {
			if n >= 0 {
				all = append(all, Progress[string]{string(rune('a' + i)), roce.PSN(0xFFFFFE).Add(n)})
			}
		}
		stalled, returned := s.Step(at, Sample{Epoch: epoch}, all, 2*time.Second)
		var got []string
		for _, id := range stalled {
			got = append(got, id+" stalled")
		}
		for _, id := range returned {
			got = append(got, id+" returned")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d %d %d: %q, want %q", a, b, c, got, want)
		}
	}
	step(0, 0, 0, 0)
	step(0, 0, 0, 0) // nobody is further
	step(0, 5, 0, 5)
	step(0, 6, 0, 5)
	step(0, 7, 0, 5, "b stalled") // c lags since a second
	if got := s.Stalled(); len(got) != 1 || !got["b"] {
		t.Errorf("%v have stalled", got)
	}
	step(0, 8, 0, 5, "c stalled")
	before := s.Stalled()
	step(0, 9, 1, 5, "b returned")
	if got := s.Stalled(); len(before) != 2 || len(got) != 1 || !got["c"] {
		t.Errorf("%v have stalled, and %v had", got, before)
	}
	step(0, 9, 1, 9, "c returned")
	if got := s.Stalled(); got != nil {
		t.Errorf("%v have stalled", got)
	}
	step(0, 9, 1, 9, "b stalled") // it has acknowledged one packet and then none
	step(0, 9, -1, 9)             // it leaves
	step(0, 9, 1, 9)              // and comes back: from the beginning
	step(0, 9, 1, 9)
	step(0, 9, 1, 9, "b stalled")
	step(1, 9, 1, 9) // another PSN space
	step(1, 9, 1, 9)
	if !s.Mark(at, "c", roce.PSN(0xFFFFFE).Add(9)) || s.Mark(at, "c", 7) {
		t.Error("c had not stalled before")
	}
	step(1, 9, 1, 9, "b stalled")
	if s.Mark(at, "b", 0) {
		t.Error("it is known that b has stalled")
	}
	step(1, 10, 1, 10)
	at = at.Add(time.Hour)
	step(1, 10, 10, 10, "b returned")
}

func TestStallsOfAGroupThatIsNotWatched(t *testing.T) {
	var s Stalls[string]
	for i := range 3 {
		places := []Progress[string]{{"a", 1}, {"b", 2}}
		if stalled, returned := s.Step(time.Unix(int64(i), 0), Sample{}, places, 0); len(stalled)+len(returned) > 0 {
			t.Errorf("%v, %v", stalled, returned)
		}
	}
	if stalled, _ := s.Step(time.Unix(9, 0), Sample{}, nil, 1); len(stalled) > 0 {
		t.Error(stalled)
	}
}
