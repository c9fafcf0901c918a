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
		srtt    Tick
		backoff uint8
		want    Tick
	}{
		{0, 0, 4 * ms}, {0, 1, 8 * ms}, {0, 3, 16 * ms},
		{us, 0, 200 * us}, {100 * us, 0, 300 * us}, {100 * us, 2, 1200 * us}, {100 * us, 16, 16 * ms}, {20 * ms, 0, 16 * ms},
	} {
		if got := g.patience(&leg{srtt: c.srtt, backoff: c.backoff}); got != c.want {
			t.Errorf("round trip %d, %d probes: %d, want %d", c.srtt, c.backoff, got, c.want)
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

// A path whose round trips become much longer than its timer is probed in vain at first. Then the
// timer waits long enough for a round trip to be measured.
func TestLongerRoundTripsAreMeasured(t *testing.T) {
	const step = Tick(100 * time.Microsecond)
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	type ack struct {
		at  Tick
		psn roce.PSN
	}
	var acks []ack
	var acts []Action
	expected, psn, probes := roce.PSN(0), roce.PSN(0), 0
	for now := Tick(0); now < Tick(2*time.Second); now += step {
		rtt := step
		if now > Tick(time.Second) {
			rtt = 50 * step
		}
		take := func(ev Event) {
			acts, _ = g.Step(now, ev, acts[:0])
			for _, a := range acts {
				if a.Kind != Copy && a.Kind != Repair {
					continue
				}
				if a.PSN == expected {
					expected = expected.Next()
				}
				acks = append(acks, ack{now + rtt, expected.Prev()})
				if a.Kind == Repair && now > Tick(1900*time.Millisecond) {
					probes++
				}
			}
		}
		for len(acks) > 0 && acks[0].at <= now {
			take(Event{Kind: Response, PSN: acks[0].psn, Syndrome: roce.SyndromeUnlimited})
			acks = acks[1:]
		}
		take(Event{Kind: Timer})
		take(Event{Kind: Data, PSN: psn, AckReq: true, First: true, Last: true})
		psn = psn.Next()
	}
	if probes > 0 {
		t.Errorf("%d packets were sent again a second after round trips had become longer", probes)
	}
}
