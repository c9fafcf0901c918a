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
// joined, the link takes no part, because nobody knows what it has got. Where programs have to
// confirm, the newcomer waits until they have: it joins with the first message after that.

// mayJoin reports whether Join number k can happen now. Control at the box that publishes the
// newcomer has to run, and at a box that joins, else it is tried again. Who was to leave before the
// join does not come.
func (t *treeRun) mayJoin(k int) bool {
	w, n := &t.w, t.s.Timed[k].Host
	standing, down := *t.standingOf(n), t.boxes[t.boxOf(n)].crashed
	if hosts := len(t.s.Hosts); n >= hosts {
		down += t.boxes[n-hosts].crashed
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

// comes lets a host, or a box with everybody below it, join the group of the box that has it as a
// receiver. If their programs are not ready, control publishes the newcomer as one that waits.
func (t *treeRun) comes(f *Timed) {
	as, n := joining, f.Host
	if f.For > 0 {
		as = unconfirmed
		for _, h := range t.with(n) {
			t.w.hosts[h].unready = true
		}
	}
	t.enter(n, as)
}

// confirm lets the programs of a host, or of all hosts below a box, say that their queue pairs are
// ready. Where the box that joins does not run, the box above hears it when that one is back. If
// the box above crashes before it hears it, the newcomer takes no part, as one that joins.
func (t *treeRun) confirm(n int) {
	hosts := len(t.s.Hosts)
	for _, h := range t.with(n) {
		t.w.hosts[h].unready = false
	}
	switch {
	case *t.standingOf(n) != unconfirmed: // or it has joined before, because nobody else was left
	case n >= hosts && t.boxes[n-hosts].crashed > 0:
		if !t.w.over() {
			t.w.schedule.add(event{at: t.w.now + confirmAgain, kind: confirms, host: int32(n)})
		}
	default:
		t.enter(n, joining)
	}
}

// standingOf is how a host, or the box with this link number, takes part in the group that has it
// as a receiver.
func (t *treeRun) standingOf(n int) *membership {
	if hosts := len(t.s.Hosts); n >= hosts {
		return &t.boxes[n-hosts].standing
	}
	return &t.own[n]
}

// with returns a host, or the hosts below the box with this link number.
func (t *treeRun) with(n int) []int {
	if hosts := len(t.s.Hosts); n >= hosts {
		return t.boxes[n-hosts].below
	}
	return []int{n}
}

// enter lets control publish how a host, or the box with this link number, takes part.
func (t *treeRun) enter(n int, as membership) {
	*t.standingOf(n) = as
	t.recount()
	t.publish(&t.boxes[t.boxOf(n)])
}

// needsWaiting reports whether a box has nobody left without those that wait.
func (t *treeRun) needsWaiting(b *treeBox) bool {
	stays := func(m membership) bool { return m == member || m == joining }
	for _, n := range b.hosts {
		if h := &t.w.hosts[n]; stays(t.own[n]) && !h.fatalHeard {
			return false
		}
	}
	return !slices.ContainsFunc(t.s.below(b.number), func(c int) bool { return stays(t.boxes[c].standing) && !t.boxes[c].ended })
}

// checkReady fails if a box sends a copy to another one before the programs below that are ready.
func (t *treeRun) checkReady(b *treeBox, copies []dataplane.Copy) {
	for k := range copies {
		for _, n := range t.s.below(b.number) {
			if c := &t.boxes[n]; c.standing == unconfirmed && t.endOf(c) == copies[k].Path.Dst && copies[k].Path.DestQPN == t.linkQPN(n, 1, c.upper) {
				t.w.fail(Membership, "box %d: a copy for box %d, below which programs are not ready", b.number, n)
			}
		}
	}
}

// joined checks the note that a host of a box, or the link to another box, has joined with packet
// f. Who shares is decided anew when control hears of it.
func (t *treeRun) joined(b *treeBox, n *dataplane.Note, f *frame) {
	w := &t.w
	h, c := t.whoIs(b, n)
	may := func(m membership) bool { return m == joining || m == unconfirmed && t.needsWaiting(b) }
	came := h != nil && may(t.own[h.number]) || c != nil && may(c.standing)
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
		case c.standing == joining || c.standing == unconfirmed:
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
