package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
)

func run(t *testing.T, w World) {
	at := time.Now()
	r := Search(w)
	t.Logf("%-44s %9d states %10d moves %7d ends depth %d gobacks %d  %v", w.Name, r.States, r.Moves, r.Ends, r.Depth, r.GoBacks, time.Since(at).Round(time.Millisecond))
	if r.Violation != nil {
		t.Errorf("%s\n%s\n%s", w.Name, r.Violation.Trace(w), r.Violation.Story(w))
	}
}
func TestScratch(t *testing.T) {
	for _, nak := range []feedback.NakPolicy{feedback.NakHold, feedback.NakLower} {
		for _, q := range []int{0, 2} {
			for _, n := range []int{2, 3} {
				if q > 0 && n == 2 {
					continue
				}
				base := World{Receivers: n, Packets: 4, Message: 2, First: 0xFFFFFE}
				base.Policy.Nak = nak
				base.Policy.Ack = feedback.AckPolicy(q)
				do := func(name string, f func(*World)) {
					w := base
					f(&w)
					w.Name = fmt.Sprintf("%v %v %d rcv %s", w.Policy.Nak, w.Policy.Ack, n, name)
					run(t, w)
				}
				do("loss1", func(w *World) { w.Losses = 1 })
				do("loss2", func(w *World) { w.Losses = 2 })
				do("loss1 early1", func(w *World) { w.Losses = 1; w.Early = 1 })
				do("loss1 double1 delay1", func(w *World) { w.Losses = 1; w.Doubles = 1; w.Delays = 1 })
				do("rnr2", func(w *World) { w.NotReady = 2 })
				do("rnr1 loss1", func(w *World) { w.NotReady = 1; w.Losses = 1 })
				do("fatal1 loss1", func(w *World) { w.Fatals = 1; w.Losses = 1; w.Retries = 3 })
				do("evict fatal1 loss1", func(w *World) {
					w.Fatals = 1
					w.Losses = 1
					w.Retries = 3
					w.Policy.OnFatal = feedback.FatalEvict
				})
				do("read loss1", func(w *World) { w.Read = 2; w.Losses = 1 })
				do("read loss1 early1", func(w *World) { w.Read = 2; w.Losses = 1; w.Early = 1 })
				do("crash1", func(w *World) { w.Crashes = 1 })
				do("crash1 loss1", func(w *World) { w.Crashes = 1; w.Losses = 1 })
				do("silent death1 evict", func(w *World) {
					w.Deaths = 1
					w.Ticks = 1
					w.Policy.SilentAfter = time.Duration(tickLength)
					w.Policy.Evict = true
				})
				do("speak loss2", func(w *World) { w.Losses = 2; w.Policy.Speak = feedback.SpeakRNR })
			}
		}
	}
}
