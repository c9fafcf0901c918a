package sim

import (
	"slices"

	"github.com/rocast/rocast/feedback"
)

// A receiver that moves to another box comes behind a link that the group may have already. What
// control does then, it does box by box, and the time between is drawn (Timed.For):
//
//  1. The lowest box that had the receiver below all the time hears from the old box whether that
//     goes on without the receiver. Then the receiver takes part nowhere.
//  2. Each box from the new one up to the last one that lacked the receiver begins its group again,
//     as after a restart, with the receiver and with another queue pair for its link up.
//  3. The lowest box that had the receiver below hears again. If it has to go on without the
//     receiver, or without the new link, the boxes of step 2 begin again without the receiver.
//  4. It begins again itself with the new link.
//  5. The old box lets go of the receiver.
//
// If the old box goes on without the receiver between 3 and 4, nobody hears of it in time. Then the
// receiver lacks packets that the source does not send again, and its new box goes on without it
// when it has been silent there.

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
	steps = append(steps, func() { t.hear(host) })
	below := -1 // the box from which the step before came
	for _, n := range append(slices.Clone(next), top) {
		b, child := &t.boxes[n], below
		if n == top {
			steps = append(steps, func() {
				if t.hear(host); t.own[host] != left && (child < 0 || t.boxes[child].standing == member) {
					return
				}
				t.undo(host, next)
				if t.move.steps = t.move.steps[1:]; t.own[host] != left { // not the next step
					t.move.steps = t.move.steps[1:] // nor the last one: it stays where it was
				}
			})
		}
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
			} else {
				t.arrives(host, to)
			}
			t.again(b)
		})
		below = n
	}
	return append(steps, func() {
		t.forget(host, old)
		if len(old) > 0 {
			t.letGo(&t.boxes[from], host)
		}
	})
}

// hear lets control hear that the box of a host goes on without it.
func (t *treeRun) hear(host int) {
	if t.own[host] == evicted {
		t.own[host] = left
		t.recount()
	}
}

// undo lets boxes to which a host was to come begin again without it, by the links that they had.
func (t *treeRun) undo(host int, next []int) {
	t.forget(host, next)
	for k, n := range next {
		b := &t.boxes[n]
		b.hosts = slices.DeleteFunc(b.hosts, func(h int) bool { return h == host })
		if !t.keepsLinks {
			b.lower--
		}
		if k < len(next)-1 {
			b.upper = b.lower
		}
		t.again(b)
	}
}

// arrives notes that a host counts at another box from now on. What was acknowledged without it is
// not sent again.
func (t *treeRun) arrives(host, to int) {
	from := t.at[host]
	if t.at[host] = to; t.own[host] == evicted {
		t.own[host] = member
		t.spare([]int{host})
		t.forget(host, t.waysBelow(from, to))
	}
	t.recount()
}

// forget notes that a host is no longer below some boxes.
func (t *treeRun) forget(host int, boxes []int) {
	for _, n := range boxes {
		b := &t.boxes[n]
		b.below = slices.DeleteFunc(b.below, func(h int) bool { return h == host })
	}
}

// waysUp returns a box and the boxes above it, the root last.
func (t *treeRun) waysUp(box int) (boxes []int) {
	for ; box > 0; box = t.s.Boxes[box].Parent {
		boxes = append(boxes, box)
	}
	return append(boxes, 0)
}

// waysBelow returns a box and the boxes above it below which another box is not.
func (t *treeRun) waysBelow(box, other int) []int {
	return slices.DeleteFunc(t.waysUp(box), func(b int) bool { return slices.Contains(t.waysUp(other), b) })
}

// again begins the group of a box again, as after a restart. Control knows who is out.
func (t *treeRun) again(b *treeBox) {
	t.recalls = true
	t.crash(b, 1)
	t.crash(b, -1)
	t.recalls = false
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
