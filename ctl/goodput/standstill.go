package goodput

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// Standstill finds the times in which packets of a group wait and none is acknowledged to its
// source. The zero Standstill has no sample yet.
type Standstill struct {
	epoch  uint64
	merged roce.PSN
	since  time.Time // zero: no packet waits
	told   bool
}

// Step takes a sample. begun reports, once, that the group has stood still for the time after.
// ended reports that such a group gets on again, or that no packet waits any more. With begun or
// ended, lasted is how long the group has stood still.
func (s *Standstill) Step(now time.Time, sample Sample, after time.Duration) (begun, ended bool, lasted time.Duration) {
	same := !s.since.IsZero() && s.epoch == sample.Epoch && s.merged == sample.Merged && sample.outstanding()
	if !same {
		ended, lasted = s.told, now.Sub(s.since)
		*s = Standstill{epoch: sample.Epoch, merged: sample.Merged}
		if sample.outstanding() {
			s.since = now
		}
		return false, ended, lasted
	}
	if lasted = now.Sub(s.since); s.told || lasted < after {
		return false, false, 0
	}
	s.told = true
	return true, false, lasted
}

// Stands reports whether the group stands still: Step has reported begun, and not yet ended.
func (s *Standstill) Stands() bool { return s.told }
