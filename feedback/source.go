package feedback

import "github.com/rocast/rocast/roce"

// source is what is known about the source: what it has sent, and where it is.
type source struct {
	known    bool     // it was heard, or the group began with it; else sent and pos mean nothing
	inside   bool     // its newest packet is not the last one of its message
	asks     bool     // the last packet seen asks for an ACK
	told     bool     // the receivers have told where it is, and it was not heard since (asked.go)
	unsure   bool     // since a restart it has not shown that sent is its newest packet (doubted)
	first    roce.PSN // the lowest PSN that can be one that was sent before: the group's first, or Window below sent
	sent     roce.PSN // the highest PSN forwarded
	pos      roce.PSN // the last PSN seen: sent, or a lower one while the source resends
	counted  roce.PSN // the messages that end up to here are counted: every packet was seen
	messages roce.MSN // so many are; see counts
	resentAt Tick     // when the source last resent something (rule 8)

	unanswered uint8 // acknowledged packets resent since one of them was answered, or a new one came
}

// goBack is the last NAK or RNR NAK that was sent to make the source resend from psn.
type goBack struct {
	psn     roce.PSN
	awaited bool // the source has not come back yet
	asked   bool // it may not have sent psn: it was asked whether it has (asked.go)
	came    bool // it has sent psn since it was asked
	askedAt Tick
	newest  bool // no ACK was sent since: a requester ignores the same NAK again until one arrives
	oneACK  bool // one ACK was sent since
	by      roce.Syndrome
}

// firstWindow is how far, in packets, the first PSN that arrives may lie ahead of the first one
// that the source sends: those before it were lost on the uplink. It is more than a NIC sends in
// some round trips. It is so small that a wrong PSN in the group's file is hardly ever inside.
const firstWindow = 1 << 15

// inWindow reports whether a packet of the source can belong to this group's stream. A packet below
// the group's first PSN was never forwarded: if it counted as resent, it would be acknowledged and
// its data lost. The last bound keeps every counted path within Window of sent, so that acked and
// sent compare correctly.
func (st *stream) inWindow(psn roce.PSN) bool {
	s := &st.source
	if !s.known {
		return true
	}
	ahead := int32(Window)
	if s.sent.Next() == s.first {
		ahead = firstWindow
	}
	if psn.Before(s.first) || psn.Sub(s.sent) > ahead {
		return false
	}
	return !st.floor.known || psn.Sub(st.floor.psn) <= Window
}

func (s *source) forward(psn roce.PSN, last bool) {
	s.sent, s.inside, s.unanswered = psn, !last, 0
	if lowest := psn.Add(-Window); s.first.Before(lowest) {
		s.first = lowest
	}
}

// count notes that packet psn was seen, and whether it is the last one of a message. It counts only
// right behind the packet counted last: packets between the two were lost on the uplink, and some
// of them may end messages. The source resends those and all packets behind them.
func (st *stream) count(psn roce.PSN, last bool) {
	counted, messages := st.counts()
	if psn != counted.Next() {
		return
	}
	st.source.counted, st.source.messages = psn, messages
	if last {
		st.source.messages = messages.Add(1)
	}
}

// again counts the messages that end up to a packet which the source has sent again, as counts does
// for its newest packets. It begins with what the source was sent an ACK for.
type again struct {
	known bool
	psn   roce.PSN
	msn   roce.MSN
}

// countAgain counts packet psn, which the source has sent again, if it follows the packet counted
// last.
func (st *stream) countAgain(psn roce.PSN, last bool) {
	c, told := &st.again, &st.merged
	if !c.known || !psn.After(c.psn) || !c.psn.After(told.highest) {
		*c = again{told.known, told.highest, told.msn}
	}
	if psn != c.psn.Next() {
		return
	}
	if c.psn = psn; last {
		c.msn = c.msn.Add(1)
	}
}

// counts returns the highest packet up to which the number of messages is known, and that number.
// Where the floor is higher, its MSN is that number: after a restart nothing else knows it.
func (st *stream) counts() (upTo roce.PSN, messages roce.MSN) {
	f, s := &st.floor, &st.source
	if f.known && f.psn.After(s.counted) {
		return f.psn, f.msn
	}
	return s.counted, s.messages
}

// place is how far the source has come in this round, as it will be when it hears the next reply: a
// source that was sent a NAK is below its PSN then, even if packets of the round before still
// arrive here. An ACK beyond the place would overtake the resent packets: rxe takes it for an ACK
// of packets that it has not sent again, and may hang.
func (st *stream) place() roce.PSN {
	if before := st.back.psn.Prev(); st.back.awaited && before.Before(st.source.pos) {
		return before
	}
	return st.source.pos
}

// messagesAt is the MSN of a reply that acknowledges the packets up to upTo: that of the floor,
// unless the source's place keeps the reply below it. What the receivers have executed behind the
// place, the source has not heard of and is about to send again. Where packets of this round were
// lost on their way from the source, the number is not known, and the floor's is true.
func (st *stream) messagesAt(upTo roce.PSN) roce.MSN {
	f, m, s := &st.floor, &st.merged, &st.source
	if !upTo.Before(f.psn) || !m.known {
		return f.msn
	}
	msn := f.msn
	switch {
	case !upTo.After(m.highest):
		return m.msn
	case st.again.known && upTo == st.again.psn:
		msn = msn.Add(min(0, st.again.msn.Sub(msn))) // what the source was told may have been more
	}
	if s.counted == s.sent && !s.inside && msn == s.messages {
		return msn.Add(-1) // the newest message ends behind upTo
	}
	return msn
}

// countsAgain reports whether messages are counted behind what the source was sent an ACK for.
func (st *stream) countsAgain() bool { return st.again.known && st.again.psn.After(st.merged.highest) }

// lackedBy reports whether a path that gets data lacks something of the source, for all that is
// known.
func (s *source) lackedBy(p path) bool {
	return p.part == PartUnknown || p.part == PartActive && p.acked != s.sent
}

// AskPeriod is how often the caller asks, because questions and answers may be lost. It is
// longer than most round trips, so a source that sends nothing again for so long had heard the
// question before it sent what came.
const AskPeriod = 10 * millisecond

// answering reports whether the packet has come for which the source, whose place is pos, was
// asked, and the source may have sent it before it heard that. What lies behind that packet does
// not show that it was sent: a source that waits for the time of an RNR NAK sends new packets, and
// goes back to the packet later (docs/wire.md#requester).
func (b *goBack) answering(pos roce.PSN) bool {
	return b.awaited && b.asked && b.came && !pos.Before(b.psn)
}

// answered reports whether the source is answering and was asked so long ago that it had heard that
// before it sent what came.
func (b *goBack) answered(now Tick, pos roce.PSN) bool {
	return b.answering(pos) && now-b.askedAt >= b.answersWithin()
}

// answersWithin is how long after the question a source has gone back that obeys it. The timer for
// an RNR NAK may have the grain of a kernel's timers.
func (b *goBack) answersWithin() Tick {
	if b.by.IsRNR() {
		return 2 * AskPeriod
	}
	return AskPeriod
}
