package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Core decides what happens to each frame. It holds the merging state of each group from the first
// frame of the group on, or from Adopt on, until Forget. One thread owns it.
type Core struct {
	states     []*state     // by slot; as long as the highest slot that has had a state
	timed      rotation     // the groups whose policy depends on time passing
	questioned rotation     // the groups whose receivers are asked what they have, because another member waits for its turn
	flights    [flights]int // number of groups in each state of flight
	// streaming: the last feedback to a group that an engine carries found the source far ahead, so
	// that the source does not wait for it.
	streaming bool
	acts      []feedback.Action

	repair  repairs
	engine  engine
	taps    taps
	replays []replay
	spare   *handoff // for the packets of the next member that waits for its turn
	ahead   uint32   // of the clock that goes on over a restart, in AskPeriods: see state.request
	astray  strays
	naks    nakCounts // of all groups, also of those that were removed
}

// NewCore returns a core without any state. FanOut is the engine in front of it; nil: none.
func NewCore(fanOut FanOut) *Core {
	return &Core{engine: engine{fanOut: fanOut}, acts: make([]feedback.Action, 0, feedback.MaxActions(mft.MaxPaths))}
}

// Handle decides about one frame that the classifier attributed to a group, and appends what is to
// be sent to out. Out must have room for mft.MaxPaths more copies. Handle sets View, and for a
// frame that is copied also Original and Region.
func (c *Core) Handle(now feedback.Tick, t *mft.Table, f *Frame, out *Outputs) Reason {
	r, _ := c.HandleTrain(now, t, f, nil, out)
	return r
}

// HandleTrain is Handle, and also decides about those of the frames behind f that are of the same
// train of packets (see train.go). more is how many; the copies and the reason stand for all of
// them.
func (c *Core) HandleTrain(now feedback.Tick, t *mft.Table, f *Frame, behind []Frame, out *Outputs) (r Reason, more int) {
	c.repair.now = now
	g := t.Group(f.Group)
	if g == nil {
		if f.Group == mft.NoGroup {
			r = UnknownQPN
			if f.Kind == KindCM {
				r = ConnectionManagement
			}
			c.astray.note(f, r)
			return r, 0
		}
		return GroupGone, 0
	}
	if g.Relay != nil {
		return passOn(c, now, g, f, out), 0
	}
	isMapped := len(g.Mappings) > 0 && mapShare(g, f)
	if f.Kind == KindData {
		if n := c.train(now, g, f, behind, out); n > 0 {
			c.stateOf(g.ID).mapped.count(isMapped, f)
			return Reason(feedback.Forwarded), n - 1
		}
	}
	st, rearranged := c.adopt(now, g, out)
	st.mapped.count(isMapped, f)
	r = c.decide(now, st, f, out)
	st.counts[r]++
	if r.Refuses() {
		c.astray.refuse(st, f, r)
	}
	if rearranged {
		c.timer(now, st, out) // a path that left may have held the minimum down
	}
	c.reconsider(now, st, r, 1, out)
	c.conclude(now, st, out)
	return r, 0
}

// conclude comes after every event of a group that may change what is in flight, or what is
// retained.
func (c *Core) conclude(now feedback.Tick, st *state, out *Outputs) {
	if st.held != nil {
		c.keepUp(now, st, out)
	}
	if st.claimant.stands {
		c.advance(now, st, out)
	}
	c.countInFlight(st)
}

// flight is the state of a group's data in flight, as far as the core knows.
type flight uint8

const (
	settled  flight = iota // every receiver has acknowledged everything, and new data comes to the worker
	inFlight               // a receiver has not acknowledged data, and new data comes to the worker
	carried                // new data goes past the worker
	flights
)

// A group streams if its source is more than streamPackets ahead of the feedback that comes in. A
// source that waits for the ACK of each message is not ahead of that ACK.
const streamPackets = 16

// countInFlight is called after every event that may change the group's packets in flight.
func (c *Core) countInFlight(st *state) {
	is := inFlight
	switch {
	case st.fan.at.Armed:
		is = carried
	case st.merge.Settled():
		is = settled
	}
	c.flights[st.flight]--
	c.flights[is]++
	st.flight = is
}

func (c *Core) decide(now feedback.Tick, st *state, f *Frame, out *Outputs) Reason {
	if err := f.View.Decode(f.Head(), f.Len()); err != nil {
		if err == roce.ErrOpcode {
			return UnknownOpcode
		}
		return Malformed
	}
	switch op := f.View.Opcode; {
	case !op.IsRC() && op != roce.OpCNP:
		return WrongTransport
	case op == roce.OpCNP:
		return c.cnp(now, st, f, out)
	case op == roce.OpAck:
		return c.feedback(now, st, f, out)
	case op.IsRequest():
		return c.data(now, st, f, out)
	}
	return UnmergeableResponse // a READ or atomic response
}

// notSender says why a request is refused that comes neither from the source nor from a member that
// may become the source. [NotSource] accuses a receiver, so it is only said of a frame that comes
// undamaged by that receiver's way.
func notSender(g *mft.Group, f *Frame) Reason {
	v, head := &f.View, f.Head()
	path := g.FindMember(v.SrcIP(head))
	switch {
	case path < 0:
		return NotMember
	case !g.Hears(&g.Paths[path].Leg, f.Port):
		return WrongPort
	case mft.VLANsOf(head[:v.L3]) != g.Paths[path].VLANs():
		return WrongVLAN
	case !v.Undamaged(f.Bytes()):
		return BadICRC
	}
	return NotSource
}

// data handles a request. Only the group's source, or a member that may become the source, may send
// one: from a port and the VLAN of its own, to the address and QPN that its QP has as peer, and
// undamaged.
func (c *Core) data(now feedback.Tick, st *state, f *Frame, out *Outputs) Reason {
	g, v, head := st.group, &f.View, f.Head()
	leg, sender := st.sender(v.SrcIP(head))
	switch {
	case leg == nil:
		return notSender(g, f)
	case !g.Hears(leg, f.Port):
		return WrongPort
	case mft.VLANsOf(head[:v.L3]) != leg.VLANs():
		return WrongVLAN
	case v.DestQPN(head) != g.RemoteQPN(sender):
		return WrongQPN
	case v.DstIP(head) != leg.Src:
		return WrongDestination
	}
	c.precede(now, st, sender, out)
	switch {
	case v.PayloadBytes > g.PathMTU:
		return OverMTU
	case v.HopLimit(head) <= 1:
		return HopLimitExceeded
	}
	f.Original.Read(v, f.Bytes())
	ev := feedback.Event{
		Kind: feedback.Data, PSN: f.Original.PSN, AckReq: v.AckReq(head),
		First: v.Opcode.IsFirst() || v.Opcode.IsOnly(), Last: v.Opcode.EndsMessage(),
		MigReq: v.MigReq(head), // for answers that come from no receiver
	}
	if ev.Syndrome = admit(g, f); ev.Syndrome != 0 {
		ev.Kind = feedback.Refuse
	}
	unchecked := !isQuestion(v) && st.needsNoCheck(sender, &ev, v.PKey(head))
	if !unchecked && !v.Undamaged(f.Bytes()) {
		return BadICRC
	}
	switch {
	case isQuestion(v) && st.isRequest(sender, &ev):
		return st.requestedBy(now, c, leg, sender, &ev, out)
	case isQuestion(v):
		return c.question(now, st, leg, sender, out)
	case sender != st.active:
		if r := c.switchSource(now, st, f, request{}, leg, sender, &ev, out); r != 0 {
			return r
		}
	case st.claimant.held && !ev.PSN.Before(st.merge.NextPSN()):
		return SourceBlocked
	}
	var outcome feedback.Outcome
	next, copies := st.merge.NextPSN(), len(out.Copies)
	c.acts, outcome = st.merge.Step(now, ev, c.acts[:0])
	st.countData(outcome, next, v.PayloadBytes)
	if outcome != feedback.OutsideWindow {
		st.mark(f.Port, v, head)
	}
	if st.sharing != nil && outcome == feedback.Forwarded {
		c.acts = st.sharing.share(now, st, c.acts, out)
	} else if st.sharing != nil {
		st.sharing.resent(st, c.acts)
	}
	c.perform(st, f, out)
	st.traffic.copied(len(out.Copies)-copies, v.PayloadBytes)
	if st.held != nil {
		c.retain(now, st, f, outcome, !unchecked, out)
	}
	if outcome == feedback.Refused && ev.Syndrome == roce.NAKRemoteAccess {
		return RefusedMemory
	}
	return Reason(outcome)
}

// needsNoCheck reports whether a packet may be forwarded with its ICRC unchecked, because reading
// the whole payload takes time. It may if the packet is the next new one of a plain group: then it
// is only copied. If it was damaged on the way here, every copy is damaged too, because the ICRC of
// a copy is computed from the ICRC received; the receivers drop the copies, as if the packet had
// been lost. The packet must have the same P_Key as the one before it, because answers to the
// source take their P_Key from the source's packets.
func (st *state) needsNoCheck(sender int, ev *feedback.Event, pkey uint16) bool {
	return sender == st.active && ev.Kind == feedback.Data && pkey == st.marks.pkey &&
		ev.PSN == st.merge.NextPSN() && st.merge.Plain() > 0
}

// admit sets f.Region, and returns the NAK that refuses the request, if any. An operation that
// cannot be merged is an invalid request: READ and atomics, and IETH and FLUSH, which name keys or
// need answers of their own. Memory that the group does not have, or has not yet, is refused as a
// receiver would refuse it. A copy may have been written over the frame, but f.Original is as
// received.
func admit(g *mft.Group, f *Frame) (refusal roce.Syndrome) {
	v := &f.View
	f.Region = -1
	headers := v.Opcode.Headers()
	switch {
	case v.Opcode.IsRead(), v.Opcode.IsAtomic(), headers.Has(roce.HasIETH), headers.Has(roce.HasFETH):
		return roce.NAKInvalidRequest
	case !headers.Has(roce.HasRETH) || g.Memory == nil:
		return 0
	}
	o := &f.Original
	f.Region = g.Memory.Find(o.VA, o.RKey, o.DMABytes)
	if f.Region < 0 && o.DMABytes > 0 { // a WRITE of length 0 names no memory
		return roce.NAKRemoteAccess
	}
	return 0
}

// feedback handles an acknowledge packet. Only a receiver may send one: from a port and the VLAN of
// its own, to the address and QPN that its QP has as peer.
func (c *Core) feedback(now feedback.Tick, st *state, f *Frame, out *Outputs) Reason {
	path, r := st.receiver(f)
	if path < 0 {
		return r
	}
	c.sync(now, st, out)
	v, head := &f.View, f.Head()
	st.markAnswer(v, head)
	aeth := v.AETH(head)
	if st.takesYield(path, v.PSN(head), aeth) {
		return Reason(feedback.Absorbed)
	}
	ev := feedback.Event{
		Kind: feedback.Response, Path: path, Syndrome: aeth.Syndrome,
		PSN: v.PSN(head).Add(-st.offsets[path].deltaPSN), MSN: aeth.MSN.Add(st.offsets[path].deltaMSN), MigReq: v.MigReq(head),
		Nobody: aeth.Syndrome == roce.NAKRemoteOperational && saysNobody(&st.group.Paths[path], v, head),
	}
	c.streaming = st.fan.at.Armed && st.fan.at.PSN.Sub(ev.PSN) > streamPackets
	var outcome feedback.Outcome
	c.acts, outcome = st.merge.Step(now, ev, c.acts[:0])
	switch t := &st.tallies[path]; {
	case outcome == feedback.Stale, Reason(outcome).Verdict() == Drop:
	case aeth.Syndrome == roce.NAKSequence:
		t.naks++
	case aeth.Syndrome.IsRNR():
		t.rnrs++
	}
	if st.sharing != nil {
		st.sharing.answered(st, path, &ev, outcome, saysShared(&st.group.Paths[path], v, head), out)
	}
	c.repair.answered = true
	c.perform(st, f, out)
	c.repair.answered = false
	return Reason(outcome)
}

// cnp handles a receiver's congestion notification. It is passed on to the source, as data is to
// the receivers.
func (c *Core) cnp(now feedback.Tick, st *state, f *Frame, out *Outputs) Reason {
	path, r := st.receiver(f)
	switch {
	case path < 0:
		return r
	case f.View.HopLimit(f.Head()) <= 1:
		return HopLimitExceeded
	}
	c.sync(now, st, out)
	st.markAnswer(&f.View, f.Head())
	st.tallies[path].cnps++
	var outcome feedback.Outcome
	c.acts, outcome = st.merge.Step(now, feedback.Event{Kind: feedback.CNP, Path: path}, c.acts[:0])
	c.perform(st, f, out)
	return Reason(outcome)
}

// receiver returns the path of the receiver that sent a response, or -1 and why the response is
// refused.
func (st *state) receiver(f *Frame) (path int, r Reason) {
	g, v, head := st.group, &f.View, f.Head()
	src := v.SrcIP(head)
	path = g.FindPath(src, v.DestQPN(head))
	if path < 0 {
		if g.FindMember(src) >= 0 {
			return -1, WrongQPN
		}
		return -1, NotReceiver
	}
	switch {
	case !g.Hears(&g.Paths[path].Leg, f.Port):
		return -1, WrongPort
	case mft.VLANsOf(head[:v.L3]) != g.Paths[path].VLANs():
		return -1, WrongVLAN
	case v.DstIP(head) != g.Paths[path].Src:
		return -1, WrongDestination
	case !v.Undamaged(f.Bytes()):
		return -1, BadICRC
	}
	return path, 0
}

// perform turns the actions of merging into outputs. f is the congestion notification that one of
// the actions passes on, or nil if none does.
func (c *Core) perform(st *state, f *Frame, out *Outputs) {
	g, gone := st.group, st.active == departed
	for i := range c.acts {
		a := &c.acts[i]
		switch a.Kind {
		case feedback.Copy:
			st.fillIn(out.another(), a)
		case feedback.Reply, feedback.PassCNP:
			if !gone { // the first Source counts its own PSNs, and would take this for an answer to them
				c.naks[a.Cause]++
				st.naks[a.Cause]++
				st.sendToSource(f, a, out)
			}
		case feedback.Join:
			st.offsets[a.Path].deltaPSN = g.Paths[a.Path].FirstPSN.Sub(a.PSN)
			st.offsets[a.Path].deltaMSN = a.MSN.Sub(0)
			st.joins(a.Path, a.PSN)
		case feedback.Repair:
			c.sendRepair(st, a, out)
		case feedback.Question:
			out.Replies = append(out.Replies, st.question(a))
		case feedback.Notice:
			if st.sharing != nil && a.Note.EndsData() {
				st.sharing.left(st, a.Path)
			}
			out.Notes = append(out.Notes, Note{
				Group: g.ID, Receiver: g.Paths[a.Path].Dst, RemoteQPN: g.Paths[a.Path].RemoteQPN,
				What: a.Note, PSN: a.PSN, Syndrome: a.Syndrome,
			})
		}
	}
}

// sendToSource sends the source an answer, or passes on the congestion notification f.
func (st *state) sendToSource(f *Frame, a *feedback.Action, out *Outputs) {
	if a.Kind == feedback.Reply {
		r := st.reply(st.sourceLeg(), a.PSN, roce.AETH{Syndrome: a.Syndrome, MSN: a.MSN}, a.MigReq)
		r.Nobody = a.Nobody
		out.reply(r)
		return
	}
	out.Replies = append(out.Replies, Reply{
		Leg: st.sourceLeg(), Group: st.group.ID, CNP: true, PKey: st.marks.pkey,
		TrafficClass: f.View.TrafficClass(f.Head()) &^ ecnMask,
		HopLimit:     f.View.HopLimit(f.Head()) - 1,
		PCP:          st.pcp(), Priority: st.group.Priority(st.sourceLeg()),
	})
}

func (c *Core) timer(now feedback.Tick, st *state, out *Outputs) {
	c.repair.now = now
	c.sync(now, st, out)
	c.acts, _ = st.merge.Step(now, feedback.Event{Kind: feedback.Timer}, c.acts[:0])
	c.perform(st, nil, out)
	c.reconsider(now, st, Reason(feedback.Absorbed), 1, out)
}

// Adopt switches the merging of a group to version g, as the first frame of g would, and appends
// what has to be sent because of that. If the engine carried the group, Adopt disarms it. Tick
// looks at the engine only for armed groups, so Adopt itself starts the wait for the answers to the
// last packets that the engine carried.
func (c *Core) Adopt(now feedback.Tick, g *mft.Group, out *Outputs) {
	st, rearranged := c.adopt(now, g, out)
	if rearranged {
		c.timer(now, st, out)
	}
	c.conclude(now, st, out)
}

// adopt switches the merging of a group to version g, and returns the group's merging state. A new
// group gets a new state. The state of a known group goes on when a next hop changes, or members
// join or leave; rearranged reports whether it has other paths than before. If the engine has the
// old version, adopt disarms the group first.
func (c *Core) adopt(now feedback.Tick, g *mft.Group, out *Outputs) (st *state, rearranged bool) {
	st = c.stateOf(g.ID)
	switch {
	case st != nil && st.group == g:
	case st != nil && g.Relay != nil:
		st = st.relaysOn(g)
		c.states[g.ID.Slot()] = st
	case st != nil:
		held, left := st.claimant.held, st.yield.left
		c.disarm(now, st, out)
		rearranged = st.adopt(g)
		st.edits = g.Edits(st.active)
		if held && !st.claimant.held && !left { // the member whose turn was stored has left the group
			c.acts = st.merge.GoOn(c.acts[:0])
			c.perform(st, nil, out)
		}
		if h := st.held; rearranged && st.active == departed && h != nil && h.oldest != h.next {
			// The active source has left the group. The edits of the copies are now those for
			// packets of the group's first Source, so a copy of a retained packet would have a
			// wrong ICRC.
			c.letGo(now, st, h.next.Prev(), out)
		}
	default:
		c.Forget(g.ID)
		for len(c.states) <= g.ID.Slot() {
			c.states = append(c.states, nil)
		}
		st = newState(g)
		c.states[g.ID.Slot()] = st
		if st.held != nil && c.repair.retained == nil { // a core without a Switch
			c.repair.retained = newRetention(c.repair.room)
		}
		c.flights[st.flight]++
		if g.Policy.NeedsTimer() {
			c.timed.add(st)
		}
	}
	return st, rearranged
}

// stateOf returns the merging state of the group with this ID, or nil if there is none.
func (c *Core) stateOf(id mft.GroupID) *state {
	if slot := id.Slot(); slot < len(c.states) && c.states[slot] != nil && c.states[slot].group.ID == id {
		return c.states[slot]
	}
	return nil
}

// Forget drops the state of a group that was removed, or that had the slot before.
func (c *Core) Forget(id mft.GroupID) {
	slot := id.Slot()
	if slot >= len(c.states) || c.states[slot] == nil {
		return
	}
	c.engine.abandon(c.states[slot])
	c.repair.forget(c.states[slot])
	c.flights[c.states[slot].flight]--
	c.timed.remove(c.states[slot])
	c.questioned.remove(c.states[slot])
	c.states[slot] = nil
}
