// Package merger is what an engine does with the plain ACKs of a group, written in Go for tests and
// proofs. The kernel's engine is bpf/answers.h.
//
// It is generic because the tests inside package feedback use it too, so it cannot import feedback:
// a progress is a feedback.Progress.
package merger

import "github.com/rocast/rocast/roce"

type progress = struct {
	PSN roce.PSN
	MSN roce.MSN
}

// Merger merges the ACKs of a group that feedback.Group.MayMerge allows.
type Merger[P ~struct {
	PSN roce.PSN
	MSN roce.MSN
}] struct {
	At   []P // of each path that counts
	Told P   // what the source was told last
}

// ACK handles an ACK of path i of At. tells: the source is sent an ACK of Told. Unless taken, the
// core has to handle the ACK.
func (m *Merger[P]) ACK(i int, acked P) (tells, taken bool) {
	switch at, was := progress(acked), progress(m.At[i]); {
	case at.PSN.After(was.PSN):
		m.At[i] = acked
	case at.PSN == was.PSN && at.MSN != was.MSN:
		return false, false
	default:
		return false, true
	}
	floor := progress(m.At[0])
	for _, p := range m.At[1:] {
		p := progress(p)
		if p.PSN.Before(floor.PSN) {
			floor.PSN = p.PSN
		}
		floor.MSN = floor.MSN.Add(min(0, p.MSN.Sub(floor.MSN)))
	}
	if !floor.PSN.After(progress(m.Told).PSN) {
		return false, true
	}
	m.Told = P(floor)
	return true, true
}
