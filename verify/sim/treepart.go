package sim

import (
	"slices"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// In a tree each box takes part in the group of the box above, and each host in that of its box. So
// a host counts as long as it counts at its box, and its box and each one above that count. A box
// evicts a host of its own, and goes on. One that has nobody left tells that upwards, or is silent
// itself, and is evicted there with everybody below it.

// recount makes each host take part as its box, and those above, say.
func (t *treeRun) recount() {
	for h := 1; h < len(t.own); h++ {
		t.w.hosts[h].receiver.membership = t.takesPart(h)
	}
}

// takesPart returns how a host takes part: as its box has it, or as a box above has the box below
// that leads to it. A host that has left does not come back with its box.
func (t *treeRun) takesPart(h int) membership {
	part := t.own[h]
	if part == left {
		return left
	}
	for _, n := range t.waysUp(t.at[h]) {
		if s := t.boxes[n].standing; s != member {
			part = s
		}
	}
	return part
}

// whoIs returns the host or the box to which a note of a box belongs, if it is one of them.
func (t *treeRun) whoIs(b *treeBox, n *dataplane.Note) (*host, *treeBox) {
	for i := range t.boxes {
		c := &t.boxes[i]
		if i > 0 && c.Parent == b.number && t.endOf(c) == n.Receiver && t.linkQPN(i, 0, c.upper) == n.RemoteQPN {
			return nil, c
		}
	}
	return t.w.hostAtIP(n.Receiver), nil
}

// befalls lets a fault of a host begin (n is 1) or end (n is -1).
func (t *treeRun) befalls(h *host, kind Fault, n int) {
	switch b := &t.boxes[t.at[h.number]]; kind {
	case KeyLost, ReceiverCrash:
		t.w.endReceiver(h, kind)
	case Leave:
		t.own[h.number] = left
		t.recount()
		t.publish(b)
	default:
		afflict(h, kind, n)
		t.w.repay(h)
	}
}

// comesOn notes how far the answers of who is behind a port have come, by the one that a box has
// taken.
func (t *treeRun) comesOn(b *treeBox) {
	d := &b.frame
	if h, c := t.answers(b); h != nil {
		t.w.noteProgress(h, d)
	} else if c != nil {
		if acked := acknowledged(d, c.DownPSN); acked > c.acked {
			c.acked, c.cameOn = acked, t.w.now
		}
	}
}

// answers returns the host or the box below from which the frame comes that a box handles, if it is
// one of them.
func (t *treeRun) answers(b *treeBox) (*host, *treeBox) {
	d := &b.frame
	if port := int(d.Port); port < len(t.s.Hosts) {
		return &t.w.hosts[port], nil
	}
	for i := range t.boxes {
		if c := &t.boxes[i]; i > 0 && c.Parent == b.number && d.View.SrcIP(d.Head()) == t.endOf(c) {
			return nil, c
		}
	}
	return nil, nil
}

// isEnded reports whether the frame that a box handles comes from one without whom it goes on, or
// of whom it has taken a fatal NAK.
func (t *treeRun) isEnded(b *treeBox) bool {
	h, c := t.answers(b)
	return h != nil && (t.own[h.number] == evicted || h.fatalHeard) || c != nil && (c.standing == evicted || c.ended)
}

// isOut checks the note that a box goes on without a host or without a box below it, or has taken a
// fatal NAK.
func (t *treeRun) isOut(b *treeBox, n *dataplane.Note) {
	w, p := &t.w, &b.Policy
	h, c := t.whoIs(b, n)
	fatal, at := false, time.Duration(0)
	switch {
	case h == nil && c == nil:
		w.fail(Membership, "box %d: %v is %v, and is neither a host nor a box here", b.number, n.Receiver, n.What)
		return
	case h != nil && t.at[h.number] != b.number: // it has moved, and this box is told soon
		t.forget(h.number, t.waysBelow(b.number, t.at[h.number]))
		return
	case h != nil:
		fatal, at = h.qp.State() == rnic.StateError, h.progressAt
	default:
		fatal, at = c.ended || n.What == feedback.NoteFatal && t.someoneEnded(c), c.cameOn
	}
	silent := p.Evict && p.SilentAfter > 0 && w.now-at >= p.SilentAfter
	empty := p.Evict && c != nil && c.ended && t.wellBelow(c) == nil
	switch {
	case n.What == feedback.NoteFatal && fatal:
		if h != nil {
			h.fatalHeard = true
		} else {
			c.ended = true
		}
		return
	case n.What != feedback.NoteEvicted || !(p.OnFatal == feedback.FatalEvict && fatal || silent || empty):
		w.fail(Membership, "box %d: %v is %v without a cause", b.number, n.Receiver, n.What)
		return
	case h != nil:
		t.own[h.number], h.outAt = evicted, w.now
	default:
		if well := t.wellBelow(c); well != nil && (c.ended || t.undisturbed()) {
			w.fail(Membership, "box %d evicts box %d, and %v below it is well", b.number, c.number, well)
		}
		c.standing, c.outAt = evicted, w.now
		t.shareSoon(b)
	}
	if r := w.recorder; r != nil {
		r.note(w.now, "box %d: %v is evicted", b.number, n.Receiver)
	}
	t.recount()
}

// someoneEnded reports whether the queue pair of a host below a box has ended, or nobody below it
// answers.
func (t *treeRun) someoneEnded(c *treeBox) bool {
	return t.wellBelow(c) == nil || slices.ContainsFunc(c.below, func(h int) bool { return t.w.hosts[h].qp.State() == rnic.StateError })
}

// wellBelow returns a host below a box that counts there and answers, or nil.
func (t *treeRun) wellBelow(c *treeBox) *host {
	for _, n := range c.below {
		if h := &t.w.hosts[n]; h.counts() && !h.takesNothing() && h.qp.State() == rnic.StateReady {
			return h
		}
	}
	return nil
}

// undisturbed reports whether nothing has happened that makes a box with a healthy host silent.
func (t *treeRun) undisturbed() bool {
	for kind, n := range t.w.tally {
		switch Fault(kind) {
		case KeyLost, ReceiverCrash, Leave, MemoryChange, EdgeDies, CopiesOwn:
		default:
			if n != (FaultCount{}) {
				return false
			}
		}
	}
	return true
}

// recallHosts notes what control of a box that crashes has stored of its hosts, as recallBoxes.
func (t *treeRun) recallHosts(b *treeBox) {
	source := &t.w.hosts[0]
	for _, n := range b.hosts {
		switch h := &t.w.hosts[n]; {
		case t.at[n] != b.number: // it moves
		case t.own[n] == joining || t.own[n] == unconfirmed:
			t.own[n] = left
		case t.own[n] == evicted:
			if t.own[n] = t.recalled(h.outAt); t.own[n] == member {
				t.spare([]int{n})
			}
		case t.own[n] == member && h.from[0] > b.since:
			h.joinedAt = h.from[0] - b.since
			source.misread = max(source.misread, source.plan.messagesBefore(h.from[0]))
		}
	}
}

// spare lets hosts lack what was sent until now: boxes above have heard of it without them.
func (t *treeRun) spare(hosts []int) {
	for _, h := range hosts {
		t.w.hosts[h].spared = t.w.hosts[0].highest
	}
}

// recalled is how one who was evicted takes part behind a crash: he has left if control had the
// time to store that, else he counts again.
func (t *treeRun) recalled(outAt time.Duration) membership {
	if after := t.s.StoreAfter; t.recalls || after > 0 && t.w.now-outAt >= after {
		return left
	}
	return member
}
