package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// In a tree each box has a source of its own: a member, or the box behind which the source is. Two
// members at different boxes may want to be the source at the same time. If each box let its own
// member begin, neither would take what the other one sends, and none of it could be acknowledged.
// So a box whose source is another box requests the turn of that one before another member's turn
// begins:
//
//	this box                                the box that is its source
//	a member waits, and may switch
//	request for the turn ─────────────────▶ it counts as the first packet of a turn: the box requests
//	                                        it further, if its own source is a box, and stores it
//	the turn is stored, and begins ◀─────── the box yields
//
// The request is a question (docs/wire.md#responder) with a PSN that no packet can have now, and
// the box yields by the ACK of that PSN. Either may be lost: the request is repeated. A box that
// ends without knowing whether the other one has yielded requests the turn again.
//
// Either may be late, too. The box that yielded may have requested the turn back before its ACK
// arrives, and neither box may have sent anything since. Taken for the answer to the next request,
// that ACK would make both boxes the source. So each request has a number, which is part of its PSN
// and of that of the answer. And the MSN of the ACK is the packet that the yielding box would send
// next: an ACK that is older than packets of that box is refused.
//
// Where some box above has a quorum, or evicts, it may go on without what is behind a link. The
// boxes there wait for all of their receivers, and for packets that nobody sends again. So a box
// whose source is the box above requests the turn also when it cannot settle what its receivers
// have, and says that it lacks something. The box above passes that on, up to the box that may
// spare the link: that one takes the link for behind when its policy has it so (rule 12), and
// stores that with the turn. Each box yields with another ACK then, which says that the turn before
// went on without the box that hears it. Who lacks something there is behind, and nobody waits for
// them. The box that hears it takes the packet that the MSN names for the next one: for the
// requests to come, both have to know the same one.

const (
	// requestAhead is how far the PSN of request 0 is ahead of the next packet: outside the window,
	// and not among the PSNs of earlier packets.
	requestAhead = 2 * feedback.Window
	// lacksAhead is the same for a request of a box that lacks something, and for the ACK to a box
	// that was left behind.
	lacksAhead = 3 * feedback.Window
	// requestStride is how far the next request is ahead of one. Two boxes that do not know the
	// same next packet are hardly ever apart by a multiple of it: it is a prime, and they are apart
	// by whole messages, often of 2^n packets. All 256 requests have place before lacksAhead.
	requestStride = 8191
)

// request is what the PSN of a request for the turn says, and that of its answer.
type request struct {
	lacks  bool // the box that hears or sends the request lacks something
	number uint8
}

// ahead is how far the PSN is ahead of the next packet.
func (r request) ahead() int32 {
	from := int32(requestAhead)
	if r.lacks {
		from = lacksAhead
	}
	return from + int32(r.number)*requestStride
}

// requestAt is the request whose PSN is so far ahead of the next packet, if there is one.
func requestAt(ahead int32) (r request, ok bool) {
	if r.lacks = ahead >= lacksAhead; r.lacks {
		ahead -= lacksAhead - requestAhead
	}
	n := (ahead - requestAhead) / requestStride
	r.number = uint8(n)
	return r, n >= 0 && n < 256 && ahead == requestAhead+n*requestStride
}

// yield is what is known about the source, if it is another box, since another member waits for its
// turn.
type yield struct {
	given     bool          // the box has yielded
	left      bool          // and has gone on without this one
	at        roce.PSN      // then: what it says that this one expects next of it
	requested bool          // the turn was requested of it
	number    uint8         // then: by a request with this number
	next      roce.PSN      // behind the source's newest packet when it was requested the first time
	since     feedback.Tick // the first time, or the first one behind the source's newest packet
	last      feedback.Tick // when it was requested last
}

// yields reports whether the source is no other box, or one that has yielded, or one that the
// policy can do without. The last needs that the box has sent nothing for as long as a receiver has
// to catch up: one that is inside a message rightly does not yield.
func (st *state) yields(now feedback.Tick, claim feedback.SourceSwitch) bool {
	y := &st.yield
	switch {
	case y.given || st.active < 0 || st.group.Paths[st.active].Box == mft.NoBox:
		return true
	case st.merge.Ended() || st.senderState(st.active).Ended || st.group.Policy.Switch == feedback.SwitchForce:
		return true
	}
	if st.group.Paths[st.active].Box == mft.BoxAbove { // which is waited for whatever the policy says
		return false
	}
	return y.requested && y.next == st.merge.NextPSN() && claim.SparesOld(st.merge, now-y.since)
}

// fromAbove reports whether the source is the box above.
func (st *state) fromAbove() bool {
	return st.active >= 0 && st.group.Paths[st.active].Box == mft.BoxAbove
}

// lacksFor reports whether the source is the box above, and is to hear that a member waits for its
// turn and this box cannot settle what its receivers have.
func (st *state) lacksFor(now feedback.Tick, claim feedback.SourceSwitch) bool {
	return st.claimant.stands && st.fromAbove() && !st.merge.MaySwitch(now, claim) && st.merge.Overdue(now)
}

// request requests the turn of the source, which is another box, unless it did so just now. lacks
// says that this box cannot settle what its receivers have.
func (st *state) request(now feedback.Tick, c *Core, lacks bool, out *Outputs) {
	y := &st.yield
	if y.requested && now-y.last < feedback.AskPeriod {
		return
	}
	c.disarm(now, st, out)
	if next := st.merge.NextPSN(); !y.requested || y.next != next {
		if st.requests == 0 { // another number than in the seconds before a crash
			st.requests = c.ahead + uint32(now/feedback.AskPeriod)
		}
		st.requests++
		y.requested, y.number, y.since, y.next = true, uint8(st.requests), now, next
	}
	y.last = now
	ahead := request{lacks, y.number}.ahead()
	out.Replies = append(out.Replies, st.question(&feedback.Action{
		Path: st.active, PSN: st.turns[st.active].awayPSN.Add(ahead - st.offsets[st.active].deltaPSN),
	}))
	c.questioned.addOnce(st)
}

// takesYield takes the answer of the source to a request for the turn, if it is one, and not older
// than packets of the source.
func (st *state) takesYield(path int, psn roce.PSN, aeth roce.AETH) bool {
	if path != st.active || !st.claimant.stands || !st.yield.requested || !aeth.Syndrome.IsACK() {
		return false
	}
	at := roce.PSN(aeth.MSN)
	r, ok := requestAt(psn.Sub(st.turns[path].awayPSN))
	if !ok || r.number != st.yield.number || !r.lacks && at != st.merge.NextPSN() {
		return false
	}
	if st.yield.given = true; r.lacks {
		st.yield.left, st.yield.at = true, at
	}
	return true
}

// requestedBy handles a request for the turn, by the box of path sender.
func (st *state) requestedBy(now feedback.Tick, c *Core, leg *mft.Leg, sender int, ev *feedback.Event, out *Outputs) Reason {
	r, ok := requestAt(ev.PSN.Sub(st.nextOf(sender)))
	if sender != st.active {
		first := *ev
		first.PSN = st.nextOf(sender)
		if c.switchSource(now, st, nil, r, leg, sender, &first, out) == 0 {
			st.yieldTo(leg, first.PSN, r, out)
		}
		return SourceAsks
	}
	// Both boxes take the other one for the source: this one has yielded, and the other one has not
	// heard that.
	w, y := &st.claimant, &st.yield
	waits := w.stands && (w.held || now-w.since <= keptLife)
	switch {
	case !ok && st.merge.MayAsk():
		return c.question(now, st, leg, sender, out)
	case !ok:
		return SourceAsks
	case waits && (w.held || y.given || y.requested && leg.Src.Less(leg.Dst)): // of two requests that cross, one counts
		return SourceAsks
	}
	if w.kept != nil {
		w.kept.drop()
		c.spare = w.kept
	}
	*w, *y = claimant{}, yield{}
	st.yieldTo(leg, st.merge.NextPSN(), r, out)
	return SourceAsks
}

// yieldTo answers request r of a box: its turn has begun here, with packet first. The answer says
// whether the turn before went on without that box.
func (st *state) yieldTo(leg *mft.Leg, first roce.PSN, r request, out *Outputs) {
	answer := roce.AETH{Syndrome: st.noGrant(), MSN: roce.MSN(st.turns[st.active].awayPSN)}
	r.lacks = st.merge.LeftOut()
	out.Replies = append(out.Replies, st.reply(leg, first.Add(r.ahead()), answer, false))
}

// nextOf is the packet that the member of path sender sends next.
func (st *state) nextOf(sender int) roce.PSN {
	if sender == st.active {
		return st.merge.NextPSN()
	}
	return st.senderState(sender).NextPSN
}

// isRequest reports whether question ev of path sender is a request for the turn. Only boxes make
// any: a host that does so is not one, and may have no path.
func (st *state) isRequest(sender int, ev *feedback.Event) bool {
	if sender < 0 || st.group.Paths[sender].Box == mft.NoBox {
		return false
	}
	if sender != st.active {
		_, ok := requestAt(ev.PSN.Sub(st.nextOf(sender)))
		return ok
	}
	return ev.PSN.Sub(st.merge.NextPSN()) > feedback.Window
}
