package feedback

// Repair gives up a receiver that is silent for too long, or that waits for what is not retained
// any more. If the source has let go of that packet, nobody else helps the receiver: it is in
// doubt, and only new packets of the source would show what became of it (hopeless). The source may
// be idle. So the switch goes on to ask such a receiver what it has, by a packet that it has
// executed. Its answer shows that it is back: then it is repaired again, if the packet is retained.
// Else it is behind when it has answered several times and not got on.
//
// Meanwhile the path's leg is barred and its timer runs. The leg is direct, so attempts counts the
// answers, backs says that the last question was answered, and backoff counts those in a row that
// were not.

const (
	// behindAnswers is after how many answers a path is behind. They are doubtPeriod apart, so
	// that no copy is on its way any more, by whatever queue it went.
	behindAnswers = 4
	// inquireAtMost is the longest time between two questions.
	inquireAtMost = second
)

// inquired reports whether the path is being asked what it has, because repair has given it up.
func (l *leg) inquired() bool { return l.barred && l.running }

// inquire lets path i, which repair has given up, be asked what it has from the next timer on, if
// the source has let go of what the path waits for.
func inquire(rp *repair, i int) {
	if !rp.policy.repairs() || rp.paths[i].part != PartActive || rp.legs[i].running || !rp.letGo(rp.paths[i].acked.Next()) {
		return
	}
	l := &rp.legs[i]
	l.barred, l.attempts, l.backs, l.backoff = true, 0, 0, 0
	rp.runFor(0, l, 0)
}

// inquireAgain asks path i once more.
func inquireAgain(rp *repair, now Tick, i int, acts []Action) []Action {
	l := &rp.legs[i]
	if l.backs == 0 {
		l.backoff = min(l.backoff+1, 16)
	}
	l.backs = 0
	rp.runFor(now, l, min(doubtPeriod<<l.backoff, inquireAtMost))
	return append(acts, Action{Kind: Question, Path: i, PSN: rp.source.first.Add(-2)})
}

// answersInquiry takes an answer of path i that is no progress, and reports whether the path is
// behind. If what it waits for is retained, its repair begins anew.
func answersInquiry(rp *repair, now Tick, i int, isACK bool, acts []Action) (_ []Action, behind bool) {
	l := &rp.legs[i]
	if !rp.paths[i].acked.Next().Before(rp.retained.oldest) {
		l.barred, l.attempts, l.backs, l.backoff = false, 0, 0, 0
		if isACK { // else it is repaired as after any NAK
			acts = rp.probe(now, i, acts)
		}
		return acts, false
	}
	if l.backs == 0 {
		l.backs, l.backoff = 1, 0
		l.attempts++
		rp.runFor(now, l, doubtPeriod)
	}
	if !rp.letGo(rp.paths[i].acked.Next()) { // the source sends it again: a copy may be on its way
		l.attempts = 0
	}
	return acts, l.attempts >= behindAnswers
}
