package feedback

import "github.com/rocast/rocast/roce"

// With a quorum the source lets go of packets that some receiver lacks. Such a receiver is behind:
// nothing can repair it (rule 9). The evidence is its NAK, for a packet that was acknowledged to
// the source. But a NAK says what the receiver lacked when it sent the NAK, and the switch may have
// copied the packet to it since. The two cross on the link:
//
//	switch    0 is lost on the uplink   data 1 ──╮      ╭── data 0 and 1, resent
//	                                             ╲    ╱
//	receiver                                NAK 0 ──╳──╱───▶ arrives after 0 was copied
//
// Links keep the order of packets. So a NAK for P proves that the last copy of P was lost if
// everything above P that the receiver was sent went out after that copy. That holds
//
//   - for a packet that was copied once, in order;
//   - for every packet above X in a round of the source in which the switch served the receiver's
//     NAK for X: a receiver that lacks X and has said so says nothing else before X arrives, and
//     what arrives behind X belongs to this round.
//
// It does not hold for X itself: a NAK may arrive twice, and a receiver sends an RNR NAK and then a
// sequence NAK for the same packet. Nor does it hold for what was on its way when an engine carried
// packets (carried.go): copies of the engine and of the core may overtake each other.
//
// A NAK that proves nothing may be true all the same, if that copy was lost too. The receiver is
// silent from then on, because it sends one NAK for a gap (docs/wire.md#responder). It is in doubt
// until it makes progress or leaves too many packets unanswered.
//
// After a restart the one NAK may have come before it. Then the receiver says nothing any more: the
// source has let go of what it waits for, and it does not answer what lies above. So it is asked
// when it has left too many packets unanswered, by a packet that it has executed (asked.go). Its
// answer says that it does not get on, which is as much as a NAK says.

// lack is what the NAKs of a path have shown of the packet acked+1.
type lack uint8

const (
	lackNone    lack = iota // none was heard since the path stands there
	lackUnknown             // nor was any, but it may have sent one before a restart
	lackProven              // it sent a NAK, and it certainly lacks the packet
	lackDoubt               // it sent a NAK, and a copy of the packet may be on its way
)

// A path in doubt is behind when it has left doubtLimit packets unanswered that asked for an ACK
// and were copied to it at least doubtPeriod apart. A single packet proves little, because its ACK
// may be lost, and time alone proves nothing while the source is idle. doubtPeriod is longer than a
// loaded receiver takes to answer.
const (
	doubtPeriod = 16 * millisecond
	doubtLimit  = 8
)

// doubts is what decides whether a NAK is evidence.
type doubts struct {
	recopied  span // packets that were copied when something above them may have been copied before
	missed    span // packets that a NAK beyond the highest packet sent asked for; see missNAK
	countedAt Tick // when unanswered packets were last counted

	// After a restart nobody knows what the source has let go of before, but the source shows it:
	// it goes back to its oldest unacknowledged packet. See passes.

	lowest roce.PSN // the first packet, or the lowest one with which two rounds in succession have begun since rounds was 0
	began  roce.PSN // where its newest round began
	rounds uint8    // how many rounds have begun where the one before did, since one began below lowest; 1 without a restart
}

// span is the packets from one PSN to another, both included.
type span struct {
	some     bool // false: none
	from, to roce.PSN
}

func (s *span) has(psn roce.PSN) bool { return s.some && !psn.Before(s.from) && !psn.After(s.to) }

// add makes the span long enough for psn.
func (s *span) add(psn roce.PSN) {
	switch {
	case !s.some:
		*s = span{some: true, from: psn, to: psn}
	case psn.Before(s.from):
		s.from = psn
	case psn.After(s.to):
		s.to = psn
	}
}

// trim drops what lies more than Window below psn: no path that gets data is that far back, and
// PSNs would soon compare the other way round.
func (s *span) trim(psn roce.PSN) {
	if lowest := psn.Add(-Window); s.some && s.from.Before(lowest) {
		s.from, s.some = lowest, !s.to.Before(lowest)
	}
}

// trim drops what is too far below psn, the highest packet sent.
func (d *doubts) trim(psn roce.PSN) {
	d.recopied.trim(psn)
	d.missed.trim(psn)
	if lowest := psn.Add(-Window); d.lowest.Before(lowest) {
		d.lowest = lowest
	}
}

// doubtRestart notes that the source was heard for the first time after a restart, with packet psn.
// What was copied before the restart may still be on its way, and so may the answers to it. How far
// these copies reached is unknown, but a source has at most firstWindow packets on their way. So a
// NAK for any packet up to there proves no loss.
func (d *doubts) doubtRestart(psn roce.PSN) {
	d.recopied = span{some: true, from: psn.Add(-Window), to: psn.Add(firstWindow)}
	d.lowest, d.began, d.rounds = psn, psn, 0
}

// newRound is called when the source goes back to psn. What was copied again before matters no more
// when no path lacks any of it.
func (st *stream) newRound(psn roce.PSN) {
	lacking := false
	for i := range st.paths {
		p := &st.paths[i]
		p.follows = false
		lacking = lacking || p.part == PartUnknown || p.part == PartActive && p.acked.Before(st.doubts.recopied.to)
	}
	if !lacking {
		st.doubts.recopied.some = false
	}
	d := &st.doubts
	switch {
	case psn != d.began:
		if psn.Before(d.lowest) { // it may be a packet from before the restart, which came late
			d.rounds = 0
		}
	case d.rounds == 0, psn.Before(d.lowest): // the first packet may have been such a one, too
		d.lowest, d.rounds = psn, 1
	case d.rounds <= doubtLimit:
		d.rounds++
	}
	d.began = psn
}

// passes reports whether the source, since a restart, has gone back to one packet more than
// doubtLimit times, and meanwhile not to psn or below. A requester goes back to its oldest
// unacknowledged packet, so it has let go of psn before the restart, unless the packets up to there
// were lost each time. It is no proof, so nothing is acknowledged because of it: a path that waits
// for psn may be called behind. Steps back to other packets show nothing: they may be packets of
// one round that have overtaken each other, or that came twice. A single one to psn or below may be
// a packet that is older than the restart, so nine more rounds show what they did before.
func (d *doubts) passes(psn roce.PSN) bool { return d.rounds > doubtLimit && psn.Before(d.lowest) }

// missNAK notes a NAK of p that is refused because its packet was not forwarded. After a restart
// such a NAK may be true: the packet was forwarded before. The source will send the packet again,
// but the receiver has sent its one NAK, so it is in doubt as soon as it waits for that packet.
// Other paths that wait for a packet in the span come into doubt as well, which does no harm.
func (st *stream) missNAK(ev *Event, p *path) {
	if ev.Syndrome.IsACK() || st.policy.Ack == AckAll || ev.PSN.Sub(st.source.sent) > Window {
		return
	}
	st.doubts.missed.add(ev.PSN)
	if st.doubts.missed.has(p.acked.Next()) {
		p.lack = lackDoubt
	}
}

// lackAt returns what NAKs have shown of a path that has come to wait for psn. A packet below what
// the source has sent since a restart was copied before that, and so a NAK may have come before.
func (st *stream) lackAt(psn roce.PSN) lack {
	switch {
	case st.doubts.missed.has(psn):
		return lackDoubt
	case st.policy.Ack != AckAll && psn.Before(st.doubts.lowest):
		return lackUnknown
	}
	return lackNone
}

// answersFirst notes the first answer of p since a restart, which may be older than others of its
// answers, and than a NAK that has come before. If p had to be asked, the answer is the newest.
func (st *stream) answersFirst(p *path) {
	asked := p.isAsked()
	p.unheard = 0
	if st.policy.Ack != AckAll {
		p.lack = lackUnknown
		p.answersAgain(asked)
	}
}

// answersAgain notes that p has answered, and not got on. asked says that it had to be asked.
func (p *path) answersAgain(asked bool) {
	if asked {
		p.doubt()
	}
}

// isAsked reports whether the path has left so many packets unanswered that it is asked what it
// has, because it may have sent its NAK before a restart.
func (p *path) isAsked() bool {
	return p.unheard > doubtLimit && (p.part == PartUnknown || p.lack == lackUnknown)
}

// hearNAK notes a NAK of path i for acked+1. again says that repair has sent that packet again.
func (st *stream) hearNAK(i int, again bool) {
	p := &st.paths[i]
	switch {
	case again:
		p.lack = lackDoubt
	case p.lack == lackDoubt: // and one more NAK proves nothing
	case p.follows || !st.doubts.recopied.has(p.acked.Next()):
		p.lack = lackProven
	default:
		p.lack = lackDoubt
	}
}

// copied notes that acked+1 is copied to p.
func (p *path) copied() {
	if p.lack > lackUnknown {
		p.follows = p.lack == lackProven
		p.doubt()
	}
}

// repaired notes that repair sends acked+1 to p: the NAK that was heard proves no loss any more.
func (p *path) repaired() {
	if p.lack == lackProven {
		p.doubt()
	}
}

// doubt notes that a copy of acked+1 may be on its way to p.
func (p *path) doubt() { p.lack, p.unheard = lackDoubt, 0 }

// countsDoubts reports whether a packet that is copied now counts for the paths in doubt.
func (st *stream) countsDoubts(now Tick, ackReq bool) bool {
	if st.policy.Ack == AckAll || !ackReq || now-st.doubts.countedAt < doubtPeriod {
		return false
	}
	st.doubts.countedAt = now
	return true
}

// hopeless counts one more packet that path i has to answer, and reports whether it is in doubt and
// has left too many unanswered. Only a path counts that waits for what the source has let go of,
// and that is not retained: any other one the source still serves, or repair, which begins anew
// with the first answer of a path that it has given up (inquire.go). Of a path that has not
// answered since a restart nobody knows that. retained says that what the path waits for is.
func (st *stream) hopeless(i int, retained bool) bool {
	p := &st.paths[i]
	silent := p.part == PartActive && (p.lack == lackDoubt || p.lack == lackUnknown) && st.letGo(p.acked.Next()) && !retained
	if !silent && p.part != PartUnknown {
		return false
	}
	p.unheard = min(p.unheard+1, doubtLimit+1)
	return p.lack == lackDoubt && p.unheard > doubtLimit
}

// tooFarFrom reports whether p is so far back that PSNs would soon compare the other way round: p
// would count as the best path of a quorum.
func (p *path) tooFarFrom(psn roce.PSN) bool {
	return (p.part == PartActive || p.part == PartDead) && psn.Sub(p.acked) > Window
}

// letGo reports whether the source has let go of psn: a quorum acknowledged it, and the source does
// not resend from below. After a restart it is unknown what the source has let go of until it is
// sent an ACK, or shows it; a guess would call every receiver behind that lacks what was lost on
// the uplink.
func (st *stream) letGo(psn roce.PSN) bool {
	return st.policy.Ack != AckAll && (st.merged.known && !psn.After(st.merged.psn) || st.doubts.passes(psn))
}

// doubtCarried notes that packets up to psn were copied by an engine. Its copies and the core's
// leave by different queues of one port, so where the one follows the other they may overtake each
// other: a NAK for a packet that was on its way then proves no loss (rule 9).
func (st *stream) doubtCarried(psn roce.PSN) {
	if st.policy.Ack == AckAll {
		return
	}
	for i := range st.paths {
		if p := &st.paths[i]; p.part == PartActive {
			p.follows = false
			st.doubts.recopied.add(p.acked.Next())
		}
	}
	st.doubts.recopied.add(psn)
	st.doubts.trim(psn)
}
