package model

import (
	"testing"
	"time"
)

// TestEverydayWorlds searches every state of the small worlds and logs their number. With -short it
// leaves out the worlds in which time passes.
func TestEverydayWorlds(t *testing.T) {
	for _, w := range Everyday() {
		if testing.Short() && w.Early+w.Ticks+w.NotReady+w.Deaths > 0 {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
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
