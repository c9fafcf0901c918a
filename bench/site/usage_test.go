package site

import (
	"testing"
	"time"
)

// The share of a link is that of what it carries in the time. Where nothing limits the links there
// is none.
func TestTheShareOfALink(t *testing.T) {
	began := time.Now()
	before, after := Usage{at: began, sent: 500}, Usage{at: began.Add(2 * time.Second), sent: 1500}
	for rate, want := range map[int]float64{8000: 0.5, 16_000: 0.25, 0: 0} {
		if used := after.Since(before, rate); used.LinkShare != want || used.Sent != 1000 || used.Seconds != 2 {
			t.Errorf("at %d bit/s: %+v", rate, used)
		}
	}
}
