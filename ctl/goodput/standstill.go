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

// Step takes a sample. begun says that the group has stood still for the time after, once; ended
// says that it gets on again, or that nothing waits any more. lasted is the time for which it has
// stood still, or had, when one of them is true.
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

// Stands reports whether Step has told that the group stands still, and not yet that it gets on.
func (s *Standstill) Stands() bool { return s.told }
