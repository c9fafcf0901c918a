package feedback

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// A receiver that was reported as silent already is not reported once more when it has no receive.
func TestWhoIsSilentIsReportedOnce(t *testing.T) {
	for before, want := range map[silence]bool{silenceNone: true, silenceTotal: false, silenceReady: false} {
		p := path{silent: before}
		if got := p.neverReady(neverReadyAfter); got != want || p.silent != silenceReady {
			t.Errorf("silence %d: reported %t, and then silence %d", before, got, p.silent)
		}
		if p = (path{silent: before}); p.neverReady(neverReadyAfter-1) || p.silent != before {
			t.Errorf("silence %d: reported too early, and then silence %d", before, p.silent)
		}
	}
}

// How far the source may run ahead of a slow receiver follows from repair-window, or from the
// memory for it where that is less.
func TestWhatTheMemoryKeepsBoundsHowFarASourceRunsAhead(t *testing.T) {
	for room, want := range map[int]int32{0: 32, 8: 4, 63: 31, 64: 32, 100: 32, 1: 0} {
		g := New(Config{Policy: Policy{Ack: 2, Repair: RepairLocal, RepairWindow: 64}, Paths: 3, FirstPSN: 1000, RepairRoom: room})
		if got := g.ahead(); got != want {
			t.Errorf("where the memory keeps %d packets: %d ahead, want %d", room, got, want)
		}
	}
}

// What the source has let go of, and a receiver lacks that it waits for, only the caller has. Where
// the policy is to go on, or the receiver answers nothing, nobody waits for that.
func TestWhatOnlyTheCallerHas(t *testing.T) {
	for name, c := range map[string]struct {
		policy SlowPolicy
		change func(*Group)
		only   bool
	}{
		"a slow receiver":            {SlowWait, func(*Group) {}, true},
		"the policy is to go on":     {SlowGoOn, func(*Group) {}, false},
		"it was reported as silent":  {SlowWait, func(g *Group) { g.paths[2].silent = silenceTotal }, false},
		"repair has given it up":     {SlowWait, func(g *Group) { g.legs[2].barred = true }, false},
		"it gets no data any more":   {SlowWait, func(g *Group) { g.paths[2].part = PartGone }, false},
		"one with no receive so far": {SlowWait, func(g *Group) { g.paths[2].silent = silenceReady }, false},
	} {
		g := New(Config{Policy: Policy{Ack: 2, Repair: RepairLocal, RepairWindow: 64, OnSlow: c.policy}, Paths: 3, FirstPSN: 1000})
		answer := func(path int, psn roce.PSN) {
			g.Step(0, Event{Kind: Response, Path: path, PSN: psn, Syndrome: roce.SyndromeUnlimited}, nil)
		}
		for psn := roce.PSN(1000); psn < 1006; psn++ {
			g.Step(0, Event{Kind: Data, PSN: psn, AckReq: true, First: true, Last: true}, nil)
		}
		answer(2, 1001)
		answer(0, 1003)
		answer(1, 1003)
		c.change(g)
		for psn, lacked := range map[roce.PSN]bool{1000: false, 1001: false, 1002: true, 1003: true, 1004: false} {
			if got := g.OnlyRetained(psn); got != (c.only && lacked) {
				t.Errorf("%s: packet %d: %t", name, psn, got)
			}
		}
	}
}
