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
