package sim

import (
	"slices"
	"time"

	"github.com/rocast/rocast/dataplane"
)

// A box may join a running group, with everybody below it, and leave again. Control at the box
// below makes the branch first, and then the box above publishes the link as one that joins: what
// the link carries begins with the source's next message (feedback's rule for a fresh queue pair).
// Control at the box above stores with which packet. If that box crashes before the link has
// joined, the link takes no part, because nobody knows what it has got.

// mayJoin reports whether Join number k can happen now. Control at both boxes has to run, else it
// is tried again. A box that was to leave before it came does not come.
func (t *treeRun) mayJoin(k int) bool {
	w, c := &t.w, &t.boxes[t.s.Timed[k].Host-len(t.s.Hosts)]
	if c.standing != outsider || c.crashed+t.boxes[c.Parent].crashed == 0 {
		return c.standing == outsider
	}
	if !w.over() {
		w.schedule.add(event{at: w.now + confirmAgain, kind: faultBegins, index: int32(k)})
	}
	return false
}

// stands notes how a box, and everybody below it who has not left, takes part in the group of the
// box above.
func (t *treeRun) stands(c *treeBox, m membership) {
	c.standing = m
	for _, h := range c.below {
		if r := &t.w.hosts[h].receiver; r.membership != left {
			r.membership = m
		}
	}
}

// joined checks the note that the link to a box has joined with packet f. Who shares is decided
// anew when control hears of it.
func (t *treeRun) joined(b *treeBox, n *dataplane.Note, f *frame) {
	w, at := &t.w, -1
	for i := range t.boxes {
		c := &t.boxes[i]
		if i > 0 && c.Parent == b.number && c.standing == joining && n.Receiver == t.endOf(c) {
			at = i
		}
	}
	if at < 0 || f == nil || f.stream == noStream || w.hosts[f.stream].plan.packets[f.packet].offset > 0 {
		w.fail(Membership, "box %d: %v has joined without a cause", b.number, n.Receiver)
		return
	}
	t.stands(&t.boxes[at], member)
	for i := range t.boxes {
		if x := &t.boxes[i]; slices.Contains(t.waysUp(i), at) {
			x.since = int(f.packet)
			x.fromUp.pieces = []piece{{from: x.since, packets: len(w.hosts[0].plan.packets) - x.since}}
		}
	}
	for _, h := range t.boxes[at].below {
		w.hosts[h].next[0], w.hosts[h].from[0] = int(f.packet), int(f.packet)
	}
	if b.shares.racks != nil {
		w.schedule.add(event{at: w.now + time.Duration(w.frameRNG.Int64N(int64(w.s.ackTimeout()))), kind: sharesAnew, host: int32(b.number)})
	}
}

// recallBoxes notes what control has stored of the boxes below one that crashes: with which packet
// each has joined, and not how many messages came before.
func (t *treeRun) recallBoxes(b *treeBox) {
	for i := range t.boxes {
		switch c := &t.boxes[i]; {
		case i == 0 || c.Parent != b.number:
		case c.standing == joining:
			t.stands(c, left)
		case c.standing == member && c.since > b.since:
			source := &t.w.hosts[0]
			c.stored = c.since - b.since
			source.misread = max(source.misread, source.plan.messagesBefore(c.since))
		}
	}
}
