package goodput

import (
	"testing"
	"time"
)

func TestAStandstillIsToldOnceWithItsEnd(t *testing.T) {
	var s Standstill
	at := time.Unix(1000, 0)
	step := func(after time.Duration, epoch uint64, acked, waiting int32, wantBegun, wantEnded bool, want time.Duration) {
		t.Helper()
		at = at.Add(after)
		sample := Sample{Epoch: epoch}
		sample.Merged = sample.Merged.Add(0xFFFFF0).Add(acked) // the PSNs wrap
		sample.Sent = sample.Merged.Add(waiting)
		begun, ended, lasted := s.Step(at, sample, time.Second)
		if begun != wantBegun || ended != wantEnded || (begun || ended) && lasted != want {
			t.Errorf("at %v: begun %v, ended %v after %v; want %v, %v after %v", at, begun, ended, lasted, wantBegun, wantEnded, want)
		}
		if begun && !s.Stands() || ended && s.Stands() {
			t.Error("Stands says something else")
		}
	}
	const tick = 250 * time.Millisecond
	step(tick, 0, 0, 0, false, false, 0)
	step(time.Hour, 0, 0, 0, false, false, 0) // idle
	step(tick, 0, 0, 9, false, false, 0)
	step(999*time.Millisecond, 0, 0, 9, false, false, 0)
	step(time.Millisecond, 0, 0, 20, true, false, time.Second)
	step(time.Minute, 0, 0, 20, false, false, 0)
	step(tick, 0, 1, 19, false, true, time.Minute+time.Second+tick) // one packet is enough
	step(999*time.Millisecond, 0, 1, 19, false, false, 0)           // and the time begins again
	step(time.Millisecond, 0, 1, 19, true, false, time.Second)
	step(tick, 0, 20, 0, false, true, time.Second+tick) // everything got through
	step(tick, 0, 20, 5, false, false, 0)
	step(time.Second, 0, 20, 5, true, false, time.Second)
	step(tick, 1, 20, 5, false, true, time.Second+tick) // in another PSN space no packet is the same
	step(tick, 1, 20, 5, false, false, 0)
	step(time.Second, 1, 20, 5, true, false, time.Second+tick)
	step(tick, 1, 20, 0, false, true, time.Second+2*tick) // the source gave up
	step(time.Hour, 1, 20, 0, false, false, 0)
}
