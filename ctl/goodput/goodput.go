// Package goodput says from what is counted anyway whether a group still gets on: how many packets
// its source sees acknowledged, compared with what it was, and which receiver the others wait for.
// It reads no clock.
package goodput

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// forgetAfter is the time at work after which half of the best rate is forgotten: what a group did
// in another phase of its program says little about the present one.
const forgetAfter = time.Minute

// Limits say when a group is degraded: while packets are outstanding, the rate at which they are
// acknowledged is below Below times the best one, or zero, for the time After.
type Limits struct {
	Below float64       // from 0 to 1; 0: only a group that stands still is degraded
	After time.Duration // 0: never
}

// Sample is a group's progress at one moment. Samples of the same Epoch are in one PSN space.
type Sample struct {
	Epoch  uint64
	Sent   roce.PSN // the highest PSN forwarded
	Merged roce.PSN // the last one that was acknowledged to the source
	Turned bool     // the Epoch has begun with a packet of another source
}

func (s Sample) outstanding() bool { return s.Sent.After(s.Merged) }

// Change is what a sample changes.
type Change uint8

const (
	None Change = iota
	Degraded
	Restored
)

// Meter measures one group. The zero Meter has no sample yet.
type Meter struct {
	known    bool
	last     Sample
	at       time.Time
	rate     float64 // packets a second, in the last window
	best     float64 // the reference
	before   float64 // best before the last window
	since    time.Time
	turning  bool // since is the begin of the windows that are unlike the present state
	degraded bool
}

// Rate returns the packets acknowledged in a second, in the last window.
func (m *Meter) Rate() float64 { return m.rate }

// Best returns the rate with which the present one is compared.
func (m *Meter) Best() float64 { return m.best }

// IsDegraded reports whether the group is degraded.
func (m *Meter) IsDegraded() bool { return m.degraded }

// Step takes a sample. The window that it ends begins with the sample before.
//
// A group is idle while nothing is outstanding, whatever its rate is. It is at work if packets were
// outstanding at both ends of the window. A degraded group is restored as soon as it has got
// everything through, also of a source whose turn is shorter than a window, or when its rate has
// been above the limit for the time After.
func (m *Meter) Step(now time.Time, s Sample, l Limits) Change {
	was, began := m.last, m.at
	window, progress := now.Sub(began), s.Merged.Sub(was.Merged)
	if m.known && window <= 0 {
		return None
	}
	m.last, m.at = s, now
	if !m.known || was.Epoch != s.Epoch || progress < 0 || l.After == 0 {
		// The end of the last window may have been in the new PSN space already.
		turned := m.known && was.Epoch != s.Epoch && s.Turned
		m.known, m.turning, m.rate, m.best = true, false, 0, m.before
		if m.degraded && turned && !s.outstanding() {
			return m.enter(Restored)
		}
		return m.off(l)
	}
	m.before = m.best
	m.rate = float64(progress) / window.Seconds()
	atWork := was.outstanding() && s.outstanding()
	bad := atWork && (progress == 0 || m.rate < l.Below*m.best)
	switch {
	case m.degraded && !s.outstanding() && progress > 0:
		return m.enter(Restored)
	case m.degraded:
		return m.become(!bad && progress > 0, Restored, began, now, l)
	case !bad:
		m.remember(atWork, window)
	}
	return m.become(bad, Degraded, began, now, l)
}

// off ends the state of a group that is no longer watched.
func (m *Meter) off(l Limits) Change {
	if m.degraded && l.After == 0 {
		return m.enter(Restored)
	}
	return None
}

// remember keeps the best rate, and forgets it slowly while the group is at work.
func (m *Meter) remember(atWork bool, window time.Duration) {
	if atWork {
		m.best -= m.best / 2 * min(1, window.Seconds()/forgetAfter.Seconds())
	}
	m.best = max(m.best, m.rate)
}

// become counts the time for which windows have been unlike the present state.
func (m *Meter) become(unlike bool, change Change, began, now time.Time, l Limits) Change {
	if !unlike {
		m.turning = false
		return None
	}
	if !m.turning {
		m.turning, m.since = true, began
	}
	if now.Sub(m.since) < l.After {
		return None
	}
	return m.enter(change)
}

func (m *Meter) enter(to Change) Change {
	m.turning, m.degraded = false, to == Degraded
	return to
}
