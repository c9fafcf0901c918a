package feedback

// RepairPeriod is the shortest time between two Timer events that a group which is Waiting wants.
const RepairPeriod = 50 * microsecond

// Waiting reports whether the group wants a Timer event when it is Due: a path has not answered a
// packet that asked for an ACK, as each path under repair, or rests; the source was called back by
// an RNR NAK; the source answers a question; or the switch may have to break its silence.
func (rr *replier) Waiting() bool {
	return rr.policy.repairs() && (rr.retained.running > 0 || rr.gap.rests || rr.unheard() || rr.mute() || rr.back.answering(rr.source.pos))
}

// Due is the time before which a Timer event does nothing for a group that is Waiting, unless
// another event comes first. It is RepairPeriod from now at least.
func (rr *replier) Due(now Tick) Tick {
	soon, due := now+RepairPeriod, endless
	if rr.gap.rests {
		return soon
	}
	if rr.retained.running > 0 {
		due = rr.retained.due
	}
	if b := &rr.back; b.answering(rr.source.pos) {
		due = min(due, b.askedAt+b.answersWithin())
	}
	if unheard := rr.unheard(); unheard || rr.mute() {
		// A lull that no timer has seen yet begins a little late. That does no harm.
		since, patience := rr.lull.since, rr.patienceWithSource(unheard)
		if !rr.lull.seen {
			since, patience = now, patience/4
		}
		due = min(due, since+patience)
	}
	return max(due, soon)
}
