package sim

import (
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// In a tree the members at all boxes may take turns. Then each link carries the packets of several
// sources, in both directions, and a box has its source behind any of its ports. Each box stores
// the turns of its own group, as in turn.go, and may crash at each step of that.

// sequence is all packets that a link carries in one direction, in the order of their PSNs.
type sequence struct {
	first  roce.PSN
	pieces []piece
}

// piece is packets of one source that follow each other.
type piece struct {
	stream, from, packets int
}

// length is how many packets the link has carried.
func (s *sequence) length() (n int) {
	for _, p := range s.pieces {
		n += p.packets
	}
	return n
}

// find returns the place of a packet in the sequence, or -1.
func (s *sequence) find(stream, packet int) int {
	at := 0
	for _, p := range s.pieces {
		if p.stream == stream && packet >= p.from && packet < p.from+p.packets {
			return at + packet - p.from
		}
		at += p.packets
	}
	return -1
}

// add puts a packet at a place behind the others, and reports whether it belongs there: it is the
// next one of its source, or a later one, because those between are lost before this link.
func (s *sequence) add(at, stream, packet int) bool {
	from, behind := 0, at-s.length()
	for _, p := range s.pieces {
		if p.stream == stream {
			from = p.from + p.packets
		}
	}
	if behind < 0 || packet-behind != from {
		return false
	}
	if n := len(s.pieces); n > 0 && s.pieces[n-1].stream == stream {
		s.pieces[n-1].packets += behind + 1
	} else {
		s.pieces = append(s.pieces, piece{stream, from, behind + 1})
	}
	return true
}

// upTo calls f with each piece of the first n packets.
func (s *sequence) upTo(n int, f func(piece)) {
	for _, p := range s.pieces {
		if k := min(n, p.packets); k > 0 {
			f(piece{p.stream, p.from, k})
		}
		n -= p.packets
	}
}

// into returns what comes to a box by a port that leads to another box.
func (t *treeRun) into(b *treeBox, port int) *sequence {
	if c := port - len(t.s.Hosts); c != b.number {
		return &t.boxes[c].fromHere
	}
	return &b.fromUp
}

// checkLink fails if copy f, for another box, has a PSN of another packet. A box that has forgotten
// turns gives new packets the PSNs of old ones, and the other box acknowledges them.
func (t *treeRun) checkLink(b *treeBox, port mft.PortID, f *frame) {
	c := int(port) - len(t.s.Hosts)
	if c < 0 || !t.s.TakeTurns {
		return
	}
	to := &t.boxes[c].fromUp
	if c == b.number {
		to = &b.fromHere
	}
	psn := sentPSN(f.data())
	at, stream, packet := int(psn.Sub(to.first)), int(f.stream), int(f.packet)
	found := to.find(stream, packet)
	if found != at && !(found < 0 && to.add(at, stream, packet)) && !f.damaged && !t.isStale(b, to, c, found, at) {
		t.w.fail(Links, "box %d sends packet %d of %v to the other box as packet %d of the link, where it was %d, of %d",
			b.number, packet, &t.w.hosts[stream], at, found, to.length())
	}
}

// isStale reports whether it does no harm that a box sends a packet, which was at place found of a
// link, as the one at a place: it has crashed, and all hosts behind the link have both. That is a
// packet of a turn before the stored one. The box forwards it to ask for what the others have, and
// where it maps to, in front of the turn's first packet, they have executed everything.
func (t *treeRun) isStale(b *treeBox, link *sequence, c, found, at int) bool {
	if t.w.tally[SwitchCrash].Times == 0 || found < 0 || at < 0 || at >= link.length() {
		return false
	}
	has := true
	link.upTo(max(found, at)+1, func(p piece) {
		for h := range t.w.hosts {
			host := &t.w.hosts[h]
			has = has && (!host.counts() || !t.isBehind(b, len(t.s.Hosts)+c, h) || host.next[p.stream] >= p.from+p.packets)
		}
	})
	return has
}

// checkReply compares what the host or the box behind a port is about to hear with what all hosts
// have that are not behind that port. f is the frame that is answered, or nil.
func (t *treeRun) checkReply(b *treeBox, r *dataplane.Reply, f *frame) {
	w, port := &t.w, int(r.Leg.Port)
	switch {
	case r.Question:
		return
	case port < len(t.s.Hosts):
		w.box.core, w.group = b.core, b.group
		w.checkReply(r)
		return
	}
	link, place := t.into(b, port), &b.places[port]
	n, s := int(r.PSN.Sub(link.first)), r.AETH.Syndrome
	if n >= link.length()+feedback.Window {
		return // the box yields
	}
	acked := n
	if !s.IsACK() {
		acked--
	}
	if first := b.asksFor[port]; first != nowhere {
		if b.asksFor[port] = nowhere; s.IsACK() || n != first {
			w.fail(Place, "box %d: %v of packet %d of the link, where packet %d was to be asked for", b.number, s, n, first)
		}
	}
	ahead := (t.s.TakeTurns || b.maps.once) && s.IsACK() && n < link.length() // a box has no place: see feedback.Group.Relay
	at := place.at()
	if s.IsFatal() { // see world.checkReply
		at = place.last
	}
	if n > at && !ahead && !(place.sentBack(n) && (s == roce.NAKSequence || s.IsRNR())) && !t.mayCall(b, port, n, s) {
		w.fail(Place, "box %d: %v of packet %d of the link, and what sends to it is at %d", b.number, s, n, at)
	}
	whole, misread := 0, 0
	seen := make([]bool, len(w.hosts))
	link.upTo(acked+1, func(p piece) {
		packet, source := p.from+p.packets-1, &w.hosts[p.stream]
		if !seen[p.stream] {
			seen[p.stream], misread = true, misread+source.misread
		}
		for h := range w.hosts {
			if t.isBehind(b, port, h) || !w.hosts[h].counts() {
				continue
			}
			if next := max(w.hosts[h].next[p.stream], w.hosts[h].spared); next <= packet {
				w.fail(Truth, "box %d: %v of packet %d of %v, and %v executes packet %d next", b.number, s, packet, source, &w.hosts[h], next)
			}
		}
		whole += source.plan.messagesBefore(packet+1) - source.plan.messagesBefore(p.from)
	})
	if int(r.AETH.MSN) < whole-misread { // a damaged packet is counted as it looks
		w.fail(Credits, "box %d: %v of packet %d of the link has MSN %d, and %d messages end before it", b.number, s, n, r.AETH.MSN, whole)
	}
	if s.IsRNR() || s == roce.NAKSequence {
		place.sendBack(n)
	} else if ahead && n >= place.goBack {
		place.goBack = nowhere // it does not come back to what it hears an ACK of
	}
}

// mayCall is world.mayCall for the box behind a port, and a packet of the link.
func (t *treeRun) mayCall(b *treeBox, port, n int, s roce.Syndrome) bool {
	w := &t.w
	if s.IsACK() {
		n++
		b.asksFor[port] = n
	}
	return isCall(s, &b.Policy) && w.tally[SwitchCrash].Times > 0 && n <= t.into(b, port).length() && w.now-b.cameAt[port] >= calledAfter && w.claimedAt() > 0
}

// checkAsked fails if a host or a box is sent the ACK in front of a question, and not the question.
func (t *treeRun) checkAsked(b *treeBox) {
	t.w.checkAsked()
	for port, first := range b.asksFor {
		if first != nowhere {
			t.w.fail(Place, "box %d, port %d: an ACK in front of packet %d of the link, which is not asked for", b.number, port, first)
		}
	}
}

// isBehind reports whether a host is behind a port of a box that leads to another box.
func (t *treeRun) isBehind(b *treeBox, port, host int) bool {
	at := func(x *treeBox) bool {
		for _, h := range x.below {
			if h == host {
				return true
			}
		}
		return false
	}
	if c := port - len(t.s.Hosts); c != b.number {
		return at(&t.boxes[c])
	}
	return !at(b)
}

// waits is what control does with the note that a member waits for its turn.
func (t *treeRun) waits(b *treeBox) {
	w := &t.w
	if !t.s.TakeTurns {
		w.fail(Membership, "box %d: a member waits for its turn without a cause", b.number)
	} else if !w.chanceOf8(w.s.Turns.LostNotes) {
		t.step(b, takesTurn)
	}
}

// begins checks the note that a turn has begun.
func (t *treeRun) begins(b *treeBox, n *dataplane.Note) {
	if !t.s.TakeTurns {
		t.w.fail(Membership, "box %d: %v is the source without a cause", b.number, n.Receiver)
	}
	t.turns++
	if r := t.w.recorder; r != nil {
		r.note(t.w.now, "box %d: %v is the source", b.number, n.Receiver)
	}
}

// step schedules the next step of control at a box, which a crash of the box ends.
func (t *treeRun) step(b *treeBox, kind eventKind) {
	w := &t.w
	w.schedule.add(event{at: w.now + w.turnLag(), kind: kind, host: int32(b.number), index: b.turns.lives})
}

// atControl lets a step of control at a box happen.
func (t *treeRun) atControl(b *treeBox, e *event) {
	w, x := &t.w, &b.turns
	switch {
	case b.crashed > 0 || e.index != x.lives:
		return
	case e.kind == takesTurn && x.next == nil:
		t.atCore(b, func(now feedback.Tick) {
			if next, ok := b.core.NextTurn(now, b.group.ID, &b.outputs); ok {
				x.next = &next
				t.step(b, turnStored)
			}
		})
	case e.kind == turnStored && w.chanceOf8(w.s.Turns.Unstored):
		t.beginTurn(b, false)
	case e.kind == turnStored:
		x.before, x.stored = x.stored, asStored(*x.next)
		t.step(b, turnBegins)
	case e.kind == turnBegins:
		t.beginTurn(b, true)
	}
	if t.crashes > 0 && w.chanceOf8(w.s.Turns.CrashedSteps) {
		t.crashes--
		w.tally[SwitchCrash].Times++
		t.crash(b, 1)
		away := time.Duration(1 + w.frameRNG.Int64N(int64(3*w.s.ackTimeout())))
		w.schedule.add(event{at: w.now + away, kind: faultEnds, index: int32(-1 - b.number)})
	}
}

func (t *treeRun) beginTurn(b *treeBox, granted bool) {
	b.turns.next = nil
	t.atCore(b, func(feedback.Tick) { b.core.BeginTurn(b.group.ID, granted, &b.outputs) })
}

// atCore lets control ask the core of a box for something, and sends what is due then.
func (t *treeRun) atCore(b *treeBox, f func(now feedback.Tick)) {
	b.outputs.Reset()
	f(feedback.Tick(t.w.now))
	t.check(b, nil)
	t.deliver(b, nil)
	b.core.PutBack()
	t.replay(b)
	t.keepTime(b)
}

// replay lets the core of a box handle the packets with which a turn begins.
func (t *treeRun) replay(b *treeBox) {
	w := &t.w
	for b.core.Kept(feedback.Tick(w.now), &b.pool, b.replayed[:]) > 0 {
		kept := &b.replayed[0]
		i := int32(kept.Chunks[0])
		f := w.pool.frames[i]
		delete(b.pool.kept, i)
		f.retained = false
		w.pool.retained--
		t.present(b, f, kept.Group, kept.Kind, kept.Port)
		b.outputs.Reset()
		t.decide(b, i)
	}
}
