package goodput

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// Progress is how far a receiver is that takes part.
type Progress[ID comparable] struct {
	ID    ID
	Acked roce.PSN
}

// Stalls finds the receivers of one group that do not get on while another one is further. The zero
// Stalls has seen none.
type Stalls[ID comparable] struct {
	lag   map[ID]*lag
	epoch uint64
}

// lag is a receiver behind which another one is further.
type lag struct {
	acked   roce.PSN
	since   time.Time
	stalled bool
	seen    bool
}

// Step takes where the receivers are that take part. It returns the receivers that have
// acknowledged nothing for the time after, each once, and those of them that get on again.
func (s *Stalls[ID]) Step(now time.Time, sample Sample, all []Progress[ID], after time.Duration) (stalled, returned []ID) {
	if s.epoch != sample.Epoch {
		s.lag, s.epoch = nil, sample.Epoch // in another PSN space nobody is where it was
	}
	if len(all) == 0 || after == 0 {
		s.lag = nil
		return nil, nil
	}
	first := all[0].Acked
	for _, p := range all {
		if p.Acked.After(first) {
			first = p.Acked
		}
	}
	for _, l := range s.lag {
		l.seen = false
	}
	for _, p := range all {
		l := s.lag[p.ID]
		if l != nil && l.acked != p.Acked {
			if l.stalled {
				returned = append(returned, p.ID)
			}
			delete(s.lag, p.ID)
			l = nil
		}
		if !first.After(p.Acked) {
			continue
		}
		if l == nil {
			l = &lag{acked: p.Acked, since: now}
			s.add(p.ID, l)
		}
		l.seen = true
		if !l.stalled && now.Sub(l.since) >= after {
			l.stalled = true
			stalled = append(stalled, p.ID)
		}
	}
	for id, l := range s.lag {
		if !l.seen { // it left, or nobody is further any more
			delete(s.lag, id)
		}
	}
	return stalled, returned
}

// Mark records that a receiver was found to have stalled by other means. It returns whether that is
// news.
func (s *Stalls[ID]) Mark(now time.Time, id ID, acked roce.PSN) bool {
	if l := s.lag[id]; l != nil {
		was := l.stalled
		l.stalled = true
		return !was
	}
	s.add(id, &lag{acked: acked, since: now, stalled: true})
	return true
}

// Stalled returns the receivers that have stalled and do not get on yet; nil: there is none.
func (s *Stalls[ID]) Stalled() (set map[ID]bool) {
	for id, l := range s.lag {
		if !l.stalled {
			continue
		}
		if set == nil {
			set = map[ID]bool{}
		}
		set[id] = true
	}
	return set
}

func (s *Stalls[ID]) add(id ID, l *lag) {
	if s.lag == nil {
		s.lag = map[ID]*lag{}
	}
	s.lag[id] = l
}
