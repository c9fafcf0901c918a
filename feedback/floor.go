package feedback

import (
	"math"

	"github.com/rocast/rocast/roce"
)

// floor is the highest PSN that the ack policy takes for acknowledged: what every counted path has,
// or what the f-th best path has. It falls when a path leaves that a quorum needs, but never below
// what the source was sent an ACK for.
//
// Recounting walks over all paths. Between two recounts the paths above the floor are counted, and
// the floor cannot move before enough of them are.
type floor struct {
	known  bool     // enough paths have answered once, so that psn means something (rule 13)
	migReq bool     // of the path that stands at psn
	psn    roce.PSN //
	msn    roce.MSN // of the same path: a PSN and an MSN of different paths do not belong together (rule 6, msnAt)
	above  int      // receivers that the counted paths above psn stand for
	need   int      // the floor moves when above reaches this
}

// never is a value of floor.need that no group reaches: the floor cannot move.
const never = math.MaxInt

// recountFloor computes the floor again, when enough paths are above it or when the paths that
// count have changed.
func (st *stream) recountFloor() {
	var lowest *path
	counted, unknown := 0, 0
	for i := range st.paths {
		p := &st.paths[i]
		switch {
		case !p.counted():
			continue
		case p.part == PartUnknown:
			unknown++
			continue
		}
		counted += st.weight(i)
		if lowest == nil || p.acked.Before(lowest.acked) {
			lowest = p
		}
	}
	f := &st.floor
	f.need = never
	switch need := st.need(); {
	case !st.source.known:
		// nobody knows what the source waits for, although some path has it
	case st.quorum == nil && (counted == 0 || unknown > 0):
		// a path that has not answered since the restart may have nothing
	case st.quorum == nil:
		f.need = counted
		st.stand(lowest)
	case need == 0:
		st.follow()
	case counted < need:
		f.known = f.known && st.merged.known
		st.fall()
	default:
		f.need = need
		st.stand(st.rank(need))
	}
	f.above = 0
	for i := range st.paths {
		if p := &st.paths[i]; p.counted() && p.part != PartUnknown && p.acked.After(f.psn) {
			f.above += st.weight(i)
		}
	}
	if s := &st.source; s.known && !s.told && f.known && s.pos == s.sent {
		s.unsure = false // nobody has more than it was seen to send
	}
}

// follow puts the floor where the source is, as far as every packet was seen, or the best path is.
// Nobody has to have these packets. The floor does not pass one that was lost on the way from the
// source: the source has to send it again for the paths that lack it.
func (st *stream) follow() {
	f, best := &st.floor, (*path)(nil)
	for i := range st.paths {
		if p := &st.paths[i]; p.counted() && p.part != PartUnknown && (best == nil || p.acked.After(best.acked)) {
			best = p
		}
	}
	upTo, messages := st.counts()
	if !f.known { // since a restart: what the source sent before, it has not heard an ACK of
		upTo, messages = st.merged.psn, st.source.messages
	}
	if best != nil && best.acked.After(upTo) {
		f.known, f.psn, f.msn, f.migReq = true, best.acked, st.msnAt(best), best.migReq
		return
	}
	f.known, f.psn, f.msn = true, upTo, messages
}

// stand puts the floor where a path stands, unless the source was sent an ACK for more.
func (st *stream) stand(p *path) {
	if st.merged.known && p.acked.Before(st.merged.highest) {
		st.fall()
		return
	}
	f := &st.floor
	f.known, f.psn, f.msn, f.migReq = true, p.acked, st.msnAt(p), p.migReq
}

// fall takes the floor back to what the source was sent an ACK for: a path that had more has left.
func (st *stream) fall() { st.floor.psn, st.floor.msn = st.merged.highest, st.merged.msn }

// rises moves path i up, and reports whether enough paths are above the floor for it to follow.
func (st *stream) rises(now Tick, i int, acked roce.PSN) bool {
	p := &st.paths[i]
	wasAbove := p.acked.After(st.floor.psn)
	st.stands(now, p, acked)
	f := &st.floor
	if wasAbove || p.fresh || !acked.After(f.psn) {
		return false
	}
	f.above += st.weight(i)
	return f.above >= f.need
}

// stands notes that a path has acknowledged more packets.
func (st *stream) stands(now Tick, p *path, acked roce.PSN) {
	p.acked, p.since, p.lack, p.unheard = acked, now, st.lackAt(acked.Next()), 0
	if p.silent != silenceReady || !st.letGo(acked.Next()) {
		p.silent = silenceNone
	}
	st.setPending(p, 0)
}

// isFresh reports whether a quorum must not count a path whose first packet is psn: it acknowledges
// what came before psn by standing there, and has nothing of that. It counts once the source was
// sent an ACK for all of that.
func (st *stream) isFresh(psn roce.PSN) bool {
	return st.policy.Ack != AckAll && (!st.merged.known || st.merged.highest.Before(psn.Prev()))
}

// ripenLate makes those paths count that have joined long before the source sends psn, and reports
// whether there are any. The source has at most firstWindow packets on their way, so it has heard
// the ACK of everything before such a path's first packet.
func ripenLate(paths []path, psn roce.PSN) (ripe bool) {
	for i := range paths {
		p := &paths[i]
		if d := psn.Sub(p.from); p.fresh && (d >= firstWindow || d < -Window) {
			p.fresh, ripe = false, true
		}
	}
	return ripe
}
