package sim

import (
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// engine is the kernel's part of the switch, and what waits in front of it and of the core. Both
// run at the same time, so the kernel may take frames while the core is at work:
//
//	frame ─▶ port ─poll─▶ kernel ─▶ copies
//	                        └─▶ ring ─look─▶ core ─▶ copies, replies ─arm─▶ the group may be armed again
type engine struct {
	*porttest.FanOut
	w       *world
	ports   [][]int32 // by host: frames that the kernel has not seen
	polls   []bool    // by host: a poll event is scheduled
	ring    []waiting // frames that the core has not seen
	looks   bool      // a look or an arm event is scheduled
	inCore  bool      // the core is handling a frame
	between []shown   // packets carried since the core began to handle the frame
	since   int       // packets carried that the core has not been told of
	life    int32     // how often the core was started: events of an earlier one mean nothing
	until   time.Duration
	carries pass
}

// waiting is a classified frame in the core's ring.
type waiting struct {
	host, frame int32
	group       mft.GroupID
	kind        dataplane.Kind
}

// shown is a packet that the switch took, by which a host shows its place.
type shown struct{ host, packet int }

// EngineCount counts what the engine did in a run.
type EngineCount struct {
	Armed        uint64 // times that the core handed the group over
	Carried      uint64 // packets
	CarriedApart uint64 // those of them that the core missed for a moment: it was handling a frame
	CarriedAlone uint64 // those whose daemon was dead
	Merged       uint64 // ACKs of receivers
	Told         uint64 // ACKs that it sent to the source
	Shared       uint64 // copies for all receivers of a leg, which the core sends
}

// Add adds what the engine did in another run.
func (c *EngineCount) Add(d *EngineCount) {
	c.Armed, c.Carried = c.Armed+d.Armed, c.Carried+d.Carried
	c.CarriedApart, c.CarriedAlone = c.CarriedApart+d.CarriedApart, c.CarriedAlone+d.CarriedAlone
	c.Merged, c.Told, c.Shared = c.Merged+d.Merged, c.Told+d.Told, c.Shared+d.Shared
}

// openEngine makes an engine without groups. Frames that wait at the ports of the one before, if
// there was one in this run, stay there.
func (w *world) openEngine(old *engine) *engine {
	e := &engine{FanOut: porttest.NewFanOut(), w: w, ports: make([][]int32, len(w.hosts)), polls: make([]bool, len(w.hosts))}
	if old != nil && w.now > 0 {
		e.ports, e.polls, e.life = old.ports, old.polls, old.life+1
	}
	e.carries.late, w.box.late = w.s.Engine.CarriedLate, w.s.Engine.CopiedLate
	return e
}

// waiting counts the frames that were not yet handled.
func (e *engine) waiting() (n int) {
	if e == nil {
		return 0
	}
	for _, frames := range e.ports {
		n += len(frames)
	}
	return n + len(e.ring)
}

// lag draws how long something waits.
func (w *world) lag() time.Duration {
	if w.s.Engine.Lag == 0 {
		return 0
	}
	return time.Duration(w.frameRNG.Int64N(int64(w.s.Engine.Lag)))
}

// atPort puts frame i of a host where the kernel finds it.
func (w *world) atPort(h *host, i int32) {
	e := w.box.engine
	e.ports[h.number] = append(e.ports[h.number], i)
	switch {
	case w.s.Engine.Lag == 0:
		w.poll(h)
	case !e.polls[h.number]:
		e.polls[h.number] = true
		w.schedule.add(event{at: w.now + w.lag(), kind: poll, host: int32(h.number)})
	}
}

// atEngine lets one of the events of lag happen.
func (w *world) atEngine(ev *event) {
	e := w.box.engine
	current := w.box.down == 0 && ev.index == e.life
	switch {
	case ev.kind == poll:
		e.polls[ev.host] = false
		w.poll(&w.hosts[ev.host])
	case !current:
	case ev.kind == look:
		w.look()
	case ev.kind == arm:
		w.arm()
		e.looks = false
		w.wake()
	case ev.kind == adopt:
		w.adopt()
	}
}

// poll lets the kernel handle all frames that wait at the port of a host.
func (w *world) poll(h *host) {
	e := w.box.engine
	for len(e.ports[h.number]) > 0 {
		w.atKernel(h)
	}
	if w.s.Engine.Lag > 0 {
		w.wake()
	} else if len(e.ring) > 0 {
		w.look()
	}
}

// atKernel lets the kernel handle the next frame at the port of a host.
func (w *world) atKernel(h *host) {
	b := &w.box
	e := b.engine
	i := e.ports[h.number][0]
	e.ports[h.number] = append(e.ports[h.number][:0], e.ports[h.number][1:]...)
	f, p := w.pool.frames[i], &e.carries
	switch {
	case b.down > 0 && w.now >= e.until:
		w.loseAtSwitch(h, i)
	case !w.classify(&p.frame, h, f):
		b.received++
		w.pool.giveBack(i)
	case w.carry(h, f), w.merge(h, f):
		b.received++
		w.pool.giveBack(i)
	case b.down > 0:
		w.loseAtSwitch(h, i)
	default:
		e.ring = append(e.ring, waiting{int32(h.number), i, p.frame.Group, p.frame.Kind})
	}
}

// carry lets the kernel send frame f to all paths, if it may.
func (w *world) carry(h *host, f *frame) bool {
	e := w.box.engine
	p := &e.carries
	p.outputs.Reset()
	p.ecn = ecnOf(f.data())
	if !e.Carry(&p.frame, &p.outputs) {
		return false
	}
	w.record(&h.toSwitch, f, "carried")
	if w.s.Policy.Repair != feedback.RepairOff {
		w.pool.copied.note(f)
	}
	w.checkCopies(f, p.outputs.Copies)
	w.deliver(p, f)
	w.carried.Carried++
	if e.inCore {
		w.carried.CarriedApart++
	}
	if w.box.down > 0 {
		w.carried.CarriedAlone++
	}
	e.since++
	e.between = append(e.between, shown{h.number, int(f.packet)})
	if !e.inCore {
		w.noteCarried()
	}
	return true
}

// merge lets the kernel merge ACK f of a receiver, if it may.
func (w *world) merge(h *host, f *frame) bool {
	p := &w.box.engine.carries
	p.outputs.Reset()
	if !w.box.engine.Answer(&p.frame, &p.outputs) {
		return false
	}
	w.record(&h.toSwitch, f, "merged by the engine")
	w.carried.Merged++
	w.carried.Told += uint64(len(p.outputs.Replies))
	if f.damaged {
		w.fail(Damaged, "the engine took a damaged answer of %v", h)
	}
	w.noteCarried() // a packet that disarms the group ends the merging before the core sees the packet
	w.noteProgress(h, &p.frame)
	for k := range p.outputs.Replies {
		w.checkHearer(&p.outputs.Replies[k], nil)
		w.checkReply(&p.outputs.Replies[k])
	}
	w.deliver(p, nil)
	return true
}

// noteCarried notes the places that carried packets show. A packet that is carried while the core
// handles a frame comes behind that frame.
func (w *world) noteCarried() {
	e := w.box.engine
	if e == nil {
		return
	}
	for _, s := range e.between {
		h := &w.hosts[s.host]
		h.place.arrive(s.packet)
		h.cameAt = w.now
		h.seen = max(h.seen, s.packet+1)
	}
	e.between = e.between[:0]
}

// learns reports whether the core may have been told of carried packets with its last frame.
func (w *world) learns() bool { return w.box.engine != nil && w.box.engine.since > 0 }

// wake makes the core look at its ring soon, if there is anything in it.
func (w *world) wake() {
	if e := w.box.engine; !e.looks && len(e.ring) > 0 {
		e.looks = true
		w.schedule.add(event{at: w.now + w.lag(), kind: look, index: e.life})
	}
}

// perFrame is the time that a busy core takes for a frame.
const perFrame = 500 * time.Nanosecond

// look lets the core handle a batch. It arms groups afterwards, unless more frames wait: by then
// others may have arrived.
func (w *world) look() {
	e := w.box.engine
	n := len(e.ring)
	if w.s.Engine.Batch > 0 {
		n = min(n, w.s.Engine.Batch)
	}
	for range n {
		at := e.ring[0]
		e.ring = append(e.ring[:0], e.ring[1:]...)
		h, f := &w.hosts[at.host], w.pool.frames[at.frame]
		w.present(&w.box.frame, h, f, at.group, at.kind)
		e.inCore = true
		w.decide(h, at.frame)
		e.inCore, e.since = false, 0
	}
	w.replay()
	switch {
	case w.s.Engine.Lag == 0:
		w.arm()
	case n == w.s.Engine.Batch: // a busy core looks again at once
		w.keepTime()
		w.schedule.add(event{at: w.now + time.Duration(n)*perFrame, kind: look, index: e.life})
	default:
		w.schedule.add(event{at: w.now + w.lag(), kind: arm, index: e.life})
	}
}

// adopt makes the core see the group as it was published last.
func (w *world) adopt() {
	b := &w.box
	b.known = true
	b.outputs.Reset()
	w.notifying = nil
	b.core.Adopt(feedback.Tick(w.now), w.group, &b.outputs)
	w.membersChanged = false
	w.checkOutputs(nil)
	w.deliver(&b.pass, nil)
	b.core.PutBack()
	w.keepTime()
}

// stopEngine is called when the core crashes: frames that wait for the core are lost, and the
// kernel goes on for a while.
func (w *world) stopEngine() {
	e := w.box.engine
	if e == nil {
		return
	}
	for _, at := range e.ring {
		w.loseAtSwitch(&w.hosts[at.host], at.frame)
	}
	e.ring, e.looks, e.life, e.until = e.ring[:0], false, e.life+1, w.now+w.s.Engine.Lingers
}

// meanwhile lets the kernel take frames at this moment, in the middle of what the core does.
func (e *engine) meanwhile() {
	w := e.w
	for w.s.Engine.Lag > 0 && w.frameRNG.IntN(2) == 0 {
		if h := &w.hosts[w.frameRNG.IntN(len(w.hosts))]; len(e.ports[h.number]) > 0 {
			w.atKernel(h)
		}
	}
}

// Arm is part of dataplane.FanOut, like the next ones.
func (e *engine) Arm(id mft.GroupID, b *mft.Block, word dataplane.FanWord, limit roce.PSN) error {
	e.w.carried.Armed++
	e.meanwhile()
	defer e.meanwhile()
	return e.FanOut.Arm(id, b, word, limit)
}

func (e *engine) Load(id mft.GroupID) dataplane.FanWord {
	e.meanwhile()
	defer e.meanwhile()
	return e.FanOut.Load(id)
}

func (e *engine) Merge(id mft.GroupID, at []feedback.Progress, told feedback.Progress, span int32) error {
	e.meanwhile()
	defer e.meanwhile()
	return e.FanOut.Merge(id, at, told, span)
}

func (e *engine) EndMerge(id mft.GroupID, at []feedback.Progress) (told feedback.Progress) {
	e.meanwhile()
	defer e.meanwhile()
	return e.FanOut.EndMerge(id, at)
}

func (e *engine) Disarm(id mft.GroupID) dataplane.FanWord {
	e.meanwhile()
	return e.FanOut.Disarm(id)
}
