package dataplane

import (
	"slices"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A turn is the time in which one member is the source. A restart has to know in which turn the
// group was: the PSNs of a queue pair that receives are those of all turns, one after the other,
// and a receiver takes a packet that is mapped to a PSN of an earlier turn for an old one and
// acknowledges it. So control stores a turn before its first packet is forwarded:
//
//	a packet of another member ──▶ the member waits, a note tells control
//	control asks for the turn  ──▶ nothing new of the source is forwarded: what is stored stays true
//	control has stored it      ──▶ the turn begins, with the packets of the member that were kept
//
// A note may be lost: the member's next packet makes another one.

// claimant is the member that is to be the source next.
type claimant struct {
	stands bool
	held   bool    // control stores the turn
	box    bool    // the member is another box, which has requested the turn and waits for the answer
	asks   request // then: its newest request
	told   bool    // there was a note since the last packet of a member that is not the source
	path   int
	since  feedback.Tick // when its first packet came
	next   roce.PSN      // the packet behind those that are kept
	kept   *handoff      // nil: none
}

// keptLife is how old the packets of a member that waits may be when its turn begins: no packet
// lives longer in a network.
const keptLife = feedback.Tick(time.Second)

// switchSource handles the packet ev of a member that is not the source, and may make it the source
// (rule 12). f is nil if another box requests the turn whose first packet ev would be, by r
// (yield.go). The result is 0, or the reason why the packet does not do so.
func (c *Core) switchSource(now feedback.Tick, st *state, f *Frame, r request, leg *mft.Leg, next int, ev *feedback.Event, out *Outputs) Reason {
	to := st.senderState(next)
	if behind := ev.PSN.Sub(to.NextPSN); behind < 0 && behind > -feedback.Window && to.HadTurn {
		// The member missed the last ACK of its turn. Everyone has this packet, so it is
		// acknowledged again.
		if to.Round.Arrive(ev.PSN) && feedback.DueAnswer(ev.PSN, to.NextPSN.Prev(), ev.AckReq) {
			psn := ev.PSN
			if st.isBox(next) {
				psn = to.NextPSN.Prev() // as feedback.Group.Relay has it
			}
			out.Replies = append(out.Replies, st.reply(leg, psn, roce.AETH{
				Syndrome: st.noGrant(), MSN: to.Messages,
			}, ev.MigReq))
		}
		return Reason(feedback.Filtered)
	}
	if f != nil && to.Round.Strays(ev.PSN) {
		// The member was called back at the end of its turn, and sent this packet before it heard
		// that: an ACK would be ahead of its place. It sends the packet again.
		return SourceOutOfStep
	}
	if w := &st.claimant; f == nil && st.awaits(next) {
		if w.asks.number = r.number; !w.held { // what is being stored stays true
			w.asks.lacks = r.lacks
		}
	}
	claim := st.claim(next)
	claim.Lacks = claim.Lacks || r.lacks
	over := to.Ended || to.Forced
	switch may := !over && st.merge.MaySwitch(now, claim); {
	case !over && f != nil && st.keepsBehind(f, next, ev.PSN):
		return SourceWaits
	case may && ev.PSN != to.NextPSN && !st.awaits(next):
		return SourceOutOfStep
	case over || ev.PSN != to.NextPSN:
		return SourceBlocked
	case !may && (st.merge.MayAsk() || st.fromAbove()):
		reason := c.keep(now, st, f, r, next, ev.PSN)
		c.sendQuestions(now, st, claim, out)
		return reason
	case !may:
		c.sync(now, st, out)
		c.acts = st.merge.Claim(now, c.acts[:0])
		c.perform(st, nil, out)
		return SourceBlocked
	case st.group.KeepsTurns || !st.yields(now, claim):
		return c.keep(now, st, f, r, next, ev.PSN)
	}
	c.disarm(now, st, out)
	if !st.merge.MaySwitch(now, claim) { // the engine has carried something until then
		return SourceBlocked
	}
	c.beginTurn(st, next, out)
	return 0
}

// awaits reports whether the member of path next waits for its turn. Then its first packet was the
// right one, whatever comes behind those that are kept.
func (st *state) awaits(next int) bool { return st.claimant.stands && st.claimant.path == next }

// claim is the source switch for which the member of path next waits.
func (st *state) claim(next int) feedback.SourceSwitch {
	to := st.senderState(next)
	return feedback.SourceSwitch{
		PSN: to.NextPSN, Messages: to.Messages, OldPath: max(st.active, onlySends), NewPath: next, Beside: st.beside(next),
		Lacks: st.awaits(next) && st.claimant.asks.lacks, Left: st.yield.left,
	}
}

// keep lets the member of path next wait with f, the first packet of its turn, or without: see
// switchSource.
func (c *Core) keep(now feedback.Tick, st *state, f *Frame, r request, next int, psn roce.PSN) Reason {
	w := &st.claimant
	if w.stands && (w.held || now-w.since <= keptLife) {
		w.told = false // the note may be lost, and the member that waits may be dead
		return SourceBlocked
	}
	kept := w.kept
	if kept == nil {
		kept = c.newKept()
	}
	kept.drop()
	*w = claimant{stands: true, path: next, since: now, kept: kept, next: psn, box: f == nil, asks: r}
	if f != nil {
		kept.put(f)
		w.next = psn.Next()
	}
	return SourceWaits
}

// sendQuestions asks the receivers what they have, and the source what it has sent. It asks for the
// member that waits, or for the box that is the source, to which all receivers here are one.
func (c *Core) sendQuestions(now feedback.Tick, st *state, claim feedback.SourceSwitch, out *Outputs) {
	c.sync(now, st, out)
	c.acts = c.acts[:0]
	if st.merge.MayAsk() {
		c.acts = st.merge.Ask(now, claim, c.acts)
	} else if st.fromAbove() {
		c.acts = st.merge.ClaimOf(now, c.acts)
	}
	c.perform(st, nil, out)
	if st.lacksFor(now, claim) {
		st.request(now, c, true, out)
	}
	if st.claimant.stands {
		c.questioned.addOnce(st)
	}
}

// questionAgain asks once more, until that is needless or nobody has waited for a while: the
// receivers, or the source for the turn.
func (c *Core) questionAgain(now feedback.Tick, st *state, out *Outputs) {
	w, y := &st.claimant, &st.yield
	questions, requests := st.merge.MayAsk() || st.fromAbove() && !st.merge.MaySwitch(now, st.claim(w.path)), y.requested && !y.given
	if !w.stands || !questions && !requests || now-w.since > keptLife {
		c.questioned.remove(st)
		return
	}
	if questions {
		c.sendQuestions(now, st, st.claim(w.path), out)
	}
	c.conclude(now, st, out)
}

// keepsBehind keeps a packet of the member that waits, if it follows those that are kept.
func (st *state) keepsBehind(f *Frame, next int, psn roce.PSN) bool {
	w := &st.claimant
	if !st.awaits(next) || psn != w.next || !w.kept.put(f) {
		return false
	}
	w.next = psn.Next()
	return true
}

// newKept returns a ring for the packets of a member that waits.
func (c *Core) newKept() *handoff {
	if h := c.spare; h != nil {
		c.spare = nil
		return h
	}
	return newHandoff(keptFrames)
}

// advance comes after every event of a group in which a member waits for its turn.
func (c *Core) advance(now feedback.Tick, st *state, out *Outputs) {
	w := &st.claimant
	claim := st.claim(w.path)
	if w.told || w.held || !st.merge.MaySwitch(now, claim) {
		return
	}
	if !st.yields(now, claim) {
		st.request(now, c, false, out)
		return
	}
	w.told = true
	if !st.group.KeepsTurns {
		c.endWait(st)
		return
	}
	leg := st.group.Leg(w.path)
	out.Notes = append(out.Notes, Note{
		Group: st.group.ID, Receiver: leg.Dst, RemoteQPN: st.group.RemoteQPN(w.path), What: feedback.NoteWaits, PSN: st.senderState(w.path).NextPSN,
	})
}

// endWait lets the worker handle what was kept of the member that waited.
func (c *Core) endWait(st *state) {
	if k := st.claimant.kept; k != nil {
		c.replays = append(c.replays, replay{k, st.claimant.since})
	}
	st.claimant = claimant{}
}

// replay is packets that a member's turn begins with.
type replay struct {
	kept  *handoff
	since feedback.Tick
}

// NextTurn returns the turn that a member of the group waits for, if there is one and everything of
// the turn before is acknowledged. Until BeginTurn, nothing new of the source is forwarded.
func (c *Core) NextTurn(now feedback.Tick, id mft.GroupID, out *Outputs) (t mft.Turn, ok bool) {
	st := c.stateOf(id)
	if st == nil || !st.claimant.stands {
		return t, false
	}
	c.disarm(now, st, out)
	claim := st.claim(st.claimant.path)
	if !st.claimant.held && !(st.merge.MaySwitch(now, claim) && st.yields(now, claim)) {
		return t, false
	}
	st.claimant.held = true
	c.acts = st.merge.LeaveBehind(claim, c.acts[:0]) // now, because it is stored with the turn
	c.perform(st, nil, out)
	st.endTurn()
	return st.turnOf(st.claimant.path), true
}

// BeginTurn lets the turn begin that NextTurn returned; without granted, the source goes on.
func (c *Core) BeginTurn(id mft.GroupID, granted bool, out *Outputs) (begun bool) {
	st := c.stateOf(id)
	if st == nil || !st.claimant.held {
		return false
	}
	if w := st.claimant; granted {
		c.beginTurn(st, w.path, out)
		if w.box {
			st.yieldTo(&st.group.Paths[w.path].Leg, st.senderState(w.path).NextPSN, w.asks, out)
		}
		c.endWait(st)
		return true
	}
	st.claimant.held = false
	if !st.yield.left { // else the source has gone on already, without this box
		c.acts = st.merge.GoOn(c.acts[:0])
		c.perform(st, nil, out)
	}
	return false
}

// beginTurn makes the member of path next the source.
func (c *Core) beginTurn(st *state, next int, out *Outputs) {
	st.endTurn()
	to := st.senderState(next)
	st.setOffsets(to)
	c.acts = st.merge.SwitchSource(st.claim(next), c.acts[:0])
	c.perform(st, nil, out)
	if st.held != nil {
		c.repair.retained.releaseAll(st.held) // of another PSN space
	}
	st.takesTurn(next)
	st.active, st.yield = next, yield{}
	st.begun++
	st.merge.Relay(st.isBox(next))
	st.edits = st.group.Edits(next)
	if st.sharing != nil {
		st.sharing.turns(st)
	}
	leg := st.group.Leg(next)
	out.Notes = append(out.Notes, Note{
		Group: st.group.ID, Receiver: leg.Dst, RemoteQPN: st.group.RemoteQPN(next), What: feedback.NoteSource, PSN: to.NextPSN,
	})
}

// endTurn notes where the source and all paths stand at the end of the source's turn. A source that
// lost it by force, and of whose packets some are not at enough receivers, has no further turn: an
// ACK of that would acknowledge these packets too.
func (st *state) endTurn() {
	messages, concluded := st.merge.Concluded()
	from := mft.Sender{
		NextPSN: st.merge.NextPSN(), Messages: messages,
		HadTurn: concluded, Ended: st.merge.Ended(), Forced: !concluded && !st.yield.left, Round: st.merge.Round(),
	}
	if st.active != departed { // one that has left has no further turn
		s := st.senderState(st.active)
		from.Ended, from.Forced = from.Ended || s.Ended, from.Forced || s.Forced // before a restart
		if *s = from; st.yield.left {
			s.NextPSN, s.HadTurn = st.yield.at, false
		}
	}
	for i := range st.turns {
		// A path that takes part is where the source's stream ends. Those that do not take part
		// stay where they were left.
		if at, turn := &st.offsets[i], &st.turns[i]; st.merge.Part(i) == feedback.PartActive {
			turn.awayPSN, turn.awayMSN = from.NextPSN.Add(at.deltaPSN), st.merge.MSN(i).Add(-at.deltaMSN)
		}
	}
}

// setOffsets sets the offsets of all paths from the source that is at from.
func (st *state) setOffsets(from *mft.Sender) {
	for i := range st.turns {
		turn := &st.turns[i]
		st.offsets[i] = offset{deltaPSN: turn.awayPSN.Sub(from.NextPSN), deltaMSN: from.Messages.Sub(turn.awayMSN)}
	}
}

// turnOf returns the turn of the member of path next, behind the end of the source's. Who still
// joins has no place in it, unless it is that member: its QP has received nothing.
func (st *state) turnOf(next int) mft.Turn {
	t := mft.Turn{First: st.first}
	for i := range st.turns {
		if i != next && st.merge.Part(i).IsToCome() {
			continue
		}
		p, turn := &st.group.Paths[i], &st.turns[i]
		t.Members = append(t.Members, mft.Standing{
			QP: p.QP(), Expects: turn.awayPSN, Messages: turn.awayMSN, Sender: turn.Sender,
		})
	}
	if next >= 0 {
		t.Source = st.group.Paths[next].QP()
	}
	return t
}

// unheard is so many packets that a receiver which has left them unanswered since a restart has
// nothing on its way any more: no source has as many on their way.
const unheard = 1 << 15

// soFar returns the running turn from where every path has got to that takes part: a restart
// that begins there knows all offsets, and is near the receivers however many packets the turn has.
// ok is false while it is unknown what a path has, and where no other member sends. With a quorum a
// path does not count that has left all packets since a restart unanswered. Its offset is known,
// and the turn would become too long for a question.
//
// If there are only paths that join, the turn begins behind what the source was told, whoever
// sends: that is where they join.
func (st *state) soFar() (t mft.Turn, ok bool) {
	if st.active == departed || st.claimant.held {
		return t, false
	}
	lowest := -1
	for i := range st.offsets {
		switch st.merge.Part(i) {
		case feedback.PartUnknown:
			if st.group.Policy.Ack == feedback.AckAll || st.traffic.Sent < unheard {
				return t, false
			}
		case feedback.PartActive:
			if lowest < 0 || st.merge.Acked(i).Before(st.merge.Acked(lowest)) {
				lowest = i
			}
		}
	}
	at, known := st.merge.Told()
	switch {
	case lowest >= 0 && st.turns == nil, lowest < 0 && !(known && st.onlyJoin()):
		return t, false
	case lowest >= 0:
		at = st.merge.Progress(lowest)
	}
	next, messages := at.PSN.Next(), at.MSN
	t = st.turnOf(st.active)
	from := t.Sender()
	from.NextPSN, from.Messages, from.Ended = next, messages, from.Ended || st.merge.Ended()
	for i := range st.turns {
		if m := t.Member(st.group.Paths[i].QP()); m != nil && i != st.active {
			m.Expects, m.Messages = next.Add(st.offsets[i].deltaPSN), messages.Add(-st.offsets[i].deltaMSN)
		}
	}
	return t, true
}

// onlyJoin reports whether paths join, and no other one takes part.
func (st *state) onlyJoin() (joins bool) {
	for i := range st.offsets {
		switch st.merge.Part(i) {
		case feedback.PartJoining, feedback.PartWaiting:
			joins = true
		case feedback.PartBehind, feedback.PartGone:
		default:
			return false
		}
	}
	return joins
}

// recall lets a new state begin with a turn, and returns where its source is.
func (st *state) recall(t *mft.Turn) mft.Sender {
	if st.turns == nil {
		st.turns = newTurns(st.group)
	}
	st.first, st.active = t.First, departed
	if t.Source == (mft.QP{}) {
		st.active = onlySends
	}
	for i := range st.turns {
		qp := st.group.Paths[i].QP()
		if m := t.Member(qp); m != nil {
			st.turns[i] = turn{awayPSN: m.Expects, awayMSN: m.Messages, Sender: m.Sender}
		}
		if qp == t.Source {
			st.active = i
		}
	}
	var from mft.Sender
	if st.active != departed {
		from = *st.senderState(st.active)
	}
	st.setOffsets(&from)
	return from
}

// question handles a packet by which the box that sent it asks what has been acknowledged here. It
// is answered for the turn of that box, when nothing of it is on its way here. Another turn may
// have begun here since: it waits until the other box knows the end of the one before.
func (c *Core) question(now feedback.Tick, st *state, leg *mft.Leg, sender int, out *Outputs) Reason {
	to := *st.senderState(sender)
	if sender == st.active && st.merge.MayAsk() {
		claim := st.claim(onlySends)
		claim.Asked = true
		c.sendQuestions(now, st, claim, out)
	}
	if sender == st.active {
		to.NextPSN = st.merge.NextPSN()
		to.Messages, _ = st.merge.Concluded()
		to.HadTurn = st.merge.Settled() && st.merge.MaySwitch(now, st.claim(onlySends))
	}
	if to.HadTurn {
		out.Replies = append(out.Replies, st.reply(leg, to.NextPSN.Prev(), roce.AETH{Syndrome: st.noGrant(), MSN: to.Messages}, false))
	}
	return SourceAsks
}

// isQuestion reports whether a request is a question: no requester sends a MIDDLE packet without
// payload.
func isQuestion(v *roce.View) bool { return v.Opcode == roce.OpWriteMiddle && v.PayloadBytes == 0 }

// Kept moves packets with which a turn begins into frames, and returns how many.
func (c *Core) Kept(now feedback.Tick, pool Pool, frames []Frame) int {
	for len(c.replays) > 0 {
		r := c.replays[0]
		if now-r.since <= keptLife {
			if n := r.kept.take(pool, frames); n > 0 {
				return n
			}
		}
		r.kept.drop()
		c.spare, c.replays = r.kept, slices.Delete(c.replays, 0, 1)
	}
	return 0
}

// replay handles the packets with which turns begin.
func (w *Worker) replay() {
	for {
		now := w.now()
		n := w.core.Kept(now, w.pool, w.frames)
		if n == 0 {
			return
		}
		w.handle(now, w.frames[:n])
	}
}

// NextTurn returns the turn that a member of the group waits for, if there is one and everything of
// the turn before is acknowledged. Until BeginTurn, nothing new of the source is forwarded.
func (s *Switch) NextTurn(id mft.GroupID) (t mft.Turn, ok bool) {
	s.ofOwner(id, func(w *Worker) { t, ok = w.core.NextTurn(w.now(), id, &w.out) })
	return t, ok
}

// RunningTurn returns the turn of the group's source from where every receiver has got to, or false
// while that is not known, or if no other member may be the source.
func (s *Switch) RunningTurn(id mft.GroupID) (t mft.Turn, ok bool) {
	s.ofOwner(id, func(w *Worker) {
		if st := w.core.stateOf(id); st != nil {
			t, ok = st.soFar()
		}
	})
	return t, ok
}

// BeginTurn lets the turn begin that NextTurn returned; without granted, the source goes on.
func (s *Switch) BeginTurn(id mft.GroupID, granted bool) {
	s.ofOwner(id, func(w *Worker) {
		w.core.BeginTurn(id, granted, &w.out)
	})
}

// ofOwner runs f on the worker that has the group, if one has, and sends what is due then.
func (s *Switch) ofOwner(id mft.GroupID, f func(w *Worker)) {
	owner := s.owners.of(id)
	if owner < 0 {
		return
	}
	s.do(s.workers[owner], func(w *Worker) {
		f(w)
		w.flush()
		w.core.PutBack()
		w.replay()
	})
}
