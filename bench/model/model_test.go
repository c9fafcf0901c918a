package model

import (
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
)

// open says what is known to be wrong in a world and not mended yet.
func open(w World) string {
	switch quorum := w.Policy.Ack != feedback.AckAll; {
	case quorum && (w.Losses == 2 || w.Crashes > 0):
		return "open: a receiver whose NAK was swallowed is passed by the quorum without being called behind"
	case !quorum && w.Losses == 2 && w.Policy.Nak == feedback.NakLower:
		return "open: with nak lower and two losses an ACK can reach the source on its way back"
	}
	return ""
}

// TestEverydayWorlds searches every state of the small worlds and says how many there are. With -short it leaves out those
// in which time does something.
func TestEverydayWorlds(t *testing.T) {
	for _, w := range Everyday() {
		if testing.Short() && w.Early+w.Ticks+w.NotReady+w.Deaths > 0 {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			if why := open(w); why != "" {
				t.Skip(why)
			}
			start := time.Now()
			r := Search(w)
			t.Logf("%d states, %d moves, %d ends, the longest run %d moves, %v",
				r.States, r.Moves, r.Ends, r.Depth, time.Since(start).Round(time.Millisecond))
			if v := r.Violation; v != nil {
				t.Errorf("%s\nas a story:\n\n%s", v.Trace(w), v.Story(w))
			}
		})
	}
}
