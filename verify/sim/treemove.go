package sim

import (
	"slices"

	"github.com/rocast/rocast/feedback"
)

// A receiver that moves to another box comes behind a link that the group may have already. What
// control does then, it does box by box, and the time between is drawn (Timed.For):
//
//  1. Each box from the new one up to the last one that lacked the receiver begins its group again,
//     as after a restart, with the receiver and with another queue pair for its link up.
//  2. The lowest box that had the receiver below all the time does the same with the new link.
//  3. The old box lets go of the receiver.

// move is a receiver that moves, while control follows it.
type move struct {
	fault int // its number in Timed
	steps []func()
}

// unplug begins a move: the cable of a host leads to another box at once.
func (t *treeRun) unplug(k int) {
	f := &t.s.Timed[k]
	t.cable[f.Host], t.hasMoved[f.Host] = f.To, true
}

// follow lets control take the next step of move k, or of the one that is under way.
func (t *treeRun) follow(k int) {
	if t.move == nil {
		t.move = &move{k, t.stepsOf(t.s.Timed[k].Host, t.cable[t.s.Timed[k].Host])}
	}
	if t.move.fault == k {
		if len(t.move.steps) == 0 {
			t.move = nil
			return
		}
		t.move.steps[0]()
		t.move.steps = t.move.steps[1:]
	}
	f := &t.s.Timed[k]
	t.w.schedule.add(event{at: t.w.now + max(f.For, 1), kind: faultEnds, index: int32(k)})
}

// stepsOf returns what control does for a host that comes to a box.
func (t *treeRun) stepsOf(host, to int) (steps []func()) {
	from := t.at[host]
	if from == to {
		return nil
	}
	old, next := t.waysUp(from), t.waysUp(to)
	top := next[slices.IndexFunc(next, func(b int) bool { return slices.Contains(old, b) })]
	old, next = old[:slices.Index(old, top)], next[:slices.Index(next, top)]
	below := -1 // the box from which the step before came
	for _, n := range append(slices.Clone(next), top) {
		b, child := &t.boxes[n], below
		steps = append(steps, func() {
			if child >= 0 {
				t.boxes[child].upper = t.boxes[child].lower
			}
			b.hosts = slices.DeleteFunc(b.hosts, func(h int) bool { return h == host }) // if it was here
			if n == to {
				b.hosts = append(b.hosts, host)
			}
			if n != top {
				b.below = append(b.below, host)
				if !t.keepsLinks {
					b.lower++
				}
			}
			t.again(b)
		})
		below = n
	}
	return append(steps, func() {
		t.at[host] = to
		for _, n := range old {
			b := &t.boxes[n]
			b.below = slices.DeleteFunc(b.below, func(h int) bool { return h == host })
		}
		if len(old) > 0 {
			t.letGo(&t.boxes[from], host)
		}
	})
}

// waysUp returns a box and the boxes above it, the root last.
func (t *treeRun) waysUp(box int) (boxes []int) {
	for ; box > 0; box = t.s.Boxes[box].Parent {
		boxes = append(boxes, box)
	}
	return append(boxes, 0)
}

// again begins the group of a box again, as after a restart.
func (t *treeRun) again(b *treeBox) {
	t.crash(b, 1)
	t.crash(b, -1)
}

// letGo lets a receiver leave the group of a box.
func (t *treeRun) letGo(b *treeBox, host int) {
	b.hosts = slices.DeleteFunc(b.hosts, func(h int) bool { return h == host })
	t.publish(b)
}

// publish lets a box have the next version of its group.
func (t *treeRun) publish(b *treeBox) {
	if b.crashed > 0 {
		return
	}
	next := t.makeGroup(b, b.group)
	next.Restored = b.group.Restored
	if b.shares.racks != nil {
		t.share(b, next)
	}
	table, err := b.table.Replace(b.group.ID, next)
	if err != nil {
		panic("sim: change the group: " + err.Error()) // at least one member stays
	}
	b.group, b.table = next, table
	if b.number == 0 {
		t.w.group = next
	}
	t.atCore(b, func(now feedback.Tick) { b.core.Adopt(now, next, &b.outputs) })
	if b.shares.racks != nil {
		t.answer(b)
	}
}
