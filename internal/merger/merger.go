package feedback

// Merger is what an engine does with the plain ACKs of a group that MayMerge. The kernel's engine
// is bpf/answers.h; tests and proofs use this one.
type Merger struct {
	At   []Place // of each path that counts
	Told Place   // what the source was told last
}

// ACK takes the ACK of path i of At. If it tells, the source is sent an ACK of Told. If it is not
// taken, it is the core's.
func (m *Merger) ACK(i int, at Place) (tells, taken bool) {
	switch was := m.At[i]; {
	case at.PSN.After(was.PSN):
		m.At[i] = at
	case at.PSN == was.PSN && at.MSN != was.MSN:
		return false, false
	default:
		return false, true
	}
	floor := m.At[0]
	for _, p := range m.At[1:] {
		if p.PSN.Before(floor.PSN) {
			floor.PSN = p.PSN
		}
		floor.MSN = floor.MSN.Add(min(0, p.MSN.Sub(floor.MSN)))
	}
	if !floor.PSN.After(m.Told.PSN) {
		return false, true
	}
	m.Told = floor
	return true, true
}
