package dataplane

import (
	"slices"

	"github.com/rocast/rocast/feedback"
)

// rotation is groups that are visited one after the other. A round begins every period and visits
// each group once.
type rotation struct {
	groups  []*state
	visited int           // in this round
	next    feedback.Tick // the next round begins then, or later
}

// tickGroups bounds the groups that one call of visit visits, so that frames do not wait for all of
// them.
const tickGroups = 128

func (r *rotation) add(st *state) { r.groups = append(r.groups, st) }

// addOnce adds a group unless it is there.
func (r *rotation) addOnce(st *state) {
	if !slices.Contains(r.groups, st) {
		r.add(st)
	}
}

// remove takes a group out if it is there. The groups behind it are visited in the same round.
func (r *rotation) remove(st *state) {
	i := slices.Index(r.groups, st)
	if i < 0 {
		return
	}
	r.groups = slices.Delete(r.groups, i, i+1)
	if i < r.visited {
		r.visited--
	}
}

// visit calls serve for some groups of a round that has begun, and reports whether there were any.
// serve may remove groups.
func (r *rotation) visit(now, period feedback.Tick, serve func(*state)) (some bool) {
	if now < r.next || len(r.groups) == 0 {
		return false
	}
	for range tickGroups {
		if r.visited >= len(r.groups) {
			break
		}
		st := r.groups[r.visited]
		r.visited++
		serve(st)
	}
	if r.visited >= len(r.groups) {
		r.visited, r.next = 0, now+period
	}
	return true
}

// Tick serves some of the groups whose time has come, and reports whether there were any. More of
// them may have to be visited at once.
func (c *Core) Tick(now feedback.Tick, out *Outputs) (some bool) {
	timed := c.timed.visit(now, feedback.TimerPeriod, func(st *state) {
		c.timer(now, st, out)
		c.conclude(now, st, out) // a path may have been evicted
	})
	questioned := c.questioned.visit(now, feedback.AskPeriod, func(st *state) { c.questionAgain(now, st, out) })
	waiting := c.serveWaiting(now, out)
	holders := c.engine.holders.visit(now, giveWayPeriod, func(st *state) {
		switch want := c.engine.wanted(st); {
		case want != WantsNothing:
			c.giveWay(now, st, want, out)
		case st.fan.merges.on: // no answer tells the core how far the receivers are
			c.look(now, st, out)
		}
	})
	return timed || questioned || waiting || holders
}

// Pause is how long the next Tick may wait; 0: for ever. If all that is in flight is carried by an
// engine, it may wait for carriedPeriod at least: feedback usually comes before, and a worker that
// was woken by its timer would have been woken in vain.
func (c *Core) Pause(now feedback.Tick) (pause feedback.Tick) {
	least := feedback.RepairPeriod
	if c.flights[inFlight] == 0 && c.flights[carried] > 0 {
		least = carriedPeriod
	}
	soonest := func(at feedback.Tick) {
		if in := max(at-now, least); pause == 0 || in < pause {
			pause = in
		}
	}
	if len(c.timed.groups) > 0 {
		soonest(c.timed.next)
	}
	if len(c.questioned.groups) > 0 {
		soonest(c.questioned.next)
	}
	if w := c.repair.waiting.byDue; len(w) > 0 {
		soonest(w[0].held.due)
	}
	return pause
}
