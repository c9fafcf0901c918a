package sim

import (
	"slices"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// A box may join a running group, with everybody below it, and leave again. Control at the box
// below makes the branch first, and then the box above publishes the link as one that joins: what
// the link carries begins with the source's next message (feedback's rule for a fresh queue pair).
// Control at the box above stores with which packet. If that box crashes before the link has
// joined, the link takes no part, because nobody knows what it has got.

// mayJoin reports whether Join number k can happen now. Control at the box that publishes the
// newcomer has to run, and at a box that joins, else it is tried again. Who was to leave before the
// join does not come.
func (t *treeRun) mayJoin(k int) bool {
	w, n, down := &t.w, t.s.Timed[k].Host, 0
	var standing membership
	if hosts := len(t.s.Hosts); n < hosts {
		standing, down = t.own[n], t.boxes[t.at[n]].crashed
	} else {
		c := &t.boxes[n-hosts]
		standing, down = c.standing, c.crashed+t.boxes[c.Parent].crashed
	}
	if standing != outsider || down == 0 {
		return standing == outsider
	}
	if !w.over() {
		w.schedule.add(event{at: w.now + confirmAgain, kind: faultBegins, index: int32(k)})
	}
	return false
}

// mayLeave reports whether Leave number k can happen now. Control decides as ctl/groups does: with
// evict, the last receiver of a box below the root stays inside a message while another one is
// about to join there. The box above asks again until the receiver may leave.
func (t *treeRun) mayLeave(k int) bool {
	w, n := &t.w, t.s.Timed[k].Host
	b := &t.boxes[t.boxOf(n)]
	if b.number == 0 || !b.Policy.Evict || b.crashed > 0 || t.empties {
		return true
	}
	var state *dataplane.GroupState
	t.atCore(b, func(now feedback.Tick) { state = b.core.GroupState(now, b.group, &b.outputs) })
	if state.Between {
		return true
	}
	last, joins := false, false
	for i := range state.Paths {
		path, part := &state.Group.Paths[i], state.Paths[i].Part
		h, c := t.whoIs(b, &dataplane.Note{Receiver: path.Dst, RemoteQPN: path.RemoteQPN})
		leaves := c != nil && t.linkNumber(c.number) == n || h != nil && h.number == n
		switch {
		case leaves:
			last = takesData(part)
		case takesData(part):
			return true
		default:
			joins = joins || part.IsToCome()
		}
	}
	if !last || !joins {
		return true
	}
	if !w.over() {
		w.schedule.add(event{at: w.now + confirmAgain, kind: faultBegins, index: int32(k)})
	}
	return false
}

// boxOf returns the box of which a host, or the box with this link number, is a receiver.
func (t *treeRun) boxOf(n int) int {
	if hosts := len(t.s.Hosts); n >= hosts {
		return t.boxes[n-hosts].Parent
	}
	return t.at[n]
}

// joined checks the note that a host of a box, or the link to another box, has joined with packet
// f. Who shares is decided anew when control hears of it.
func (t *treeRun) joined(b *treeBox, n *dataplane.Note, f *frame) {
	w := &t.w
	h, c := t.whoIs(b, n)
	came := h != nil && t.own[h.number] == joining || c != nil && c.standing == joining
	if !came || f == nil || f.stream == noStream || w.hosts[f.stream].plan.packets[f.packet].offset > 0 {
		w.fail(Membership, "box %d: %v has joined without a cause", b.number, n.Receiver)
		return
	}
	first := int(f.packet)
	if h != nil {
		t.own[h.number], h.progressAt = member, w.now
		h.next[0], h.from[0] = first, first
		t.recount()
		return
	}
	c.standing, c.cameOn = member, w.now
	for i := range t.boxes {
		if x := &t.boxes[i]; slices.Contains(t.waysUp(i), c.number) {
			x.since = first
			x.fromUp.pieces = []piece{{from: x.since, packets: len(w.hosts[0].plan.packets) - x.since}}
		}
	}
	for _, h := range c.below {
		w.hosts[h].next[0], w.hosts[h].from[0] = first, first
	}
	t.recount()
	t.shareSoon(b)
}

// shareSoon lets control of a box hear soon what has become of the boxes below it.
func (t *treeRun) shareSoon(b *treeBox) {
	if w := &t.w; b.shares.racks != nil {
		w.schedule.add(event{at: w.now + time.Duration(w.frameRNG.Int64N(int64(w.s.ackTimeout()))), kind: sharesAnew, host: int32(b.number)})
	}
}

// recallBoxes notes what control has stored of the boxes below one that crashes: who is out, and
// with which packet each has joined, and not how many messages came before.
func (t *treeRun) recallBoxes(b *treeBox) {
	for i := range t.boxes {
		switch c := &t.boxes[i]; {
		case i == 0 || c.Parent != b.number:
		case c.standing == joining:
			c.standing = left
		case c.standing == evicted:
			if c.standing = t.recalled(c.outAt); c.standing == member {
				t.spare(c.below)
			}
		case c.standing == member && c.since > b.since:
			source := &t.w.hosts[0]
			c.stored = c.since - b.since
			source.misread = max(source.misread, source.plan.messagesBefore(c.since))
		}
		t.boxes[i].ended = t.boxes[i].ended && t.boxes[i].Parent != b.number
	}
}
