package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Traffic is how much data a group has carried on this box. Bytes are bytes of payload.
type Traffic struct {
	Packets, Bytes    uint64 // the source's packets that were forwarded, each once
	Copies, CopyBytes uint64 // sent to receivers, also of packets that the source or the box sent again
	// Sent is the source's place: how many PSNs lie between the first and the newest packet. It is
	// more than Packets where packets were lost before the box. It never falls, because it does not
	// wrap and counts the packets of all sources.
	Sent uint64
	// Mapped counts packets that came as copies which the box above shares between several boxes,
	// whatever became of them.
	Mapped uint64
}

// Receiver is what a path's receiver has answered.
type Receiver struct {
	// Acknowledged is how much of Traffic.Sent the receiver has acknowledged since it takes part; 0
	// while it does not.
	Acknowledged uint64
	NAKs         uint64 // how often it asked for a packet again that was lost on its way
	RNRs         uint64 // how often it had posted no receive
	CNPs         uint64 // how often it reported congestion
	Refused      uint64 // its answers that were refused (Reason.Refuses)
	// The last one of them: why, the port by which it came, and its destination QPN.
	RefusedFor Reason
	RefusedAt  mft.PortID
	RefusedQPN roce.QPN
	LastTurn   LastTurn
}

// LastTurn says how far a member got in its newest turn as the source. Frames that were refused
// before are no trouble any more.
type LastTurn struct {
	Refused uint64 // GroupState.Refused.Count when the turn began
	Sent    uint64 // Traffic.Sent now, or when the turn ended
}

// tally is what the core counts of a path's receiver.
type tally struct {
	naks, rnrs, cnps uint64 // a NIC may send tens of thousands of CNPs a second, for months
	// from is the part of Traffic.Sent that is not for the receiver: what was sent before it
	// joined, and in its own turns as the source.
	from int64
	away uint64 // Traffic.Sent when its turn as the source began

	lastTurn LastTurn

	refused    uint64
	refusedFor Reason
	refusedAt  mft.PortID
	refusedQPN roce.QPN
}

// countData counts a data packet of the active source. next was the PSN after the newest packet
// before.
func (st *state) countData(outcome feedback.Outcome, next roce.PSN, payload int) {
	if outcome != feedback.Forwarded {
		return
	}
	st.traffic.Packets++
	st.traffic.Bytes += uint64(payload)
	if st.traffic.Packets == 1 {
		st.traffic.Sent++ // after a restart the source may be anywhere
		return
	}
	st.traffic.Sent += uint64(st.merge.NextPSN().Sub(next)) // a packet that is forwarded is the newest
}

// copied counts copies of one packet.
func (t *Traffic) copied(copies, payload int) {
	t.Copies += uint64(copies)
	t.CopyBytes += uint64(copies * payload)
}

// carried counts new packets that were sent to so many paths, with all their payload.
func (t *Traffic) carried(packets int32, payload uint64, paths int) {
	t.Packets, t.Sent, t.Bytes = t.Packets+uint64(packets), t.Sent+uint64(packets), t.Bytes+payload
	t.Copies += uint64(packets) * uint64(paths)
	t.CopyBytes += payload * uint64(paths)
}

// joins notes that the receiver of a path takes part from the packet psn on.
func (st *state) joins(path int, psn roce.PSN) {
	st.tallies[path].from = int64(st.traffic.Sent) - int64(st.merge.NextPSN().Sub(psn))
}

// takesTurn notes that the member of path next becomes the source after the active one.
func (st *state) takesTurn(next int) {
	if st.active >= 0 {
		was := &st.tallies[st.active]
		was.from += int64(st.traffic.Sent - was.away)
	}
	if next >= 0 {
		st.tallies[next].away = st.traffic.Sent
	}
	if st.active != departed {
		st.lastTurn(st.active).Sent = st.traffic.Sent
	}
	st.lastTurn(next).Refused = st.refused.Count
}

// lastTurn returns what is kept of the newest turn of the member of a path.
func (st *state) lastTurn(path int) *LastTurn {
	if path < 0 {
		return &st.firstTurn
	}
	return &st.tallies[path].lastTurn
}

// receivers returns what each path's receiver has answered.
func (st *state) receivers(s *feedback.Snapshot) []Receiver {
	list := make([]Receiver, len(st.tallies))
	for i := range list {
		t, p := &st.tallies[i], &s.Paths[i]
		list[i] = Receiver{NAKs: t.naks, RNRs: t.rnrs, CNPs: t.cnps, Refused: t.refused, RefusedFor: t.refusedFor, RefusedAt: t.refusedAt, RefusedQPN: t.refusedQPN, LastTurn: st.turnSoFar(i)}
		acknowledged := -t.from
		switch {
		case i == st.active:
			acknowledged += int64(t.away)
		case p.Part == feedback.PartActive:
			acknowledged += int64(st.traffic.Sent) - int64(max(0, s.Sent.Sub(p.Acked)))
		}
		list[i].Acknowledged = uint64(max(0, acknowledged))
	}
	return list
}

// turnSoFar returns how far the member of a path got in its newest turn.
func (st *state) turnSoFar(path int) LastTurn {
	t := *st.lastTurn(path)
	if path == st.active {
		t.Sent = st.traffic.Sent
	}
	return t
}

// since returns, for each path, the PSN of the present source with which the receiver's QP expected
// its first PSN.
func (st *state) since() []roce.PSN {
	list := make([]roce.PSN, len(st.offsets))
	for i := range list {
		list[i] = st.group.Paths[i].FirstPSN.Add(-st.offsets[i].deltaPSN)
	}
	return list
}
