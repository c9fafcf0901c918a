// Package asking is when an edge asks its box for mappings: that of a host, and a box as one.
package asking

import (
	"context"
	"time"
)

const (
	// Wait is how long the box may keep a question whose answer is loaded already.
	Wait = 4 * time.Second
	// Within bounds a question. A box that does not keep it has the rest of that.
	Within = Wait + 10*time.Second
	// LongestPause is the longest time between two questions if one fails after the other.
	LongestPause = 8 * time.Second
	firstPause   = time.Second
)

// Keep asks until ctx is done: at once after a question that went well, and otherwise after a pause
// that grows. round asks once, and reports whether that went well.
func Keep(ctx context.Context, round func(context.Context) bool) {
	for pause := firstPause; ctx.Err() == nil; {
		if round(ctx) {
			pause = firstPause
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, LongestPause)
	}
}
