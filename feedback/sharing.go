package feedback

import "github.com/rocast/rocast/roce"

// A new packet may be copied to several paths at once, by a leg that they share. Such a copy
// reaches a path whatever the path's own leg does: also while it is being repaired. The other paths
// would otherwise get copies of their own because one of them has lost a packet.

// sharing is what repair knows of a path that may share a leg.
type sharing struct {
	on bool
	// upTo is the highest packet that a shared copy may have brought: of all, once the path shares
	// no more; while it shares, of those that came while the path was not direct.
	upTo roce.PSN
}

// Share reports to the group whether path i gets what shared copies bring. It does nothing without
// repair: then a path is taken to have been sent all that the group forwarded.
func (rp *repair) Share(i int, on bool) {
	if !rp.policy.repairs() || !on && len(rp.shared) == 0 {
		return
	}
	if len(rp.shared) == 0 {
		rp.shared = make([]sharing, len(rp.legs))
		for k := range rp.shared {
			rp.shared[k].upTo = rp.legs[k].high
		}
	}
	s := &rp.shared[i]
	if s.on && !on {
		s.upTo = later(s.upTo, rp.legs[i].high)
	}
	s.on = on
}

// sharesWith returns what is known of path i as one that may share a leg, or nil if none does.
func (rp *repair) sharesWith(i int) *sharing {
	if len(rp.shared) == 0 {
		return nil
	}
	return &rp.shared[i]
}

// passesBy notes that a packet of the source is not copied to path i alone, but that a shared copy
// may bring it.
func (rp *repair) passesBy(i int, psn roce.PSN) {
	if s := rp.sharesWith(i); s != nil && s.on {
		s.upTo = later(s.upTo, psn)
	}
}

// overtakes reports whether copies of psn and of later packets to path i may overtake each other,
// because some are shared and others are its own: they leave by different queues. Then a NAK for
// psn proves no loss (rule 9). Behind the last packet that was shared, all are its own.
func (rp *repair) overtakes(i int, psn roce.PSN) bool {
	s := rp.sharesWith(i)
	return s != nil && (s.on || !psn.After(s.upTo))
}

// backsAtMostOf is how often path i may go back in a round trip. Shared copies overtake the repair
// of a path that shares: it has to NAK again for packets that are on their way to it.
func (rp *repair) backsAtMostOf(i int) uint8 {
	if s := rp.sharesWith(i); s != nil && s.on {
		return 1
	}
	return backsAtMost
}
