package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// The engine in front of the core sends one copy for the paths that share a leg, too. Whether a
// path shares is chosen when the group is armed, and holds while the engine has the group: what
// would change it takes the group back.

// choose decides which paths get shared copies from the engine, if the group is armed now.
func (s *sharing) choose(now feedback.Tick, st *state) {
	if s == nil {
		return
	}
	for k := range s.legs {
		s.legs[k].armed = 0
	}
	for i := range s.edges {
		if k := st.group.ShareOf(i); k >= 0 && st.merge.Part(i) == feedback.PartActive && s.takes(now, i, k) {
			s.legs[k].armed++
		}
	}
}

// isShared reports whether path i gets what the engine sends by a shared leg.
func (s *sharing) isShared(st *state, i int) bool {
	if s == nil {
		return false
	}
	k := st.group.ShareOf(i)
	return s.inUse(k) && s.legs[k].armed >= 2 && !s.edges[i].off && st.merge.Part(i) == feedback.PartActive
}

// addTo adds the legs that two paths or more share to a block.
func (s *sharing) addTo(b *mft.Block, st *state) error {
	if s == nil {
		return nil
	}
	for k := range s.legs {
		if !s.inUse(k) || s.legs[k].armed < 2 {
			continue
		}
		if err := b.AddShare(st.group, k, &st.edits); err != nil {
			return err
		}
	}
	return nil
}

// version is a number that changes when other paths share.
func (s *sharing) version() uint32 {
	if s == nil {
		return 0
	}
	return s.changes
}

// outdates reports whether other paths share, or are to be tried, than when a group was armed at
// this version.
func (s *sharing) outdates(now feedback.Tick, st *state, version uint32) bool {
	if s == nil || s.changes != version {
		return s != nil
	}
	if s.lost == 0 {
		return false
	}
	for i := range s.edges {
		e := &s.edges[i]
		if e.off && now >= e.until && s.inUse(st.group.ShareOf(i)) && st.merge.Part(i) == feedback.PartActive {
			return true
		}
	}
	return false
}

// carried notes that the engine has carried so many packets, up to the newest one.
func (s *sharing) carried(st *state, packets int32) {
	if s == nil {
		return
	}
	newest := st.merge.NextPSN().Prev()
	for k := range s.legs {
		l := &s.legs[k]
		if s.inUse(k) && l.armed >= 2 {
			l.sent, l.hasSent = newest, true
			l.counts.Packets += uint64(packets)
			l.counts.Saved += uint64(packets) * uint64(l.armed-1)
		}
		l.forget(newest)
	}
	for i := range s.edges {
		if st.group.ShareOf(i) >= 0 && !s.isShared(st, i) {
			s.edges[i].sentOwn(newest, newest)
		}
	}
}

// folded notes the ACKs that the engine has merged.
func (s *sharing) folded(st *state, paths []feedback.Answered, out *Outputs) {
	if s == nil {
		return
	}
	for k := range paths {
		s.acknowledged(st, paths[k].Path, out)
	}
}
