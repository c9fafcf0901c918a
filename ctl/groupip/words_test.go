package groupip

import (
	"testing"
	"time"
)

func TestTimesInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "1 s", 1: "1 s", time.Second: "1 s", time.Second + 1: "2 s", 2 * time.Minute: "120 s", 2*time.Minute + 1: "3 min", 5 * time.Minute: "5 min"} {
		if got := InWords(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
