package feedback

import (
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// A group hears of what an engine carried only with its next event, which may be the ACK of that.
// It measures no round trip by such packets: it would be nothing, and each packet would be sent
// twice.
func TestCarriedPacketsAreNotMeasured(t *testing.T) {
	for kind, want := range map[EventKind]Tick{Data: Tick(DefaultRepairTimerFloor), Carried: unmeasured} {
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
		{0, 0, ms}, {0, 1, 2 * ms}, {0, 4, 16 * ms}, {0, 5, 16 * ms},
		{us, 0, 50 * us}, {100 * us, 0, 300 * us}, {100 * us, 2, 1200 * us}, {100 * us, 16, 16 * ms}, {20 * ms, 0, 16 * ms},
	} {
		if got := g.patience(&leg{srtt: c.srtt, backoff: c.backoff}); got != c.want {
			t.Errorf("round trip %d, %d probes: %d, want %d", c.srtt, c.backoff, got, c.want)
		}
	}
}

// Round trips are smoothed, and one of 0 counts as measured.
func TestRoundTripsAreSmoothed(t *testing.T) {
	l := leg{backoff: 3}
	var got []Tick
	for _, rtt := range []Tick{0, 801, 1} {
		l.measure(rtt)
		got = append(got, l.srtt)
	}
	if l.backoff != 0 {
		t.Error("the time stays long")
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

// How many packets fill a path follows from the highest rate and the shortest round trip of late: a
// source that pauses and packets that wait in a queue do not change it at once. It has bounds.
func TestWhatFillsAPath(t *testing.T) {
	const us = Tick(time.Microsecond)
	l := leg{flight: leastFlight}
	for _, c := range []struct {
		rtt     Tick
		packets int32
		times   int
		want    uint16
	}{
		{10 * us, 30, 1, 30},
		{10 * us, 0, 1, 29}, // the source pauses
		{20 * us, 60, 1, 30},
		{20 * us, 10, 20, 30},      // it sends less: slowly the rate falls, and the round trip grows
		{200 * us, 600, 1600, 599}, // the path became longer
		{5 * us, 15, 1, 15},
		{us, 3, 1, leastFlight},
		{5 * 1000 * 1000 * us, 1 << 20, 1, leastFlight}, // nothing overflows
		{1, 1 << 20, 1, mostFlight},
	} {
		for range c.times {
			l.measureFlight(c.rtt, c.packets, c.rtt)
		}
		if want := min(c.want, mostFlight); l.flight != want {
			t.Errorf("%d packets in %v: %d fill the path, want %d", c.packets, time.Duration(c.rtt), l.flight, want)
		}
		if l.most() != l.flight*5/4 {
			t.Errorf("%d packets fill the path, and a repair sends %d", l.flight, l.most())
		}
	}
}

// The time in which a path lacks nothing does not count for its rate, also where the packet after
// it is the one whose round trip is measured.
func TestAPauseDoesNotLowerTheRate(t *testing.T) {
	const rtt = 10 * microsecond
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	psn := roce.PSN(0)
	for _, now := range []Tick{0, Tick(time.Second)} {
		for range 30 {
			g.Step(now, Event{Kind: Data, PSN: psn, AckReq: true, First: true, Last: true}, nil)
			psn = psn.Next()
		}
		g.Step(now+rtt, Event{Kind: Response, PSN: psn.Prev(), Syndrome: roce.SyndromeUnlimited}, nil)
		if l := &g.legs[0]; l.flight != 30 || l.rate != 3000 {
			t.Errorf("at %v: %d packets fill the path, %d come in a millisecond", time.Duration(now), l.flight, l.rate)
		}
	}
}

// However far a path is away, one answer makes the switch send RepairBurst packets at most. The
// next answers bring the rest of the window.
func TestOneAnswerSendsOneBurst(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	for psn := range roce.PSN(400) {
		g.Step(0, Event{Kind: Data, PSN: psn, AckReq: true}, nil)
	}
	g.legs[0].flight = mostFlight
	acts, _ := g.Step(0, Event{Kind: Response, PSN: 0, Syndrome: roce.NAKSequence}, nil)
	next, _ := g.Step(0, Event{Kind: Response, PSN: 31, Syndrome: roce.SyndromeUnlimited}, nil)
	repairs := func(acts []Action) (n int) {
		for _, a := range acts {
			if a.Kind == Repair {
				n++
			}
		}
		return n
	}
	if repairs(acts) != RepairBurst || repairs(next) != RepairBurst {
		t.Errorf("%d packets were sent again, and then %d", repairs(acts), repairs(next))
	}
	if len(next) != RepairBurst+1 || len(next) > MaxActions(1) {
		t.Errorf("%d actions, and MaxActions is %d", len(next), MaxActions(1))
	}
}

// A repair asks for an ACK four times in a window, and at the end of a burst. So the loss of one
// ACK does not stop it, and the receiver does not send an ACK for each packet.
func TestARepairAsksNowAndThen(t *testing.T) {
	for flight, want := range map[uint16][]roce.PSN{
		12:  {2, 5, 8, 11, 14},
		24:  {6, 13, 20, 27, 29},
		80:  {24, 49, 63},
		256: {31, 63},
	} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
		for psn := range roce.PSN(400) {
			g.Step(0, Event{Kind: Data, PSN: psn, AckReq: psn == 399}, nil)
		}
		g.legs[0].flight = flight
		acts, _ := g.Step(0, Event{Kind: Response, PSN: 0, Syndrome: roce.NAKSequence}, nil)
		var asks []roce.PSN
		for _, a := range acts {
			if a.AckReq {
				asks = append(asks, a.PSN)
			}
		}
		if !slices.Equal(asks, want) {
			t.Errorf("%d packets fill the path: %v ask, want %v", flight, asks, want)
		}
	}
}

// A path goes back as often in each round trip, and a round trip has a beginning and an end.
func TestAPathGoesBackSoOftenInARoundTrip(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	l := &g.legs[0]
	l.srtt = 100 * microsecond
	for _, now := range []Tick{second, second + l.srtt, 2 * second} {
		for n := range 2 * backsAtMost {
			if may := g.mayGoBack(now+l.srtt*Tick(n)/(2*backsAtMost), 0); may != (n < backsAtMost) {
				t.Errorf("at %v: back number %d is %v", time.Duration(now), n+1, may)
			}
		}
	}
}

// PSNs compare within half of their space. So what a path was asked and sent long ago must not stay
// behind while it acknowledges what asks for no ACK: it would seem to lie ahead.
func TestWhatAPathWasSentLongAgoIsForgotten(t *testing.T) {
	const step = 1 << 20
	g := New(Config{Policy: Policy{Ack: 1, Repair: RepairLocal}, Paths: 1})
	g.Step(0, Event{Kind: Data, PSN: 0, AckReq: true, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Response, PSN: 0, Syndrome: roce.NAKSequence}, nil) // and it is sent again
	g.Step(0, Event{Kind: Response, PSN: 0, Syndrome: roce.SyndromeUnlimited}, nil)
	for psn := roce.PSN(step); psn < 1<<24; psn += step {
		g.Step(0, Event{Kind: Carried, PSN: psn, MSN: step, Last: true}, nil)
		if g.legs[0].running {
			t.Fatalf("the path owes an answer to packet %d, which asks for none", psn)
		}
		g.Step(0, Event{Kind: Response, PSN: psn, Syndrome: roce.SyndromeUnlimited}, nil)
		if g.legs[0].running || g.sentAgain(0) {
			t.Fatalf("behind packet %d: a timer runs: %v, repair has sent the next one: %v", psn, g.legs[0].running, g.sentAgain(0))
		}
	}
}

// A path has more time for what an engine carried, because nothing tells when that was sent.
func TestCarriedPacketsAreWaitedForLonger(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	g.legs[0].srtt = Tick(100 * time.Microsecond)
	for _, c := range []struct {
		kind EventKind
		psn  roce.PSN
		want time.Duration
	}{{Data, 0, 300 * time.Microsecond}, {Carried, 1, 4 * time.Millisecond}, {Data, 2, 300 * time.Microsecond}} {
		g.Step(5, Event{Kind: c.kind, PSN: c.psn, Asked: c.psn, AckReq: true, First: true, Last: true, MSN: 1}, nil)
		if got := g.legs[0].due - 5; got != Tick(c.want) {
			t.Errorf("packet %d: the path has %v to answer, want %v", c.psn, time.Duration(got), c.want)
		}
		g.setRunning(&g.legs[0], false)
	}
}

// The rate of a path is what it acknowledges, from its last progress before the packet that is
// measured. A source that sends slowly and asks for an ACK now and then has a low rate, although
// the ACK of many packets comes soon after the last one.
func TestTheRateIsWhatAPathAcknowledges(t *testing.T) {
	const us = Tick(time.Microsecond)
	for _, c := range []struct {
		between Tick // packets of the source
		want    uint16
	}{{us, 100}, {2 * us, 50}, {20 * us, leastFlight}} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
		for psn := range roce.PSN(640) {
			now := Tick(psn+1) * c.between
			if heard := psn - roce.PSN(100*us/c.between); psn >= heard && heard%32 == 31 {
				g.Step(now, Event{Kind: Response, PSN: heard, Syndrome: roce.SyndromeUnlimited}, nil)
			}
			g.Step(now, Event{Kind: Data, PSN: psn, AckReq: psn%32 == 31, First: true, Last: true}, nil)
		}
		if f := g.legs[0].flight; f > c.want || f < c.want-c.want/8 {
			t.Errorf("a packet in %v, a round trip of 100 us: %d fill the path, want %d", time.Duration(c.between), f, c.want)
		}
	}
}

// A repair whose window is smaller than what the path takes finds that out: each round trip it
// sends a quarter more than it knows of. The queue that it makes where it sends too much is not
// taken for a longer path.
func TestARepairFindsWhatThePathTakes(t *testing.T) {
	const rtt, takes = 40 * microsecond, 100
	l := leg{flight: leastFlight, state: legRepairing}
	for range 1000 {
		packets := int32(l.most())
		late := max(rtt, rtt*Tick(packets)/takes) // what the path does not take waits in a queue
		l.measureFlight(late, packets, late)
	}
	if l.flight < takes-2 || l.flight > takes {
		t.Errorf("%d packets fill the path, want %d", l.flight, takes)
	}
}

// A path whose round trips vary has longer to answer than one whose round trips are always the
// same.
func TestPatienceGrowsWithTheVariationOfRoundTrips(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		want time.Duration
		rtts []time.Duration
	}{
		{3 * ms, []time.Duration{ms}},
		{3 * ms, []time.Duration{ms, ms, ms, ms}},
		{5875 * ms / 1000, []time.Duration{ms, 4 * ms}},          // 1.375 ms + 4 * 1.125 ms
		{3200 * ms / 1000, []time.Duration{ms, 200 * ms / 1000}}, // 0.9 ms + 4 * 0.575 ms
		{DefaultRepairTimerCap, []time.Duration{ms, time.Hour}},
	} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
		l := &g.legs[0]
		for _, rtt := range c.rtts {
			l.measure(Tick(rtt))
		}
		if got := g.patience(l); got != Tick(c.want) {
			t.Errorf("after %v: %v, want %v", c.rtts, time.Duration(got), c.want)
		}
	}
}

// A repair that has lost nothing for long catches up with a source that always has more packets on
// their way than fill the path. A loss begins the count again.
func TestARepairThatGoesWellCatchesUp(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	l := &g.legs[0]
	start := Tick(time.Hour)
	now := start
	widen := func(n int) {
		for range n {
			l.widen(now, g.policy.RepairWindow)
		}
	}
	g.repairFrom(start, 0, 1, 1)
	for _, want := range []uint16{2, 4, 8, leastFlight * 5 / 4, leastFlight * 5 / 4, leastFlight * 5 / 4} {
		if widen(1); l.window != want {
			t.Fatalf("the window is %d, want %d", l.window, want)
		}
	}
	now = start + calmAfter*millisecond - 1
	if widen(5000); l.window != leastFlight*5/4 {
		t.Errorf("before the time is over the window is %d", l.window)
	}
	now++
	if widen(1); l.window != 2*(leastFlight*5/4) {
		t.Errorf("after the time the window is %d", l.window)
	}
	if widen(10); int(l.window) != g.policy.RepairWindow {
		t.Errorf("at last the window is %d", l.window)
	}
	g.repairFrom(now, 0, 1, 2*leastFlight)
	if widen(1); l.window != leastFlight*5/4 {
		t.Errorf("after a loss the window is %d", l.window)
	}
}

// A group that waits says when a Timer event can do something, and none is needed before.
func TestATimerEventBeforeAGroupIsDueDoesNothing(t *testing.T) {
	const start = Tick(1e9)
	packet := func(psn roce.PSN, asks bool) Event {
		return Event{Kind: Data, PSN: psn, First: psn == 1, Last: asks, AckReq: asks}
	}
	ack := func(path int, psn roce.PSN) Event {
		return Event{Kind: Response, Path: path, PSN: psn, MSN: 1, Syndrome: roce.SyndromeUnlimited}
	}
	for name, c := range map[string]struct {
		events []Event
		due    Tick // from the last event on
	}{
		"a receiver is asked":             {[]Event{packet(1, true)}, unmeasured},
		"one receiver has answered":       {[]Event{packet(1, true), ack(0, 1)}, unmeasured},
		"a receiver is repaired":          {[]Event{packet(1, true), packet(2, true), {Kind: Response, Path: 0, PSN: 2, Syndrome: roce.NAKSequence}}, Tick(DefaultRepairTimerFloor)},
		"an engine has carried what asks": {[]Event{{Kind: Carried, PSN: 1, Asked: 1, AckReq: true, First: true, Last: true, MSN: 1}}, Tick(DefaultRepairTimerCap) / 4},
		"the source was called twice":     {[]Event{packet(1, true), ack(0, 1), ack(1, 1), packet(3, true), packet(3, true)}, RepairPeriod},
		"no timer runs any more":          {[]Event{packet(1, true), ack(0, 1), ack(1, 1), packet(2, true), ack(0, 2), ack(1, 2), packet(3, false)}, muteAfter / 4},
		"the source does not go on":       {[]Event{packet(1, false)}, muteAfter / 4},
		"the last ACK may have been lost": {[]Event{packet(1, true), ack(0, 1), ack(1, 1)}, unheardAfter / 4},
	} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2, FirstPSN: 1})
		for _, ev := range c.events {
			g.Step(start, ev, nil)
		}
		if !g.Waiting() || g.Due(start) != start+c.due {
			t.Errorf("%s: waiting is %v, due in %v, want %v", name, g.Waiting(), time.Duration(g.Due(start)-start), time.Duration(c.due))
		}
		if acts, _ := g.Step(g.Due(start)-1, Event{Kind: Timer}, nil); len(acts) > 0 {
			t.Errorf("%s: before its time a Timer event does %v", name, acts)
		}
	}
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2, FirstPSN: 1})
	g.Step(start, packet(1, false), nil)
	g.Step(start, Event{Kind: Timer}, nil)
	if due := g.Due(start + muteAfter/2); due != start+muteAfter {
		t.Errorf("a silence that was seen is due in %v", time.Duration(due-start))
	}
	patient := Policy{Repair: RepairLocal, RepairTimerFloor: time.Second, RepairTimerCap: time.Second}
	asked := New(Config{Policy: patient, Paths: 1, FirstPSN: 1})
	asked.Step(start, packet(1, false), nil)
	asked.Step(start, Event{Kind: Timer}, nil)
	asked.Step(start+muteAfter, Event{Kind: Timer}, nil)
	if due := asked.Due(start + muteAfter); due != start+muteAfter+second {
		t.Errorf("when the receivers were asked, something is due in %v", time.Duration(due-start-muteAfter))
	}
	answered := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2, FirstPSN: 1})
	for _, ev := range []Event{packet(1, true), ack(0, 1), packet(2, true), ack(0, 2)} {
		answered.Step(start, ev, nil)
	}
	answered.Step(start+RepairPeriod+1, Event{Kind: Timer}, nil)
	if due := answered.Due(start + RepairPeriod + 1); due != start+unmeasured {
		t.Errorf("where a path has answered and another one has not, something is due in %v", time.Duration(due-start))
	}
	if due := g.Due(start + 2*muteAfter); due != start+2*muteAfter+RepairPeriod {
		t.Errorf("what is overdue is due in %v", time.Duration(due-start-2*muteAfter))
	}
}

// A path is due when its own time is over, and not because another one was due long before.
func TestPathsAreDueOnlyWhileTheyOweAnAnswer(t *testing.T) {
	const start, later = Tick(1e9), Tick(2e9)
	for _, p := range []RepairPolicy{RepairLocal, RepairOff} {
		g := New(Config{Policy: Policy{Repair: p}, Paths: 2, FirstPSN: 1})
		ask := func(now Tick, psn roce.PSN) {
			g.Step(now, Event{Kind: Carried, PSN: psn, Asked: psn, AckReq: true, Last: true, MSN: 1}, nil)
		}
		due := func(want Tick) {
			t.Helper()
			if got := g.PathsDue(); p == RepairLocal && got != want || p == RepairOff && got != endless {
				t.Errorf("%v: a path is due at %d, want %d", p, got, want)
			}
		}
		due(endless)
		ask(start, 1)
		due(start + Tick(DefaultRepairTimerCap)/4)
		for path := range 2 {
			g.Step(start, Event{Kind: Response, Path: path, PSN: 1, MSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
		}
		due(endless)
		ask(later, 2)
		due(later + Tick(DefaultRepairTimerCap)/4)
	}
}

// The window of a repair ends at what its counter holds, also where a group may retain more.
func TestTheWindowOfARepairNeverFalls(t *testing.T) {
	l := leg{window: 18, flight: leastFlight}
	for range 20 {
		was := l.window
		if l.widen(calmAfter*millisecond, 1<<16); l.window < was {
			t.Fatalf("the window falls from %d to %d", was, l.window)
		}
	}
}

// A worker reads the clock once for all frames that it finds. So an ACK may come at the time at
// which its packet was sent, which says nothing of the round trip.
func TestARoundTripOfNoTimeIsNotBelievedForEver(t *testing.T) {
	l := leg{flight: leastFlight}
	for range 100 {
		l.measureFlight(100*microsecond, 300, 100*microsecond)
	}
	before := l.flight
	l.measureFlight(0, 5, 0)
	for range 1000 {
		l.measureFlight(100*microsecond, 300, 100*microsecond)
	}
	if l.flight < before/2 || before != mostFlight {
		t.Errorf("%d packets fill the path, and %d before", l.flight, before)
	}
}

// A packet that an engine carried shows that the source is not silent.
func TestCarriedPacketsEndTheSilence(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	g.Step(5, Event{Kind: Data, PSN: 0, AckReq: true, First: true, Last: true}, nil)
	g.lull = lull{asked: true, seen: true, since: 5, times: 1}
	g.Step(7, Event{Kind: Carried, PSN: 1, Asked: 1, AckReq: true, First: true, Last: true, MSN: 1}, nil)
	if g.lull != (lull{}) || g.pace.seenAt != 7 {
		t.Errorf("%+v %+v", g.lull, g.pace)
	}
}

// An engine carries nothing while a path is repaired, also when members come or go meanwhile, and
// everything again as soon as the repair is done.
func TestAnEngineWaitsForRepairs(t *testing.T) {
	for _, from := range [][]int{nil, {0, 1}, {1}} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2})
		repaired := 1
		for psn := range roce.PSN(40) {
			g.Step(0, Event{Kind: Data, PSN: psn, AckReq: psn == 39, First: true, Last: true}, nil)
		}
		g.Step(0, Event{Kind: Response, Path: 0, PSN: 39, Syndrome: roce.SyndromeUnlimited}, nil)
		for psn := range roce.PSN(2) { // it goes back twice
			g.Step(0, Event{Kind: Response, Path: 1, PSN: psn, Syndrome: roce.NAKSequence}, nil)
		}
		if from != nil {
			g.Rearrange(from, nil, nil)
			repaired = len(from) - 1
		}
		if n := g.Plain(); n != 0 {
			t.Errorf("members from %v: an engine may copy to %d paths while one is repaired", from, n)
		}
		for !g.Settled() {
			psn := g.legs[repaired].cursor.Prev()
			g.Step(0, Event{Kind: Response, Path: repaired, PSN: psn, Syndrome: roce.SyndromeUnlimited}, nil)
		}
		if n := g.Plain(); n != len(g.paths) {
			t.Errorf("members from %v: after the repair an engine may copy to %d paths", from, n)
		}
	}
}

// A path that is only late does not take the group from the engine: it is sent one packet again.
// A path that asks for what it was sent again does.
func TestALatePathLeavesTheGroupToTheEngine(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 1, Repair: RepairLocal}, Paths: 2})
	g.Step(0, Event{Kind: Data, PSN: 0, AckReq: true, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Response, Path: 0, PSN: 0, Syndrome: roce.SyndromeUnlimited}, nil)
	if acts, _ := g.Step(unmeasured, Event{Kind: Timer}, nil); len(acts) != 1 || acts[0].Kind != Repair {
		t.Fatalf("the late path causes %v", acts)
	}
	if n := g.Plain(); n != 2 {
		t.Errorf("with a late path the engine may copy to %d paths", n)
	}
	g.Step(unmeasured, Event{Kind: Response, Path: 1, PSN: 0, Syndrome: roce.NAKSequence}, nil)
	if n := g.Plain(); n != 0 {
		t.Errorf("with a path in doubt the engine may copy to %d paths", n)
	}
}

// The switch asks the receivers only if the newest packet did not: an engine says which of the
// packets that it carried was the last one that asked.
func TestAnEngineSaysWhetherTheNewestPacketAsks(t *testing.T) {
	for _, c := range []struct {
		ackReq     bool
		asked      roce.PSN
		mute, owes bool
	}{{true, 2, false, true}, {true, 1, true, true}, {false, 2, true, false}, {false, 0, true, false}} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
		g.Step(0, Event{Kind: Carried, PSN: 2, MSN: 2, AckReq: c.ackReq, Asked: c.asked}, nil)
		if g.mute() != c.mute || g.legs[0].running != c.owes {
			t.Errorf("%+v: the source may wait for nothing: %v, the path owes an answer: %v", c, g.mute(), g.legs[0].running)
		}
	}
}

// An engine may have carried packets to a path whose repair has begun meanwhile. The path can
// acknowledge them.
func TestAPathUnderRepairHasWhatAnEngineCarried(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	g.Step(0, Event{Kind: Data, PSN: 0, AckReq: true, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Response, PSN: 0, Syndrome: roce.SyndromeRNR(shortestRNR)}, nil)
	g.Step(0, Event{Kind: Carried, PSN: 2, MSN: 2, Last: true}, nil)
	if _, outcome := g.Step(0, Event{Kind: Response, PSN: 2, Syndrome: roce.SyndromeUnlimited}, nil); outcome != Merged {
		t.Errorf("the ACK of a carried packet is %v", outcome)
	}
}

// A source that paused once inside a message is believed fast again when it goes on: each packet
// that comes soon takes an eighth of the time for which its silence is borne.
func TestAPauseOfTheSourceIsForgotten(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
	now, pause := Tick(0), 64*millisecond
	for psn := range roce.PSN(20) {
		if psn == 1 {
			now += pause
		} else if psn > 1 {
			pause -= pause / 8
		}
		g.Step(now, Event{Kind: Data, PSN: psn, First: psn == 0}, nil)
		g.Step(now, Event{Kind: Timer}, nil)
		if psn == 0 {
			continue
		}
		if got, want := g.Due(now)-now, max(muteAfter, pauseTimes*pause); got != want {
			t.Fatalf("%d packets later the silence is borne for %v, want %v", psn, time.Duration(got), time.Duration(want))
		}
	}
}

// However many receivers join with one packet, the caller has room for what that causes.
func TestManyReceiversJoinAtOnce(t *testing.T) {
	const receivers = 100
	g := New(Config{Paths: 1})
	from := make([]int, receivers)
	for i := range from {
		from[i] = -1
	}
	from[0] = 0
	g.Rearrange(from, nil, nil)
	acts, _ := g.Step(0, Event{Kind: Data, PSN: 0, First: true, Last: true}, nil)
	if len(acts) != 3*receivers-2 || len(acts) > MaxActions(receivers) {
		t.Errorf("%d actions, and MaxActions is %d", len(acts), MaxActions(receivers))
	}
}

// While the source answers a question, the group is due when it is sure that it has heard that.
func TestDueWhileTheSourceAnswers(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1, FirstPSN: 10, Restored: true})
	s := SourceSwitch{OldPath: -1, NewPath: -1}
	asked := onItsWay + AskPeriod
	for _, now := range []Tick{0, onItsWay} {
		g.Ask(now, s, nil)
	}
	g.Step(onItsWay, Event{Kind: Response, PSN: 19, Syndrome: roce.SyndromeUnlimited}, nil)
	g.Ask(asked, s, nil)
	if acts, _ := g.Step(asked+millisecond, Event{Kind: Data, PSN: 20}, nil); len(acts) != 1 {
		t.Fatalf("%+v", acts)
	}
	if due := g.Due(asked + millisecond); !g.Waiting() || due != asked+2*AskPeriod {
		t.Errorf("waiting %v, due %v behind the question", g.Waiting(), due-asked)
	}
}

// A repair that takes long is reported then, and not when the time of its path is over.
func TestALongRepairIsReportedInTime(t *testing.T) {
	for now, reported := range map[Tick]int{repairLong - 1: 0, repairLong: 1} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1})
		for psn := range roce.PSN(100) { // more than a repair begins with
			g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
		}
		g.Step(0, Event{Kind: Response, PSN: 0, Syndrome: roce.NAKSequence}, nil)
		g.legs[0].due, g.retained.due = repairLong+millisecond, repairLong+millisecond
		acts := g.legTimers(now, nil)
		if len(acts) != reported || reported > 0 && acts[0].Note != NoteRepairing {
			t.Errorf("after %v: %+v", time.Duration(now), acts)
		}
	}
}
