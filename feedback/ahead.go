package feedback

import "github.com/rocast/rocast/roce"

// With a quorum the source lets go of packets that slow receivers lack, and repair can bring such a
// receiver only what is retained (rule 9). So the source is sent no ACK that lets it run further
// ahead of a receiver than that, as long as the receiver answers: its next loss would leave it
// behind. The floor stays where the quorum is. Only what the source is told is bounded.
//
// What is retained is bounded by repair-window, and by the memory for it where that is less. Small
// packets may leave room there for more of them, which nobody relies on.
//
// The source sends as much beyond an ACK as it has on its way at most. So that much of what is
// retained stays free, and half of it at least. A source that has more on its way hears what the
// slowest of these receivers has: what that one lacks, the source still has.
//
// The source must not end because of that. If its timeout makes it go back to what the quorum has,
// it is told of that once more, as far as it comes again.

// neverReadyAfter is how long a receiver that has no receive may make no progress. It is a fraction
// of the time after which most queue pairs give up.
const neverReadyAfter = 200 * millisecond

// bound returns the highest PSN up to limit that an ACK may have for the sake of slow receivers.
// What the source was told stays told.
func (rr *replier) bound(limit roce.PSN) roce.PSN {
	r, s, highest := &rr.retained, &rr.source, rr.merged.highest
	if rr.policy.Ack == AckAll || rr.policy.OnSlow != SlowWait || !rr.policy.repairs() || !rr.merged.known || !limit.After(highest) {
		return limit
	}
	ahead := rr.ahead()
	if goesBack := s.pos != s.sent && !s.pos.After(rr.floor.psn); goesBack || r.at == 0 || r.at == unanswered || limit.Sub(r.lowest) <= ahead {
		return limit
	}
	for i := range rr.legs {
		p := &rr.paths[i]
		if most := later(p.acked.Add(ahead), highest); most.Before(limit) && p.part == PartActive && p.silent == silenceNone && rr.legs[i].owes(p.acked) {
			limit = most
		}
	}
	return limit
}

// OnlyRetained reports whether nobody but the caller has packet psn for a receiver that lacks it
// and that the source waits for: the source has let go of it.
func (rr *replier) OnlyRetained(psn roce.PSN) bool {
	if rr.policy.OnSlow != SlowWait || !rr.letGo(psn) {
		return false
	}
	for i := range rr.legs {
		if p := &rr.paths[i]; p.part == PartActive && rr.legs[i].owes(p.acked) && p.silent == silenceNone && p.acked.Before(psn) {
			return true
		}
	}
	return false
}

// ahead is how many packets the source may be told of beyond what a slow receiver has.
func (rr *replier) ahead() int32 {
	return max(0, min(rr.room/2, rr.room-rr.merged.flight))
}

// sends notes how much the source has on its way, with a new packet.
func (m *merged) sends(psn roce.PSN) {
	if m.known {
		m.flight = max(m.flight, psn.Sub(m.highest))
	}
}

// owes reports whether the path, which stands at acked, owes an answer, and repair has not given it
// up. So a receiver that is dead holds the source up once, for as long as its probes take.
func (l *leg) owes(acked roce.PSN) bool { return l.running && !l.barred && l.asked.After(acked) }

// holdsBack reports whether the source is not told of all that the quorum has, because of a slow
// receiver.
func (rr *replier) holdsBack() bool { return rr.bound(rr.floor.psn).Before(rr.floor.psn) }

// neverReady takes an RNR NAK of a path for what the source has let go of. A path that has made no
// progress for long is to be reported as silent: the source does not wait for it any more. A
// receiver may be ready now and then, for one packet. So that holds until the path has everything
// that the source has let go of.
func (p *path) neverReady(now Tick) (report bool) {
	if p.silent == silenceReady || now-p.since < neverReadyAfter {
		return false
	}
	report = p.silent == silenceNone
	p.silent = silenceReady
	return report
}
