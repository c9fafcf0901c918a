package dataplane

import (
	"time"

	"github.com/rocast/rocast/feedback"
)

// A packet that is lost before the network replicates its shared copy is lacked by every receiver
// of the leg, and a NIC drops what comes behind a gap. So each receiver asks for the same packet,
// and merging sends each the packet and what follows. The first ones get copies of their own. Then
// the repair leaves by the shared leg, and what that has just brought is not sent again to the
// others that ask.
//
// Whoever has a packet already acknowledges it once more. So the repair of what a few have lost on
// their own links is never shared. Nor is a probe of a receiver that says nothing, because its edge
// may be dead: whoever misses a shared repair is probed.

// togetherWithin is how old a repair may be that stands for another one. Receivers that lack the
// same packet ask for it within a round trip, and hosts with Soft-RoCE take that long.
const togetherWithin = feedback.Tick(time.Millisecond)

// together is how many receivers that lack a packet, one soon after the other, show that all of a
// leg lack it. Of many receivers some lose the same packet by chance.
func together(members int) int { return 2 + members/16 }

// resend is how a retained packet was sent again last.
type resend struct {
	at    feedback.Tick
	share int16 // of the receiver; other shares are other networks. -1: none
	toAll bool  // it left by the shared leg
	asks  bool  // for an ACK
	lacks int   // receivers of the share that lacked this packet first, one soon after the other
	some  bool  // the rest means something
}

// isFresh reports whether m says something about a share now.
func (m *resend) isFresh(now feedback.Tick, share int) bool {
	return m.some && int(m.share) == share && now-m.at < togetherWithin
}

// repairWay is how a repair leaves.
type repairWay uint8

const (
	repairAlone repairWay = iota // by the path's own leg
	repairAll                    // by the shared leg
	repairNone                   // not at all: one that has just left by the shared leg stands for it
)

// way returns how a packet is sent again to the path of a, and notes that it is. m is of the
// packet, and before of the packet in front of it, or nil. answered says that the receiver has
// answered, and what is sent again follows from that.
func (s *sharing) way(now feedback.Tick, st *state, a *feedback.Action, m, before *resend, answered bool) repairWay {
	share := st.group.ShareOf(a.Path)
	alone := resend{at: now, share: int16(share), asks: a.AckReq, some: true}
	if !s.inUse(share) || s.edges[a.Path].off || !answered {
		*m = alone
		return repairAlone
	}
	isFresh := m.isFresh(now, share)
	if isFresh && m.toAll {
		if a.AckReq && !m.asks {
			return repairAlone // the receiver does not answer what came without the request
		}
		return repairNone
	}
	lacks := m.lacks
	if !isFresh {
		lacks = 0
	}
	if a.PSN == st.merge.Acked(a.Path).Next() {
		lacks++
	}
	*m = alone
	m.lacks = lacks
	if lacks >= together(s.legs[share].members) || before != nil && before.isFresh(now, share) && before.toAll {
		m.toAll = true
		return repairAll
	}
	return repairAlone
}

// choose decides how the packet of a slot, which merging sends again, leaves: again is its
// copy for one path, and becomes the copy for all where the shared leg takes it. It reports whether
// a copy leaves.
func (r *repairs) choose(st *state, a *feedback.Action, s *slot, again *Copy, out *Outputs) bool {
	now, all := r.now, st.sharing
	all.lacks(now, st, a.Path, a.PSN, out)
	var before *resend
	if b := r.retained.find(st.held, a.PSN.Prev()); b != nil {
		before = &b.again
	}
	share := st.group.ShareOf(a.Path)
	switch all.way(now, st, a, &s.again, before, r.answered) {
	case repairAlone:
		if share >= 0 {
			all.edges[a.Path].sentOwn(a.PSN, st.merge.NextPSN().Prev())
		}
	case repairAll:
		again.Path, again.Edit, again.PSN = st.group.SharePath(share), &st.edits.Shares[share], a.PSN
	case repairNone:
		all.legs[share].counts.Saved++
		return false
	}
	return true
}
