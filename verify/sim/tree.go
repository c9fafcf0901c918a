package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// TreeScenario is a run through a tree of boxes. Each box has a group of its own. To the box above
// it is a receiver; to its hosts and to the boxes below it is the source. Hosts[0], the source, is
// at Boxes[0], the root.
//
// In Timed, host number len(Hosts)+b stands for box b as a receiver of the box above, and for the
// link between them. It joins and leaves with everybody below it. The Host of a SwitchCrash,
// CopiesOwn or MemoryChange is a box.
type TreeScenario struct {
	Scenario
	Boxes []TreeBox
	At    []int // the box of each host
	// TakeTurns: every host with messages is a receiver too, and so is each box to the others.
	TakeTurns bool
	Racks     []Rack
}

// TreeBox is one box, and its link to the box above.
type TreeBox struct {
	Parent   int // a box with a lower number; the root has none
	Up, Down Link
	DownPSN  roce.PSN // the first PSN that the box above sends
	UpPSN    roce.PSN // the first PSN that this box sends to the one above, if members take turns
	Outside  bool     // it is no receiver of the box above until a Join, and neither is who is below it
	FanOut   bool
	Policy   feedback.Policy
	Chunks   int // as Scenario.RepairChunks
}

// String describes the scenario.
func (s *TreeScenario) String() string {
	var b strings.Builder
	b.WriteString(s.Scenario.String())
	fmt.Fprintf(&b, "the hosts are at boxes %v\n", s.At)
	for i := range s.Boxes {
		x := &s.Boxes[i]
		fmt.Fprintf(&b, "box %d below %d: engine %v, outside %v, %d buffers, %+v\n", i, x.Parent, x.FanOut, x.Outside, x.Chunks, x.Policy)
		if i > 0 {
			fmt.Fprintf(&b, "  from PSN %#06x, back from PSN %#06x\n  up   %v\n  down %v\n", uint32(x.DownPSN), uint32(x.UpPSN), &x.Up, &x.Down)
		}
	}
	for i := range s.Racks {
		fmt.Fprintf(&b, "a rack: %+v\n", s.Racks[i])
	}
	return b.String()
}

// treeRun is a run of a TreeScenario. It has the hosts, frames, links and time of a world; the box
// of the world is not used, except that its core is the root's.
type treeRun struct {
	w      world
	s      *TreeScenario
	boxes  []treeBox
	edited dataplane.Frame
	meddle func(*treeBox, *frame, dataplane.Reason) // tests only: changes what a box does with a frame

	at         []int        // the box of each host, as control knows
	own        []membership // of each host, in the group of its box: see takesPart
	cable      []int        // the box to which the cable of each host leads
	hasMoved   []bool       // by host
	move       *move        // that control follows now, or nil
	turns      int          // that have begun, at all boxes
	crashes    int          // that Turns may still bring
	legs       int          // generations of racks that were begun
	forgets    bool         // tests only: a restart begins with the turn before the one that was stored last
	recalls    bool         // a box begins again, and control has stored all that it knows
	empties    bool         // tests only: the last receiver of a box leaves although another one joins
	keepsLinks bool         // tests only: a box above a receiver that came keeps the queue pair of its link
}

// treeBox is one box during a run.
type treeBox struct {
	*TreeBox
	number   int
	toParent link
	toBox    link
	core     *dataplane.Core
	fan      *porttest.FanOut // nil: the core gets every frame
	table    *mft.Table
	group    *mft.Group
	pool     boxPool
	crashed  int // faults that keep it from running

	frame    dataplane.Frame
	replayed [1]dataplane.Frame // a packet with which a turn begins
	ecn      uint8
	outputs  dataplane.Outputs
	ticksAt  time.Duration // when its next tick event is; 0: none is scheduled

	cameAt   []time.Duration // by port: when a packet came by it last
	asksFor  []int           // by port: as sender.asksFor
	places   []place         // by port: of what sends to this box by it, as far as this box can know
	fromUp   sequence        // what the box above has sent to this one
	fromHere sequence        // and this one to the box above
	turns    turns
	copied   [][]int // by stream and packet: how often it was forwarded as a new one since the last crash
	below    []int   // the hosts at this box and at the boxes below
	hosts    []int   // the hosts at this box, as its group has them

	standing membership    // in the group of the box above
	outAt    time.Duration // when the box above has evicted it
	ended    bool          // the box above has taken a fatal NAK of it
	acked    int           // up to here the box above took its acknowledgements, in PSNs of the link
	cameOn   time.Duration // when acked moved last
	memories int           // how often the memory of its group has changed
	since    int           // the packet with which its link began
	stored   int           // the same, as control at the box above knew when that box started

	shares aboveRacks
	maps   inRack

	upper, lower int // which queue pair the box above, and this one, has as its end of the link
}

// boxPool is a pool with the frames that one box retains.
type boxPool struct {
	*pool
	kept   map[int32]bool
	copied copied
}

func (p *boxPool) keep(i int32) {
	p.pool.keep(i)
	p.kept[i] = true
}

func (p *boxPool) Put(f *dataplane.Frame) {
	if !f.Kept { // else the core goes on retaining it
		delete(p.kept, int32(f.Chunks[0]))
	}
	p.pool.Put(f)
}

func (p *boxPool) Load(f *dataplane.Frame, head, rest []byte) bool {
	p.pool.copied, p.copied = p.copied, p.pool.copied
	ok := p.pool.Load(f, head, rest)
	p.pool.copied, p.copied = p.copied, p.pool.copied
	p.kept[int32(f.Chunks[0])] = true
	return ok
}

// crash takes back what the core retained.
func (p *boxPool) crash() {
	for i := range p.pool.frames { // in order: a run is the same every time
		if p.kept[int32(i)] {
			p.release(int32(i))
		}
	}
	clear(p.kept)
	clear(p.copied)
}

// RunTree plays s. The error says why a scenario cannot be set up.
func (r *Runner) RunTree(s TreeScenario) (Result, error) { return r.runTree(&s, nil) }

// ReplayTree is RunTree with the last lines of the story.
func (r *Runner) ReplayTree(s TreeScenario, lines int) (Result, []string, error) {
	record := &recorder{keep: lines}
	result, err := r.runTree(&s, record)
	return result, record.story(), err
}

func (r *Runner) runTree(s *TreeScenario, record *recorder) (Result, error) {
	t := &treeRun{s: s}
	if record != nil {
		record.w, t.w.recorder = &t.w, record
	}
	if err := t.open(); err != nil {
		return Result{}, err
	}
	w := &t.w
	w.play(t.handle, t.finish)
	return Result{
		Failure: w.failure, Status: w.hosts[0].status, Took: w.took, Events: w.events, Hash: w.hash, Tally: w.tally,
		Source: *w.hosts[0].qp.Counters(), Engine: w.carried, CutDeaf: w.cutDeaf,
	}, nil
}

func (t *treeRun) open() error {
	w, s := &t.w, t.s
	w.begin(&s.Scenario)
	w.longestSend = longestSend(&s.Scenario)
	w.hosts, t.boxes = make([]host, len(s.Hosts)), make([]treeBox, len(s.Boxes))
	t.crashes = s.Turns.Crashes
	t.at, t.cable, t.hasMoved = slices.Clone(s.At), slices.Clone(s.At), make([]bool, len(s.At))
	t.own = make([]membership, len(s.At))
	for i := range w.hosts {
		if err := w.openHost(&w.hosts[i], i, &s.Hosts[i]); err != nil {
			return err
		}
	}
	for i := range t.boxes {
		b := &t.boxes[i]
		b.TreeBox, b.number, b.standing = &s.Boxes[i], i, member
		if b.Outside {
			b.standing = outsider
		}
		b.toParent.reset(&b.Up, t.linkNumber(i), true)
		b.toBox.reset(&b.Down, t.linkNumber(i), false)
		for h := range w.hosts {
			b.copied = append(b.copied, make([]int, len(w.hosts[h].plan.packets)))
			b.places = append(b.places, unplaced)
		}
		for range t.boxes {
			b.places = append(b.places, unplaced)
		}
		b.cameAt, b.asksFor = make([]time.Duration, len(b.places)), make([]int, len(b.places))
		b.fromUp, b.fromHere = sequence{first: b.DownPSN}, sequence{first: b.UpPSN}
		if !s.TakeTurns { // a link that gets another queue pair begins with the same packet again
			b.fromUp.pieces = []piece{{packets: len(w.hosts[0].plan.packets)}}
		}
		b.pool = boxPool{pool: &w.pool, kept: map[int32]bool{}, copied: copied{}}
	}
	for h := 1; h < len(s.At); h++ {
		if t.own[h] = member; slices.ContainsFunc(s.Timed, func(f Timed) bool { return f.Kind == Join && f.Host == h }) {
			t.own[h] = outsider
		}
		t.boxes[s.At[h]].hosts = append(t.boxes[s.At[h]].hosts, h)
		for _, b := range t.waysUp(s.At[h]) {
			t.boxes[b].below = append(t.boxes[b].below, h)
		}
	}
	t.recount()
	t.openRacks()
	for i := range t.boxes {
		if err := t.openBox(&t.boxes[i], false); err != nil {
			return err
		}
	}
	for i := range t.boxes {
		t.startRack(&t.boxes[i])
	}
	return nil
}

// linkNumber is the number of a box's link among hosts: see TreeScenario.
func (t *treeRun) linkNumber(box int) int { return len(t.s.Hosts) + box }

// openBox makes a box know its group, and again after a crash.
func (t *treeRun) openBox(b *treeBox, restored bool) error {
	b.group = t.makeGroup(b, new(mft.Group))
	b.group.Restored = restored
	table, err := new(mft.Table).With(b.group)
	if err != nil {
		return err
	}
	b.table, b.fan = table, nil
	t.forgetPlaces(b)
	b.pool.crash()
	for _, copied := range b.copied {
		clear(copied)
	}
	if b.FanOut {
		b.fan = porttest.NewFanOut()
		b.core = dataplane.NewCore(b.fan)
	} else {
		b.core = dataplane.NewCore(nil)
	}
	b.core.RetainUpTo(b.Chunks, &b.pool)
	if b.number == 0 {
		t.w.box.core, t.w.group = b.core, b.group
	}
	return nil
}

// forgetPlaces makes a box know of nobody how far he has come.
func (t *treeRun) forgetPlaces(b *treeBox) {
	for i := range b.places {
		b.places[i], b.asksFor[i] = unplaced, nowhere
	}
	for h, at := range t.at {
		if at == b.number {
			t.w.hosts[h].place, t.w.hosts[h].asksFor = unplaced, nowhere
		}
	}
}

// forgetCalls lets a box that has crashed be called back by no other box any more: it does not know
// of that. Its source hears from it, as from any box that was restarted, what the others have.
func (t *treeRun) forgetCalls(b *treeBox) {
	for i := range t.boxes {
		switch x := &t.boxes[i]; {
		case x.number > 0 && x.Parent == b.number:
			x.places[t.linkNumber(x.number)].goBack = nowhere
		case b.number > 0 && b.Parent == x.number:
			x.places[t.linkNumber(b.number)].goBack = nowhere
		}
	}
}

// makeGroup returns the group that control would build from the group file of a box. was is the
// version before.
func (t *treeRun) makeGroup(b *treeBox, was *mft.Group) *mft.Group {
	w := &t.w
	g := &mft.Group{
		Name: "g", Addressing: t.s.Addressing, IP: w.groupIP(), QPN: groupQPN, PathMTU: t.s.MTUBytes, Policy: b.Policy,
		Source: mft.Source{Leg: w.legOf(0), FirstPSN: t.s.Hosts[0].SendPSN},
	}
	w.memories = b.memories
	g.Memory = w.makeMemory(was.Memory)
	g.KeepsTurns, g.Turn = t.s.TakeTurns, b.turns.stored
	if t.forgets {
		g.Turn = b.turns.before
	}
	through := func(p *mft.Path) mft.Regions {
		same := func(v mft.VirtualRegion) mft.Region { return mft.Region(v) }
		if i := was.FindPath(p.Dst, p.RemoteQPN); i >= 0 {
			return was.Paths[i].Regions.Follow(was.Memory, g.Memory, same)
		}
		return g.Memory.At(same)
	}
	if b.number > 0 {
		g.Source = mft.Source{Leg: t.linkLeg(b.number, 1, b.lower), RemoteQPN: t.linkQPN(b.number, 1, b.lower), FirstPSN: b.DownPSN}
	}
	if b.number == 0 && t.s.Hosts[0].Receiver {
		g.Paths = append(g.Paths, w.makePath(0, g.Memory, was))
	}
	for _, h := range b.hosts {
		if own := t.own[h]; own == outsider || own == left {
			continue
		}
		g.Paths = append(g.Paths, w.makePath(h, g.Memory, was))
		if part := t.own[h].published(); part != feedback.PartActive {
			g.Parts = append(g.Parts, mft.Part{QP: g.Paths[len(g.Paths)-1].QP(), Part: part})
		}
	}
	if b.number > 0 && t.s.TakeTurns {
		p := mft.Path{Leg: g.Source.Leg, RemoteQPN: g.Source.RemoteQPN, FirstPSN: b.UpPSN, SendPSN: b.DownPSN, Sends: true, Box: mft.BoxAbove}
		p.Regions = through(&p)
		g.Paths = append(g.Paths, p)
	}
	if b.maps.Rack != nil {
		g.Mappings = t.mappings(b, g)
	}
	for c := 1; c < len(t.boxes); c++ {
		x := &t.boxes[c]
		if x.Parent != b.number || x.standing == outsider || x.standing == left {
			continue
		}
		p := mft.Path{
			Leg: t.linkLeg(c, 0, x.upper), RemoteQPN: t.linkQPN(c, 0, x.upper), FirstPSN: x.DownPSN.Add(-int32(x.stored)), Box: mft.BoxBelow,
		}
		p.Regions = through(&p)
		if part := x.standing.published(); part != feedback.PartActive {
			g.Parts = append(g.Parts, mft.Part{QP: p.QP(), Part: part})
		}
		if t.s.TakeTurns {
			p.Sends, p.SendPSN = true, t.s.Boxes[c].UpPSN
			p.Receivers = uint16(len(t.boxes[c].below))
		}
		g.Paths = append(g.Paths, p)
	}
	if len(g.Paths) == 0 { // as where control knows only receivers that are out
		g.Paths = append(g.Paths, w.makePath(b.hosts[0], g.Memory, was))
		g.Parts = append(g.Parts, mft.Part{QP: g.Paths[0].QP(), Part: feedback.PartGone})
	}
	return g
}

// linkQPN is the QPN of an end of the link of box c: 0 is the end at the box above. pair counts the
// queue pairs that the link had.
func (t *treeRun) linkQPN(c, end, pair int) roce.QPN { return 0x500 + roce.QPN(0x100*pair+2*c+end) }

// linkLeg is the leg from an end of the link of box c to the other end. To the boxes of a rack the
// box above has one port, and to those of all racks one address.
func (t *treeRun) linkLeg(c, end, pair int) mft.Leg {
	number := func(end int) int {
		if t.boxes[c].maps.Rack != nil && end == 0 {
			return len(t.s.Hosts) + 2*t.boxes[t.boxes[c].Parent].shares.racks[0].Boxes[0]
		}
		return len(t.s.Hosts) + 2*c + end
	}
	port := t.portTo(c)
	if end == 1 {
		port = mft.PortID(t.linkNumber(c))
	}
	l := mft.Leg{
		Port: port, Src: t.w.address(number(end)), Dst: t.w.address(number(1 - end)),
		DestQPN: t.linkQPN(c, 1-end, pair),
	}
	t.w.addressL2(&l, hostMAC(number(1-end)), hostMAC(number(end)))
	return l
}

func (t *treeRun) handle(e *event) {
	w, hosts := &t.w, int32(len(t.s.Hosts))
	switch {
	case e.kind == tick:
		t.ticked(&t.boxes[e.host], e)
	case e.kind == faultBegins:
		t.fault(int(e.index), 1)
	case e.kind == faultEnds && e.index < 0:
		t.crash(&t.boxes[-1-e.index], -1)
	case e.kind == faultEnds:
		t.fault(int(e.index), -1)
	case e.kind == takesTurn || e.kind == turnStored || e.kind == turnBegins:
		t.atControl(&t.boxes[e.host], e)
	case e.kind == confirms:
		t.confirm(int(e.host))
	case e.kind == sharesAnew:
		t.publish(&t.boxes[e.host])
	case e.kind == asksAbove || e.kind == loadsMappings:
		if c := &t.boxes[e.host]; e.index != c.maps.round {
			return // it has asked again since
		} else if e.kind == asksAbove {
			t.asked(c)
		} else {
			t.loads(c)
		}
	case e.kind == atSwitch && e.host < hosts:
		w.hosts[e.host].toSwitch.arrive()
		t.arrive(&t.boxes[t.cable[e.host]], mft.PortID(e.host), e.index)
	case e.kind == atSwitch:
		c := &t.boxes[e.host-hosts]
		c.toParent.arrive()
		t.arrive(&t.boxes[c.Parent], t.portTo(c.number), e.index)
	case e.kind == atHost && e.host >= hosts:
		b := &t.boxes[e.host-hosts]
		b.toBox.arrive()
		t.arrive(b, mft.PortID(e.host), e.index)
	default:
		w.handle(e) // of a host
	}
}

// fault begins (n is 1) or ends (n is -1) a timed fault.
func (t *treeRun) fault(k, n int) {
	w, f := &t.w, &t.s.Timed[k]
	if n > 0 && (f.Kind == Join && !t.mayJoin(k) || f.Kind == Leave && !t.mayLeave(k)) {
		return
	}
	if n > 0 {
		w.tally[f.Kind].Times++
		if f.For > 0 {
			w.schedule.add(event{at: w.now + f.For, kind: faultEnds, index: int32(k)})
		}
	}
	if w.recorder != nil {
		w.recorder.note(w.now, "%v of %d: %+d", f.Kind, f.Host, n)
	}
	switch {
	case f.Kind == Move && n > 0:
		t.unplug(k)
	case f.Kind == Move:
		t.follow(k)
	case f.Kind == SwitchCrash:
		t.crash(&t.boxes[f.Host], n)
	case f.Kind == MemoryChange:
		t.boxes[f.Host].memories++
		t.publish(&t.boxes[f.Host])
	case f.Kind == CopiesOwn:
		t.boxes[f.Host].shares.own += n
		t.publish(&t.boxes[f.Host])
	case f.Kind == SourceChange:
		w.start(&w.hosts[f.Host])
	case f.Kind == Join && n > 0:
		t.comes(f)
	case f.Kind == Join:
		t.confirm(f.Host)
	case f.Host < len(t.s.Hosts):
		t.befalls(&w.hosts[f.Host], f.Kind, n)
	default:
		b := &t.boxes[f.Host-len(t.s.Hosts)]
		switch f.Kind {
		case EdgeDies:
			b.maps.deaf += n
		case Leave:
			b.standing = left
			t.recount()
			t.publish(&t.boxes[b.Parent])
		}
		for _, l := range []*link{&b.toParent, &b.toBox} {
			switch f.Kind {
			case Burst:
				l.burst += n
			case Cut:
				l.cut += n
			case SlowHost:
				l.slow += n
			}
		}
	}
}

// crash stops a box, or starts it again without its state.
func (t *treeRun) crash(b *treeBox, n int) {
	if r := t.w.recorder; r != nil {
		r.note(t.w.now, "box %d crashes: %+d", b.number, n)
	}
	if b.crashed += n; n > 0 {
		b.ticksAt, b.turns.next = 0, nil
		b.turns.lives++
		t.forgetPlaces(b)
		t.forgetCalls(b)
		t.recallHosts(b)
		t.recallBoxes(b)
		t.recount()
		b.maps.forget()
	}
	if b.crashed > 0 {
		return
	}
	if err := t.openBox(b, true); err != nil {
		panic("sim: restart a box: " + err.Error()) // it was opened before
	}
	t.startRack(b)
}

// arrive lets a box handle frame i.
func (t *treeRun) arrive(b *treeBox, port mft.PortID, i int32) {
	w, f := &t.w, t.w.pool.frames[i]
	if b.crashed > 0 {
		w.hit(f, SwitchCrash)
		w.pool.giveBack(i)
		return
	}
	id, kind, class := dataplane.Classify(b.table, f.data())
	if class != dataplane.ToGroup {
		if !f.touched && !t.isOld(port) && !(b.maps.Rack != nil && isForRack(f)) {
			w.fail(Damaged, "an undamaged frame by port %d was left to the kernel of box %d", port, b.number)
		}
		w.pool.giveBack(i)
		return
	}
	d := &b.frame
	if b.maps.shared = b.maps.Rack != nil && isForRack(f); b.maps.shared {
		b.maps.heard++
	}
	t.present(b, f, id, kind, port)
	b.outputs.Reset()
	switch {
	case b.fan != nil && b.fan.Carry(d, &b.outputs):
		t.carried(b, f)
		w.pool.giveBack(i)
	case b.fan != nil && b.fan.Answer(d, &b.outputs):
		w.carried.Merged++
		w.carried.Told += uint64(len(b.outputs.Replies))
		t.comesOn(b)
		t.note(b, f, "merged by the engine")
		t.check(b, nil)
		t.deliver(b, nil)
		w.pool.giveBack(i)
	default:
		t.decide(b, i)
		t.replay(b)
	}
	b.outputs.Reset()
	b.core.Arm(feedback.Tick(w.now), &b.outputs)
	t.check(b, nil)
	t.deliver(b, nil)
	t.keepTime(b)
}

// present makes the frame of a box frame f, as a port delivers it.
func (t *treeRun) present(b *treeBox, f *frame, id mft.GroupID, kind dataplane.Kind, port mft.PortID) {
	d := &b.frame
	d.Group, d.Kind, d.Port = id, kind, port
	d.Buf, d.Start, d.Chunks[0], d.Kept = f.buf[:], headroom, uint64(f.index), false
	fragment(d, f.data())
	b.ecn = ecnOf(f.data())
}

// carried is what becomes of a frame that the kernel of a box has carried.
func (t *treeRun) carried(b *treeBox, f *frame) {
	w := &t.w
	w.carried.Carried++
	t.note(b, f, "carried")
	if b.Policy.Repair != feedback.RepairOff {
		b.pool.copied.note(f)
	}
	t.took(b, f, dataplane.Reason(feedback.Forwarded))
	w.checkCopies(f, b.outputs.Copies)
	t.checkReady(b, b.outputs.Copies)
	t.deliver(b, f)
}

// decide lets the core of a box handle frame i.
func (t *treeRun) decide(b *treeBox, i int32) {
	w, f := &t.w, t.w.pool.frames[i]
	reason := b.core.Handle(feedback.Tick(w.now), b.table, &b.frame, &b.outputs)
	t.note(b, f, reason.String())
	if t.meddle != nil {
		t.meddle(b, f, reason)
	}
	dropped := reason.Verdict() == dataplane.Drop
	switch {
	case t.s.TakeTurns && f.stream != noStream && waitsForTurn(reason):
		if h := &w.hosts[f.stream]; h.claimedAt == 0 {
			h.claimedAt = w.now
		}
	case f.damaged && !dropped && reason != dataplane.Reason(feedback.Forwarded):
		w.fail(Damaged, "box %d took a damaged frame: %v", b.number, reason)
	case dropped && !f.touched && !t.mayDrop(b, f, reason):
		w.fail(Damaged, "box %d dropped an undamaged frame: %v", b.number, reason)
	case !dropped && f.stream != noStream:
		t.took(b, f, reason)
	case !dropped && f.stream == noStream:
		t.comesOn(b)
	}
	t.check(b, f)
	t.deliver(b, f)
	if reason == dataplane.SourceWaits {
		b.pool.copied.note(f)
	}
	if b.frame.Kept {
		b.pool.keep(i)
	} else {
		w.pool.giveBack(i)
	}
	b.core.PutBack()
}

// mayDrop reports whether a box may drop an undamaged frame: feedback that it cannot attribute
// after a crash or a move, what a receiver sends that has moved, left or ended, and what was sent
// before the box has joined, if that comes after a crash or because others of its rack lack it.
func (t *treeRun) mayDrop(b *treeBox, f *frame, reason dataplane.Reason) bool {
	lost := reason == dataplane.Reason(feedback.BeyondSent) || reason == dataplane.Reason(feedback.OutsideWindow)
	if lost && f.stream == noStream && t.w.tally[SwitchCrash].Times+t.w.tally[Move].Times > 0 {
		return true
	}
	if lost && f.stream != noStream && int(f.packet) < b.since && (t.w.tally[SwitchCrash].Times > 0 || b.maps.shared) {
		return true
	}
	if lost && f.stream == noStream && int(b.frame.Port) >= len(t.s.Hosts) && t.s.TakeTurns {
		return true // a box yields for the second time
	}
	if reason == dataplane.Reason(feedback.NotTakingPart) {
		return f.stream == noStream && (t.s.TakeTurns || t.isEnded(b))
	}
	return (reason == dataplane.NotReceiver || reason == dataplane.UnknownQPN) && t.isOld(b.frame.Port)
}

// isOld reports whether a frame by a port may come from a receiver that has moved or left, from a
// former queue pair of a link, or from a box that has left or is lost.
func (t *treeRun) isOld(port mft.PortID) bool {
	if int(port) < len(t.hasMoved) {
		return t.hasMoved[port] || t.own[port] == left
	}
	return t.w.tally[Move].Times+t.w.tally[Leave].Times+t.w.tally[Join].Times > 0
}

// took notes the place of who has sent data frame f to a box, and that the box forwards each packet
// as a new one only once.
func (t *treeRun) took(b *treeBox, f *frame, reason dataplane.Reason) {
	n, source := int(f.packet), &t.w.hosts[f.stream]
	if reason != dataplane.Reason(feedback.Filtered) { // an old packet ends no wait
		source.claimedAt = 0
	}
	t.checkMapped(b, f)
	if reason != dataplane.Reason(feedback.Gap) { // which is not forwarded
		source.misread += source.plan.hidesEnd(f)
	}
	if port := int(b.frame.Port); port < len(t.s.Hosts) {
		t.w.hosts[port].place.arrive(n)
		t.w.hosts[port].cameAt = t.w.now
	} else if at := t.into(b, port).find(int(f.stream), n); at >= 0 {
		b.places[port].arrive(at)
		b.cameAt[port] = t.w.now
	}
	if reason != dataplane.Reason(feedback.Forwarded) || f.damaged {
		return
	}
	copied := b.copied[f.stream]
	if copied[n]++; copied[n] > 1 {
		t.w.fail(Links, "box %d sends packet %d of %v as a new one for the %d. time", b.number, n, &t.w.hosts[f.stream], copied[n])
	}
}

// check checks what a box sends and reports because of f; f is nil if time has passed.
func (t *treeRun) check(b *treeBox, f *frame) {
	w, out := &t.w, &b.outputs
	for k := range out.Notes {
		switch n := &out.Notes[k]; n.What {
		case feedback.NoteWaits:
			t.waits(b)
		case feedback.NoteSource:
			t.begins(b, n)
		case feedback.NoteEdgeLost, feedback.NoteEdgeWorks:
			t.noteEdge(b, n)
		case feedback.NoteJoined:
			t.joined(b, n, f)
		case feedback.NoteFatal, feedback.NoteEvicted, feedback.NoteBehind:
			t.isOut(b, n)
		}
	}
	for k := range out.Replies {
		r := &out.Replies[k]
		t.checkReply(b, r, f)
	}
	t.checkAsked(b)
	w.checkCopies(f, out.Copies)
	t.checkReady(b, out.Copies)
	if _, chunks := b.core.Retained(); chunks > b.Chunks {
		w.fail(Repair, "box %d retains %d buffers, of %d", b.number, chunks, b.Chunks)
	}
}

// send sends frame i of box b by a leg. What is sent to a host whose cable leads elsewhere is lost.
func (t *treeRun) send(b *treeBox, l *mft.Leg, i int32) {
	w, n := &t.w, int(l.Port)
	switch hosts := len(t.s.Hosts); {
	case l.Dst.IsMulticast():
		t.replicate(b, l, i)
	case n < hosts && t.cable[n] != b.number:
		w.hit(w.pool.frames[i], Move)
		w.pool.giveBack(i)
	case n < hosts:
		w.send(&w.hosts[n].toHost, i)
	case n-hosts == b.number:
		w.send(&b.toParent, i)
	default:
		w.send(&t.boxAt(b, l).toBox, i)
	}
}

// boxAt returns the box below another one to which a leg leads.
func (t *treeRun) boxAt(b *treeBox, l *mft.Leg) *treeBox {
	if r := t.rackAt(b, l.Port); r != nil {
		for _, c := range r.Boxes {
			if t.endOf(&t.boxes[c]) == l.Dst {
				return &t.boxes[c]
			}
		}
	}
	return &t.boxes[int(l.Port)-len(t.s.Hosts)]
}

// deliver sends what a box wants to send: replies first, as the worker does.
func (t *treeRun) deliver(b *treeBox, original *frame) {
	w, out := &t.w, &b.outputs
	for k := range out.Replies {
		i := w.pool.lend()
		f := w.pool.frames[i]
		bytes, err := out.Replies[k].Append(f.room())
		if err != nil {
			panic("sim: reply: " + err.Error()) // a scenario has one address family
		}
		f.bytes = len(bytes)
		t.send(b, out.Replies[k].Leg, i)
	}
	for k := range out.Copies {
		t.copy(b, &b.frame, original, b.ecn, &out.Copies[k])
	}
	for k := range out.Repairs {
		r := &out.Repairs[k]
		retained := w.pool.frames[r.Frame.Chunks[0]]
		t.copy(b, r.Frame, retained, ecnOf(retained.data()), &r.Copy)
	}
}

// copy sends a copy, as world.sendCopy does.
func (t *treeRun) copy(b *treeBox, received *dataplane.Frame, original *frame, ecn uint8, c *dataplane.Copy) {
	w := &t.w
	i := w.pool.lend()
	f := w.pool.frames[i]
	f.bytes = copy(f.buf[headroom:], original.data())
	f.inherit(original)
	e := &t.edited
	*e = *received
	e.Buf = f.buf[:]
	fragment(e, f.data())
	if start := c.Apply(e); start != headroom {
		panic("sim: a copy on an untagged leg starts elsewhere than its original")
	}
	w.checkMark(e, ecn)
	t.checkLink(b, c.Path.Port, f)
	t.send(b, &c.Path.Leg, i)
}

// keepTime schedules the next tick of a box, as world.keepTime does.
func (t *treeRun) keepTime(b *treeBox) {
	w := &t.w
	pause := time.Duration(b.core.Pause(feedback.Tick(w.now)))
	if at := w.now + pause; pause > 0 && !w.over() && (b.ticksAt == 0 || at < b.ticksAt) {
		b.ticksAt = at
		w.schedule.add(event{at: at, kind: tick, host: int32(b.number)})
	}
}

func (t *treeRun) ticked(b *treeBox, e *event) {
	w := &t.w
	if e.at != b.ticksAt || b.crashed > 0 {
		return
	}
	b.ticksAt = 0
	b.outputs.Reset()
	for b.core.Tick(feedback.Tick(w.now), &b.outputs) {
	}
	t.check(b, nil)
	t.deliver(b, nil)
	b.core.PutBack()
	t.replay(b)
	t.keepTime(b)
}

// finish checks what must hold when nothing happens any more.
func (t *treeRun) finish() {
	w := &t.w
	if !w.over() {
		w.fail(Ends, "nothing happens any more: %s", w.progress())
	}
	retained := 0
	for i := range w.hosts {
		h := &w.hosts[i]
		if h.status != rnic.Success && !t.s.has(KeyLost, ReceiverCrash) && !(h.status == rnic.RemoteOperational && t.isEmpty()) {
			// else world.checkError has looked at it
			w.fail(Ends, "%v, a source, heard %v", h, h.status)
		}
		if h.qp.State() == rnic.StateError && !h.keyLost && h.status == rnic.Success {
			w.fail(Ends, "%v: its queue pair is in error without a reason", h)
		}
		w.checkMemory(h)
		w.checkLink(&w.hosts[i].toSwitch)
		w.checkLink(&w.hosts[i].toHost)
	}
	packets := len(w.hosts[0].plan.packets)
	for i := range t.boxes {
		b := &t.boxes[i]
		retained += len(b.pool.kept)
		w.checkLink(&b.toParent)
		w.checkLink(&b.toBox)
		if i > 0 && !t.s.TakeTurns && w.tally == (Tally{}) && t.quiet() && b.toBox.offered != uint64(packets) {
			w.fail(Links, "the link to box %d carried %d frames, and %d packets were sent", i, b.toBox.offered, packets)
		}
	}
	if w.pool.lent() != retained {
		w.fail(Conserved, "%d frames are lent, and %d are retained", w.pool.lent(), retained)
	}
}

// isEmpty reports whether no receiver counts any more.
func (t *treeRun) isEmpty() bool {
	return !slices.ContainsFunc(t.w.hosts[1:], func(h host) bool { return h.counts() })
}

// quiet reports whether nobody had a reason to send a packet again.
func (t *treeRun) quiet() bool {
	c := t.w.hosts[0].qp.Counters()
	for i := range t.boxes {
		if t.boxes[i].Policy.Repair != feedback.RepairOff {
			return false
		}
	}
	return c.Get(rnic.FramesRetransmitted) == 0
}

// note records what a box made of a frame.
func (t *treeRun) note(b *treeBox, f *frame, fate string) {
	if r := t.w.recorder; r != nil {
		var v roce.View
		text := "a frame"
		if v.Decode(f.data(), f.bytes) == nil {
			text = fmt.Sprintf("%v %d", v.Opcode, v.PSN(f.data()))
			if v.Opcode == roce.OpAck {
				text = fmt.Sprintf("%v %d msn %d", v.AETH(f.data()).Syndrome, v.PSN(f.data()), v.AETH(f.data()).MSN)
			}
		}
		r.note(t.w.now, "box %d, port %d: %s, packet %d: %s", b.number, b.frame.Port, text, f.packet, fate)
	}
}
