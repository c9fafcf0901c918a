package feedback

import "github.com/rocast/rocast/roce"

// stream is where the source and its receivers stand in the source's stream: what the source has
// sent, what it was told and called back to, the floor, and whether a NAK of a receiver proves that
// it lacks something.
type stream struct {
	receivers
	source source
	again  again
	merged merged
	back   goBack
	floor  floor
	doubts doubts
}

// Messages is the number of messages that the source has sent to their last packet, as far as every
// packet was seen.
func (st *stream) Messages() roce.MSN {
	_, messages := st.counts()
	return messages
}

// NextPSN is the PSN of the source's next packet that is not resent.
func (st *stream) NextPSN() roce.PSN { return st.source.sent.Next() }

// Settled reports whether everything that the source sent is acknowledged, as the ack policy has
// it.
func (st *stream) Settled() bool { return st.floor.known && st.floor.psn == st.source.sent }

// Told returns what the source was told, or is about to be told, and whether that is known. Of a
// plain group it is known, and the source was told it.
func (st *stream) Told() (told Progress, known bool) {
	return Progress{st.floor.psn, st.floor.msn}, st.floor.known
}

// Inside reports whether the newest packet is inside a message: whether it is not the last packet
// of its message.
func (st *stream) Inside() bool { return st.source.inside }

// Round returns where the source is in its round.
func (st *stream) Round() Round {
	return Round{st.source.pos, st.back.psn, st.back.awaited, !st.back.asked}
}

// Horizon returns the last PSN that may be carried while no other event comes. Beyond it a path
// would be further behind the source than the window allows. The group must be plain.
func (st *stream) Horizon() roce.PSN {
	lowest := st.source.sent
	for i := range st.paths {
		if p := &st.paths[i]; p.part == PartActive && p.acked.Before(lowest) {
			lowest = p.acked
		}
	}
	return lowest.Add(Window)
}

// lacksNeeded reports whether the path that never leaves lacks something.
func (st *stream) lacksNeeded() bool {
	return st.needed != none && st.source.lackedBy(st.paths[st.needed])
}
