package feedback

import "testing"

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
