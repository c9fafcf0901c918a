package sim

import (
	"slices"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
)

// beginFault begins timed fault number k.
func (w *world) beginFault(k int) {
	f := &w.s.Timed[k]
	h := &w.hosts[f.Host]
	if f.Kind == SourceChange && h.started {
		return
	}
	w.tally[f.Kind].Times++
	if w.recorder != nil {
		w.recorder.note(w.now, "%v of %s begins", f.Kind, hostName(f.Host))
	}
	switch f.Kind {
	case SwitchCrash:
		if w.box.down++; w.box.down == 1 && w.s.StoreAfter > 0 {
			w.storeOut(w.s.StoreAfter)
		}
		w.stopEngine()
	case ReceiverCrash, KeyLost:
		w.endReceiver(h, f.Kind)
	case Join:
		if f.For == 0 {
			w.change(h, joining)
		} else {
			w.change(h, unconfirmed)
			h.unready = true
		}
	case Leave:
		w.change(h, left)
	case SourceChange:
		w.start(h)
	case SourceLeave:
		h.started = false
		w.change(h, left)
	case FarCrash:
		w.far.down++
	case NextHop:
		w.hops++
		w.publish()
	case MemoryChange:
		w.memories++
		w.publish()
	default:
		afflict(h, f.Kind, 1)
	}
	if f.For > 0 {
		w.schedule.add(event{at: w.now + f.For, kind: faultEnds, index: int32(k)})
	}
}

// endReceiver lets a receiver die, or deregister its memory.
func (w *world) endReceiver(h *host, kind Fault) {
	if kind == ReceiverCrash {
		h.crashed = true
		return
	}
	h.keyLost = true
	for region := range max(1, w.s.Regions) {
		h.regions.Deregister(w.keyOf(h.number, region).RKey)
	}
}

// endFault ends a timed fault.
func (w *world) endFault(f *Timed) {
	h := &w.hosts[f.Host]
	if w.recorder != nil {
		w.recorder.note(w.now, "%v of %s ends", f.Kind, hostName(f.Host))
	}
	switch f.Kind {
	case Join:
		w.confirm(h)
		return
	case FarCrash:
		w.far.down--
		return
	}
	if f.Kind != SwitchCrash {
		afflict(h, f.Kind, -1)
		w.repay(h)
		return
	}
	if w.box.down--; w.box.down > 0 {
		return
	}
	for i := range w.hosts { // its engine knew them until now
		h := &w.hosts[i]
		h.cameAt = w.now
		h.place, h.grant, h.asked, h.calls = unplaced, noGrant, nowhere, calls{}
		if h.qp.Waits() {
			h.asked = h.next[w.active] // and does not ask again
		}
	}
	w.recall()
	w.recallJoins()
	w.recallTurn()
	if w.deserted() {
		w.box.down++
		return
	}
	if err := w.openSwitch(true); err != nil {
		panic("sim: restart the switch: " + err.Error()) // it was opened before
	}
}

// storeOut notes which receivers control has stored as out of the group: those that have been so
// for some time.
func (w *world) storeOut(after time.Duration) {
	for i := range w.hosts {
		h := &w.hosts[i]
		if isOut := h.membership == evicted || h.behind; isOut && w.now-h.outAt >= after {
			h.storedOut = true
		}
	}
}

// recall makes the receivers those of the group that control sets up after a crash. What was not
// stored is forgotten, so that an evicted receiver is waited for again. A member that is out and
// may send keeps its path.
func (w *world) recall() {
	for i := range w.hosts {
		w.hosts[i].behind = w.hosts[i].behind && w.hosts[i].storedOut
		h := &w.hosts[i]
		h.lives = len(h.fatals) > 0 && !h.storedOut && h.qp.State() == rnic.StateReady
		switch {
		case h.storedOut && len(h.Messages) > 0:
		case h.storedOut:
			h.membership = left
		case h.membership == evicted:
			h.membership = member
		case h.membership == joining:
			h.membership = left // it is not known whether it has joined
		}
	}
}

// recallJoins notes where receivers have joined, as control stores it. How many messages came
// before is not stored.
func (w *world) recallJoins() {
	t := w.turns.stored
	if t == nil {
		t = &mft.Turn{}
	}
	stream := w.hostOf(t.Source)
	source, turn := &w.hosts[stream], *t
	turn.Members = slices.Clone(t.Members)
	for i := range w.hosts {
		h := &w.hosts[i]
		if h.membership != member || h.from[stream] == 0 || t.Member(w.qp(i)) != nil {
			continue
		}
		h.open, h.joinedWith = h.from[stream] > source.merged.acked+1, source.plan.first.Add(int32(h.from[stream]))
		source.misread = max(source.misread, source.plan.messagesBefore(h.from[stream]))
		if w.turns.stored == nil {
			h.joinedAt = h.from[stream]
			continue
		}
		plan := &w.s.Hosts[i]
		turn.Members = append(turn.Members, mft.Standing{
			QP: w.qp(i), Expects: plan.RecvPSN.Add(turn.Sender().NextPSN.Sub(h.joinedWith)), Sender: mft.Sender{NextPSN: plan.SendPSN},
		})
	}
	if w.turns.stored != nil {
		w.turns.stored = &turn
	}
}

// afflict begins (n is 1) or ends (n is -1) a fault of a host.
func afflict(h *host, kind Fault, n int) {
	switch kind {
	case Burst:
		h.toSwitch.burst += n
		h.toHost.burst += n
	case Cut:
		h.toSwitch.cut += n
		h.toHost.cut += n
	case SlowHost:
		h.toHost.slow += n
	case RNRStorm:
		h.storm += n
	case OtherUplink:
		h.away += n
	case EdgeDies:
		h.edge.dead += n
	case CrossTraffic:
		if h.number == 0 {
			h.toSwitch.crossed += n
		} else {
			h.toHost.crossed += n
		}
	}
}

// change makes a receiver a member, or no longer one. As long as the switch has seen nothing of the
// group, a receiver that joins is a member from the beginning.
func (w *world) change(h *host, m membership) {
	if !w.box.known && (m == joining || m == unconfirmed) {
		switch {
		case w.group.Restored:
			return // control is busy with the restart
		case m == joining:
			m = member
		}
	}
	h.membership, w.membersChanged = m, true
	w.publish()
}

// confirmAgain is how long a program waits before it says again that its queue pair is ready.
const confirmAgain = time.Millisecond

// confirm lets the program of a receiver say that its queue pair is ready. It says so again while
// control does not hear it: with the switch control is down too, and busy with a restart for a
// while.
func (w *world) confirm(h *host) {
	h.unready = false
	switch {
	case h.membership != unconfirmed: // it has joined before, because too few were left, or it has left
	case w.box.down > 0 || !w.box.known && w.group.Restored:
		if !w.over() {
			w.schedule.add(event{at: w.now + confirmAgain, kind: confirms, host: int32(h.number)})
		}
	default:
		w.change(h, joining)
	}
}

// deserted reports whether no receiver is left. Such a group is carried no more, and its source
// ends by its retries.
func (w *world) deserted() bool {
	return !slices.ContainsFunc(w.hosts, func(h host) bool { return h.membership != outsider && h.membership != left })
}

// publish publishes the group as it is now. The core sees that with the next frame. A core with an
// engine in front may get no frame for long, so it is told.
func (w *world) publish() {
	if w.deserted() {
		w.stopEngine()
		w.box.down++
		return
	}
	if err := w.publishMembers(); err != nil {
		panic("sim: change the group: " + err.Error()) // it has receivers
	}
	if w.box.engine != nil {
		w.schedule.add(event{at: w.now + w.lag(), kind: adopt, index: w.box.engine.life})
	}
}
