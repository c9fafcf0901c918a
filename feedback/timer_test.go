package feedback

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// With a Timer event in each TimerPeriod the switch speaks for a silent receiver as soon as
// speakAfter is over.
func TestTimerPeriod(t *testing.T) {
	g := New(Config{Policy: Policy{Speak: SpeakRNR}, Paths: 1})
	g.Step(0, Event{Kind: Data, First: true, Last: true, AckReq: true}, nil)
	now := Tick(0)
	for range 100 {
		now += TimerPeriod
		if acts, _ := g.Step(now, Event{Kind: Timer}, nil); len(acts) > 0 {
			if now != speakAfter || acts[0].Syndrome != roce.SyndromeRNR(1) {
				t.Errorf("%+v after %d ns", acts[0], now)
			}
			return
		}
	}
	t.Error("nothing was said")
}
