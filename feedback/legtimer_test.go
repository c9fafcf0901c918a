package feedback

import (
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// A group hears of what an engine carried only with its next event, which may be the ACK of that.
// It measures no round trip by such packets: it would be nothing, and each packet would be sent
// twice.
func TestCarriedPacketsAreNotMeasured(t *testing.T) {
	for kind, want := range map[EventKind]Tick{Data: Tick(DefaultRepairTimerFloor), Carried: Tick(DefaultRepairTimerCap / 4)} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
		g.Step(5, Event{Kind: kind, PSN: 0, Asked: 0, AckReq: true, First: true, Last: true, MSN: 1}, nil)
		g.Step(5, Event{Kind: Response, PSN: 0, MSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
		g.Step(5, Event{Kind: Data, PSN: 1, AckReq: true, First: true, Last: true}, nil)
		if got := g.legs[0].due - 5; got != want {
			t.Errorf("behind %v the path has %v to answer, want %v", kind, time.Duration(got), time.Duration(want))
		}
	}
}

// The timer runs for the time that the policy says, however long round trips are and however often
// the path was silent.
func TestPatienceIsBounded(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	const ms, us = Tick(time.Millisecond), Tick(time.Microsecond)
	for _, c := range []struct {
		srtt     Tick
		attempts uint8
		want     Tick
	}{
		{0, 0, 4 * ms}, {0, 1, 8 * ms}, {0, 3, 16 * ms},
		{us, 0, 200 * us}, {100 * us, 0, 300 * us}, {100 * us, 2, 1200 * us}, {100 * us, 200, 16 * ms}, {20 * ms, 0, 16 * ms},
	} {
		if got := g.patience(&leg{srtt: c.srtt, attempts: c.attempts}); got != c.want {
			t.Errorf("round trip %d, %d attempts: %d, want %d", c.srtt, c.attempts, got, c.want)
		}
	}
}

// Round trips are smoothed, and one of 0 counts as measured.
func TestRoundTripsAreSmoothed(t *testing.T) {
	var l leg
	var got []Tick
	for _, rtt := range []Tick{0, 801, 1} {
		l.measure(rtt)
		got = append(got, l.srtt)
	}
	if got[0] != 1 || got[1] != 101 || got[2] != 89 {
		t.Errorf("smoothed to %v", got)
	}
}
