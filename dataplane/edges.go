package dataplane

import (
	"slices"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// One copy of a new packet may leave by a leg that several paths share (mft.Share). The receivers'
// edges map it. Which edges work shows in what their receivers answer, and in nothing else: a
// receiver whose edge does not work gets copies of its own, and is tried again later.
//
// It proves that an edge works if its receiver acknowledges more than it was sent by copies of its
// own, if the receiver asks for a packet because a later one came that only the shared leg brought,
// and if the receiver acknowledges a packet twice that it was sent once by a copy of its own. A box
// says itself that shared copies come (sharedBit).
//
// It is a miss if repair sends a packet that went by the shared leg only and that the receiver
// waits for, unless the receiver has asked for it: a NIC drops what comes behind a gap. The
// receiver may only be late, so a proof takes back all misses.

const (
	// A miss of what another edge of the leg has brought weighs whole. What none has brought may
	// have been lost before the network replicated it, or the others are slow to answer.
	wholeMiss, doubtfulMiss = 3, 1
	// An edge has missed too much after three whole misses in a row.
	mostMissed = 3 * wholeMiss

	// An edge that does not work is tried again after edgePause, and after twice as long each time.
	edgePause    = feedback.Tick(time.Second)
	edgePauseMax = 64 * edgePause
)

// sharing is what the core knows of the legs that paths of a group share.
type sharing struct {
	edges []edge      // per path; those of paths without a share mean nothing
	legs  []sharedLeg // per share
	lost  int         // number of edges that do not work
	// changes counts how often another set of paths has come to share: see fanState.
	changes uint32
}

// edge is what the core knows of the edge of a path's receiver.
type edge struct {
	own    roce.PSN // the highest packet that was sent by a copy of its own
	twice  roce.PSN // up to here, an ACK may be due twice because of copies of its own
	gap    roce.PSN // up to here, shared copies may have come behind a gap
	hasOwn bool     // own means something
	again  bool     // twice means something
	hasGap bool     // gap means something
	off    bool     // it gets copies of its own, until the time is over
	lost   bool     // that was reported
	missed uint8
	until  feedback.Tick
	pause  feedback.Tick // the newest one; 0: it has worked since
}

// sharedLeg is what the core knows of a share.
type sharedLeg struct {
	// retired: a receiver gets no data any more, and its edge would map copies for it all the same,
	// or another turn has begun. So none leaves by this leg, until control gives it another
	// generation.
	retired          bool
	sent, heard      roce.PSN // the highest packet that left, and the highest that an edge has brought
	hasSent, isHeard bool
	members          int // number of paths
	due              int // of the packet that is being handled: number of the paths that share its copy
	armed            int // the same of the packets that the engine carries
	counts           ShareCounts
}

// ShareCounts is how much has left by a shared leg.
type ShareCounts struct {
	Packets uint64 // copies of new packets that left by it
	Saved   uint64 // copies that did not have to be made, because one was for several paths
}

// ShareState is the state of a share now. It is published with GroupState.
type ShareState struct {
	ShareCounts
	Retired bool // nothing leaves by it until it has another generation: a member has left, or another turn has begun
	Working int  // number of members that get its copies
}

// EdgeState is the state of the edge of a path's receiver now.
type EdgeState struct {
	Shares bool // the receiver is a member of a share
	// Lost: shared copies do not reach the receiver, which gets copies of its own. It is tried
	// again after this time.
	Lost  bool
	After time.Duration
}

// newSharing returns what is known of the legs that the paths of st share, or nil if none does.
// was is what was known before: of each path at from, and of the version old.
func newSharing(st *state, was *sharing, from []int, old *mft.Group) *sharing {
	g := st.group
	for i := range g.Paths {
		st.merge.Share(i, false)
	}
	if len(g.Shares) == 0 || st.held == nil {
		return nil
	}
	s := &sharing{edges: make([]edge, len(g.Paths)), legs: make([]sharedLeg, len(g.Shares))}
	newest := st.merge.NextPSN().Prev()
	for k := range g.Shares {
		before := generation(old, &g.Shares[k])
		if was != nil && before >= 0 {
			s.legs[k] = was.legs[before]
			if !g.Shares[k].Dst.IsMulticast() { // the box that maps the copies hears who has left
				s.legs[k].retired = false
			}
		}
		s.legs[k].members = len(g.Shares[k].Members)
	}
	for i := range g.Paths {
		k := g.ShareOf(i)
		if k < 0 {
			continue
		}
		e := &s.edges[i]
		*e = edge{own: newest, hasOwn: true} // for all that is known
		if was != nil && from[i] >= 0 {
			f := &was.edges[from[i]]
			if old.ShareOf(from[i]) >= 0 && generation(old, &g.Shares[k]) == old.ShareOf(from[i]) {
				*e = *f
			} else {
				e.off, e.lost, e.until, e.pause = f.off, f.lost, f.until, f.pause
			}
		}
		if e.lost {
			s.lost++
		}
	}
	for i := range g.Paths {
		if part := st.merge.Part(i); part != feedback.PartActive && part != feedback.PartUnknown {
			s.retire(g.MappedBy(i))
		}
	}
	for k := range g.Shares {
		if g.Shares[k].Turn != st.begun {
			s.retire(k)
		}
	}
	for i := range g.Paths {
		st.merge.Share(i, s.inUse(g.MappedBy(i)))
	}
	return s
}

// retire ends the use of a share, if there is one.
func (s *sharing) retire(share int) {
	if share >= 0 {
		s.legs[share].retired = true
		s.changes++
	}
}

// generation returns the index of the share of old that is the same generation as s, or -1.
func generation(old *mft.Group, s *mft.Share) int {
	if old == nil {
		return -1
	}
	return slices.IndexFunc(old.Shares, func(o mft.Share) bool {
		return o.Dst == s.Dst && o.Src == s.Src && o.DestQPN == s.DestQPN
	})
}

func (s *sharing) inUse(share int) bool { return share >= 0 && !s.legs[share].retired }

// clone returns a copy that shares nothing with s.
func (s *sharing) clone() *sharing {
	if s == nil {
		return nil
	}
	return &sharing{edges: slices.Clone(s.edges), legs: slices.Clone(s.legs), lost: s.lost, changes: s.changes}
}

// takes reports whether path i is to get what leaves by its share.
func (s *sharing) takes(now feedback.Tick, i, share int) bool {
	if !s.inUse(share) {
		return false
	}
	e := &s.edges[i]
	if e.off && now >= e.until {
		e.off, e.missed = false, mostMissed-wholeMiss // it is tried
	}
	return !e.off
}

// share lets one copy of a new packet, or of a train, stand for those of all paths that share a
// leg, and takes their actions from the list. Two such paths are worth a copy of the leg.
func (s *sharing) share(now feedback.Tick, st *state, acts []feedback.Action, out *Outputs) []feedback.Action {
	g, newest := st.group, st.merge.NextPSN().Prev()
	var first roce.PSN
	for i := range acts {
		if a := &acts[i]; a.Kind == feedback.Copy {
			if k := g.ShareOf(a.Path); k >= 0 && s.takes(now, a.Path, k) {
				s.legs[k].due++
			}
			first = a.PSN
		}
	}
	packets := uint64(newest.Sub(first) + 1)
	for k := range s.legs {
		l := &s.legs[k]
		if l.due >= 2 {
			c := out.another()
			c.Path, c.Edit, c.PSN = g.SharePath(k), &st.edits.Shares[k], first
			l.sent, l.hasSent = newest, true
			l.counts.Packets += packets
			l.counts.Saved += packets * uint64(l.due-1)
		}
		l.forget(newest)
	}
	kept := acts[:0]
	for i := range acts {
		a := &acts[i]
		if a.Kind == feedback.Copy {
			if k := g.ShareOf(a.Path); k >= 0 {
				if s.legs[k].due >= 2 && !s.edges[a.Path].off {
					continue
				}
				s.edges[a.Path].sentOwn(newest, newest)
			}
		}
		kept = append(kept, *a)
	}
	for k := range s.legs {
		s.legs[k].due = 0
	}
	return kept
}

// forget forgets PSNs of long ago, because PSNs compare within half of their space.
func (l *sharedLeg) forget(newest roce.PSN) {
	const longAgo = feedback.Window / 2
	l.hasSent = l.hasSent && newest.Sub(l.sent) < longAgo
	l.isHeard = l.isHeard && newest.Sub(l.heard) < longAgo
}

// resent notes that packets which the source has sent again go to paths by copies of their own.
func (s *sharing) resent(st *state, acts []feedback.Action) {
	newest := st.merge.NextPSN().Prev()
	for i := range acts {
		if a := &acts[i]; a.Kind == feedback.Copy {
			s.edges[a.Path].sentOwn(a.PSN, newest)
		}
	}
}

// sentOwn notes that the receiver is sent a packet by a copy of its own. What it was sent so before
// it may acknowledge once more, with whatever it has come to.
func (e *edge) sentOwn(psn, newest roce.PSN) {
	if !e.hasOwn || psn.After(e.own) {
		e.own, e.hasOwn = psn, true
		return
	}
	e.twice, e.again = newest, true
}

// lacks notes that repair is about to send path i a packet, and whether that is a miss of its edge.
func (s *sharing) lacks(now feedback.Tick, st *state, i int, psn roce.PSN, out *Outputs) {
	share := st.group.ShareOf(i)
	if share < 0 {
		return
	}
	e, l := &s.edges[i], &s.legs[share]
	isMissed := psn == st.merge.Acked(i).Next() && !(e.hasGap && !psn.After(e.gap))
	if !e.off && isMissed && l.hasSent && !psn.After(l.sent) && (!e.hasOwn || psn.After(e.own)) {
		e.missed += doubtfulMiss
		if l.isHeard && !psn.After(l.heard) {
			e.missed += wholeMiss - doubtfulMiss
		}
		if e.missed >= mostMissed {
			e.pause = min(max(2*e.pause, edgePause), edgePauseMax)
			e.off, e.until = true, now+e.pause
			s.changes++
			s.note(st, i, true, out)
		}
	}
}

// answered notes the answer of path i: whether it proves that the edge works. told: it is of a box,
// which says itself that shared copies come.
func (s *sharing) answered(st *state, i int, ev *feedback.Event, outcome feedback.Outcome, told bool, out *Outputs) {
	share := st.group.ShareOf(i)
	if share < 0 || outcome == feedback.Stale || Reason(outcome).Verdict() == Drop {
		return
	}
	e, l, acked := &s.edges[i], &s.legs[share], st.merge.Acked(i)
	isNAK := ev.Syndrome == roce.NAKSequence || ev.Syndrome.IsRNR()
	switch {
	case told:
		e.pause = 0
		s.works(st, i, out)
	case !l.hasSent || acked.After(l.sent):
	case !e.hasOwn, acked.After(e.own): // see acknowledged
	case isNAK && !e.own.After(acked):
		// What made the receiver ask came behind all copies of its own.
		s.works(st, i, out)
	case outcome == feedback.Duplicate && !isNAK && !(e.again && !acked.After(e.twice)):
		s.works(st, i, out)
	}
	s.acknowledged(st, i, out)
	if isNAK {
		e.gap, e.hasGap = st.merge.NextPSN().Prev(), true
	}
}

// acknowledged notes what path i has acknowledged: more than it was sent by copies of its own
// proves that the edge works.
func (s *sharing) acknowledged(st *state, i int, out *Outputs) {
	share := st.group.ShareOf(i)
	if share < 0 {
		return
	}
	e, l, acked := &s.edges[i], &s.legs[share], st.merge.Acked(i)
	if l.hasSent && !acked.After(l.sent) && (!e.hasOwn || acked.After(e.own)) {
		e.pause = 0
		if !l.isHeard || acked.After(l.heard) {
			l.heard, l.isHeard = acked, true
		}
		s.works(st, i, out)
	}
	e.forget(acked)
}

// forget forgets what lies behind what the receiver has acknowledged.
func (e *edge) forget(acked roce.PSN) {
	e.hasOwn = e.hasOwn && !acked.After(e.own)
	e.again = e.again && !acked.After(e.twice)
	e.hasGap = e.hasGap && !acked.After(e.gap)
}

// works notes that the edge of path i works.
func (s *sharing) works(st *state, i int, out *Outputs) {
	e := &s.edges[i]
	if e.off {
		s.changes++
	}
	e.off, e.missed = false, 0
	s.note(st, i, false, out)
}

// note reports that the edge of path i is lost, or works again, if that is news.
func (s *sharing) note(st *state, i int, lost bool, out *Outputs) {
	e, p := &s.edges[i], &st.group.Paths[i]
	if e.lost == lost {
		return
	}
	what := feedback.NoteEdgeWorks
	if e.lost = lost; lost {
		what = feedback.NoteEdgeLost
		s.lost++
	} else {
		s.lost--
	}
	out.Notes = append(out.Notes, Note{
		Group: st.group.ID, Receiver: p.Dst, RemoteQPN: p.RemoteQPN, What: what, PSN: st.merge.Acked(i).Next(),
	})
}

// turns retires all legs, because another turn has begun: their mappings are for the packets of the
// one before. Control gives the legs another generation. What is known of PSNs is forgotten,
// because these are the next source's from now on.
func (s *sharing) turns(st *state) {
	for k := range s.legs {
		s.legs[k] = sharedLeg{counts: s.legs[k].counts, members: s.legs[k].members}
		s.retire(k)
	}
	for i := range s.edges {
		e := &s.edges[i]
		*e = edge{off: e.off, lost: e.lost, until: e.until, pause: e.pause}
	}
	for i := range st.group.Paths {
		st.merge.Share(i, false)
	}
}

// left retires the leg whose copies the edge of path i may map: its receiver gets no data any more.
func (s *sharing) left(st *state, i int) {
	share := st.group.MappedBy(i)
	if !s.inUse(share) {
		return
	}
	s.retire(share)
	for k := range st.group.Paths {
		if st.group.MappedBy(k) == share {
			st.merge.Share(k, false)
		}
	}
}

// states returns what is published of the shares and the edges.
func (s *sharing) states(now feedback.Tick, st *state) (shares []ShareState, edges []EdgeState) {
	if s == nil {
		return nil, nil
	}
	shares, edges = make([]ShareState, len(s.legs)), make([]EdgeState, len(s.edges))
	for k := range s.legs {
		shares[k] = ShareState{ShareCounts: s.legs[k].counts, Retired: s.legs[k].retired}
	}
	for i := range s.edges {
		e, share := &s.edges[i], st.group.ShareOf(i)
		if share < 0 {
			continue
		}
		edges[i] = EdgeState{Shares: true, Lost: e.lost}
		if e.lost {
			edges[i].After = time.Duration(max(0, e.until-now))
		} else if s.inUse(share) {
			shares[share].Working++
		}
	}
	return shares, edges
}
