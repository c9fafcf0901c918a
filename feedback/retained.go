package feedback

import "github.com/rocast/rocast/roce"

// With repair the caller retains each packet that it forwards, and sends it again to a path that
// lost it (rule 14). The retained packets have no holes: a packet behind one that was lost on its
// way from the source is not forwarded (gap.go), so they are all packets from one PSN to the
// highest one forwarded.

// retained is the window of packets that the caller has.
type retained struct {
	oldest    roce.PSN // the packets from here to the highest one forwarded
	lowest    roce.PSN // the lowest acked of the paths that get data
	at        int      // number of these paths whose acked is lowest; 0 if no path gets data
	repairing int      // paths that are not direct
	running   int      // paths whose timer runs
	due       Tick     // the earliest time at which a timer may run out
}

// unanswered is more paths than a group has. It stands for a path that has not answered since a
// restart: everything is retained for it.
const unanswered = never

// Oldest is the lowest PSN that may be needed again. The caller retains the packets from there to
// the highest one forwarded, and frees those below. A packet is retained when its outcome is
// Forwarded. When a resent packet from there on is Resent or Filtered, it replaces the retained
// one, which may have been damaged when it came.
func (rp *repair) Oldest() roce.PSN { return rp.retained.oldest }

// retain notes that the newest packet is retained, and lets go of what is too far below.
func (rp *repair) retain() {
	if rp.retained.at == 0 {
		rp.raise(rp.source.sent.Next())
		return
	}
	rp.raise(rp.source.sent.Add(int32(1 - rp.policy.RepairWindow)))
}

// raise lets go of the packets below psn.
func (rp *repair) raise(psn roce.PSN) {
	if psn.After(rp.retained.oldest) {
		rp.retained.oldest = psn
	}
}

// recount computes again what depends on which paths count, or are above the floor: the floor, and
// what is retained.
func (rp *repair) recount() {
	rp.recountRetained()
	rp.recountFloor()
}

// advance notes progress of path i, and moves the floor when enough paths are above it.
func (rp *repair) advance(now Tick, i int, acked roce.PSN) {
	from := rp.paths[i].acked
	if rp.rises(now, i, acked) {
		rp.recount()
		return
	}
	rp.rise(from)
}

// recountRetained looks for the lowest path again, when the last path that stood there has moved or
// when the paths that get data have changed.
func (rp *repair) recountRetained() {
	if !rp.policy.repairs() {
		return
	}
	r := &rp.retained
	r.at = 0
	for i := range rp.paths {
		switch p := &rp.paths[i]; {
		case p.part == PartUnknown:
			r.at = unanswered
			return
		case p.part != PartActive:
		case r.at == 0 || p.acked.Before(r.lowest):
			r.lowest, r.at = p.acked, 1
		case p.acked == r.lowest:
			r.at++
		}
	}
	if r.at == 0 {
		rp.raise(rp.source.sent.Next())
		return
	}
	rp.raise(r.lowest.Next())
}

// rise notes that a path whose acked was the given PSN has made progress.
func (rp *repair) rise(acked roce.PSN) {
	if !rp.policy.repairs() {
		return
	}
	r := &rp.retained
	if acked != r.lowest || r.at == unanswered {
		return
	}
	if r.at--; r.at == 0 {
		rp.recountRetained()
	}
}

// repairable reports whether the packet that path i waits for is retained and may be sent to it
// again.
func (rp *repair) repairable(i int) bool {
	return rp.retained.awaitedBy(&rp.paths[i], rp.source.sent) && !rp.legs[i].barred
}

// awaitedBy reports whether the packet that p waits for is retained; sent is the highest one.
func (r *retained) awaitedBy(p *path, sent roce.PSN) bool {
	psn := p.acked.Next()
	return !psn.Before(r.oldest) && !psn.After(sent) && p.part == PartActive
}

// forgo stops retaining the packets up to psn, and ends the repairs that need them.
func (rp *repair) forgo(psn roce.PSN) {
	rp.raise(psn.Next())
	for i := range rp.legs {
		if l := &rp.legs[i]; (l.state != legDirect || l.sentAgain) && !rp.paths[i].acked.Next().After(psn) {
			rp.giveUp(i, GivenUpNotRetained)
		}
	}
}
