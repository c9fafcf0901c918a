package sim

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// With Edges the receivers are behind one port of the switch, and share a leg. A network behind the
// port gives a shared copy to all hosts; the edge of each host maps it as rocast-edge does.
//
// Control lets nobody wait for an edge: an edge may learn of a generation later than the switch,
// and is as one that is dead until then. An edge forgets no generation.

// Edges is how receivers share a leg.
type Edges struct {
	Shares bool
	Loss   float64       // of shared copies before the network replicates them
	Lag    time.Duration // by which shared copies are later than others
	Jitter time.Duration // by which they are later still, at most
	Learns time.Duration // after which an edge knows a generation, at most
}

// edge is the edge of a host.
type edge struct {
	maps []mapping // the newest last
	dead int       // faults during which it maps nothing
}

// mapping is what an edge knows of one generation of a share.
type mapping struct {
	from   roce.Flow
	delta  int32 // the PSN at the host minus that of the shared copy
	memory *mft.Memory
	path   mft.Path
	edit   roce.Edit
	since  time.Duration
}

var sharedIPs = [2]netip.Addr{netip.MustParseAddr("239.77.0.1"), netip.MustParseAddr("ff15::4d:1")}

// firstGeneration is the dest QPN of the first generation.
const firstGeneration = roce.QPN(0x8000)

// isShared reports whether what leaves by a path is a shared copy.
func (w *world) isShared(p *mft.Path) bool {
	return w.s.Edges.Shares && p.Dst == w.sharedIP() && p.DestQPN >= firstGeneration
}

func (w *world) sharedIP() netip.Addr {
	if w.s.hasFar() {
		return w.linkIP(&farIPs)
	}
	if w.s.IPv6 {
		return sharedIPs[1]
	}
	return sharedIPs[0]
}

// share gives g the leg that its receivers share, and their edges the mappings for it. Where the
// receivers stand says the core, which has the version before. Members that come keep the
// generation; if one leaves, its constants change or another turn begins, there is a new one.
func (w *world) share(g *mft.Group) {
	if !w.s.Edges.Shares {
		return
	}
	state := w.stateNow()
	if state == nil {
		w.generation++ // whoever comes later must not meet edges of those who have left
		return
	}
	var members []int // by path
	deltas := make([]int32, len(g.Paths))
	same := w.generation != 0 && w.generationTurn == state.Turns
	for i := range g.Paths {
		qp := g.Paths[i].QP()
		was := state.Group.FindPath(qp.IP, qp.RemoteQPN)
		h := w.hostOfLeg(&g.Paths[i].Leg)
		fits := was >= 0 && takesData(state.Paths[was].Part) && qp != state.Source && (h.Far || !w.s.hasFar())
		if fits {
			deltas[i] = state.Group.Paths[was].FirstPSN.Sub(state.Since[was])
			members = append(members, i)
		}
		if m := h.edge.knows(w.generation); m != nil {
			same = same && fits && m.delta == deltas[i]
		}
	}
	for i := range w.hosts {
		same = same && (w.hosts[i].edge.knows(w.generation) == nil || g.FindPath(w.qp(i).IP, w.qp(i).RemoteQPN) >= 0)
	}
	if !same {
		w.generation++
	}
	if w.generationTurn = state.Turns; len(members) < 2 {
		return
	}
	var qps []mft.QP
	for _, i := range members {
		qps = append(qps, g.Paths[i].QP())
	}
	s := g.Paths[members[0]].Shared(w.sharedIP(), firstGeneration+roce.QPN(w.generation), qps)
	s.Turn = state.Turns
	g.Shares = []mft.Share{s}
	for _, i := range members {
		if h := w.hostOfLeg(&g.Paths[i].Leg); h.edge.knows(w.generation) == nil {
			h.edge.maps = append(h.edge.maps, w.mappingOf(deltas[i], &g.Paths[i], &g.Shares[0], g.Memory))
		}
	}
}

func takesData(part feedback.Part) bool {
	return part == feedback.PartActive || part == feedback.PartUnknown
}

// stateNow is the state of the group in the core; nil: the core does not have the group, because
// the switch is down or comes up.
func (w *world) stateNow() (state *dataplane.GroupState) {
	if w.box.down > 0 || w.opening {
		return nil
	}
	w.atCore(func(now feedback.Tick, out *dataplane.Outputs) { state = w.box.core.GroupState(now, w.group, out) })
	return state
}

// hearsOf lets control hear what has become of a member: those who share are others then. Nothing
// leaves until then by a leg of which a receiver is out, or that was for another turn.
func (w *world) hearsOf(what feedback.Note) {
	if w.s.Edges.Shares && (what == feedback.NoteJoined || what == feedback.NoteSource || what.EndsData()) {
		w.schedule.add(event{at: w.now + time.Duration(w.frameRNG.Int64N(int64(w.s.ackTimeout()))), kind: sharesAnew})
	}
}

// mappingOf is the mapping of a path's host, whose PSNs are by delta above those of the source.
func (w *world) mappingOf(delta int32, p *mft.Path, s *mft.Share, memory *mft.Memory) mapping {
	m := mapping{
		from: roce.Flow{Src: s.Src, Dst: s.Dst, DestQPN: s.DestQPN}, delta: delta, memory: memory, path: *p,
	}
	m.edit = roce.NewEdit(m.from, roce.Flow{Src: p.Src, Dst: p.Dst, DestQPN: p.DestQPN}, p.L2[:p.L2Bytes])
	if most := w.s.Edges.Learns; most > 0 {
		m.since = w.now + time.Duration(w.frameRNG.Int64N(int64(most)))
	}
	return m
}

// knows returns the mapping of a generation, or nil.
func (e *edge) knows(generation int) *mapping {
	for k := range e.maps {
		if m := &e.maps[k]; m.from.DestQPN == firstGeneration+roce.QPN(generation) {
			return m
		}
	}
	return nil
}

// hostAtIP returns the host with this address, or nil.
func (w *world) hostAtIP(ip netip.Addr) *host {
	for i := range w.hosts {
		if w.address(i) == ip {
			return &w.hosts[i]
		}
	}
	return nil
}

// hostOfLeg returns the host to which a leg leads.
func (w *world) hostOfLeg(l *mft.Leg) *host {
	switch far := w.s.hasFar(); {
	case far && l.Dst == w.linkIP(&farIPs):
		return &w.hosts[l.DestQPN-farQPN]
	case !far && !w.s.Edges.Shares:
		return &w.hosts[l.Port]
	}
	return w.hostAtIP(l.Dst)
}

// homePort is the port by which a host is reached.
func (w *world) homePort(host int) mft.PortID {
	if w.s.Edges.Shares && !w.s.hasFar() && (host > 0 || w.s.Hosts[0].Receiver) {
		return 1
	}
	return mft.PortID(host)
}

// replicate gives a shared copy, which is frame i, to all hosts, as a network that floods. The
// source is one of them.
func (w *world) replicate(i int32) {
	f, e := w.pool.frames[i], &w.s.Edges
	w.carried.Shared++
	w.checkShared(f)
	if e.Loss > 0 && w.frameRNG.Float64() < e.Loss {
		w.hit(f, Loss)
		w.pool.giveBack(i)
		return
	}
	for k := range w.hosts {
		twin := w.pool.lend()
		t := w.pool.frames[twin]
		t.bytes = f.bytes
		copy(t.data(), f.data())
		t.inherit(f)
		if t.late += e.Lag; e.Jitter > 0 {
			t.late += time.Duration(w.frameRNG.Int64N(int64(e.Jitter)))
		}
		w.send(&w.hosts[k].toHost, twin)
	}
	w.pool.giveBack(i)
}

// checkShared fails if a shared copy leaves that the edge of a host maps which is no member any
// more, or which is the source. The engine sends copies until the core hears from control that a
// member has left.
func (w *world) checkShared(f *frame) {
	if w.membersChanged && w.box.engine != nil {
		return
	}
	d := &w.mapped
	d.Buf, d.Start = f.buf[:], headroom
	if fragment(d, f.data()); d.View.Decode(d.Head(), d.Len()) != nil {
		return
	}
	generation := int(d.View.DestQPN(d.Head()) - firstGeneration)
	for i := range w.hosts {
		if h := &w.hosts[i]; h.edge.knows(generation) != nil && h.membership != member {
			w.fail(Membership, "a shared copy leaves that the edge of %v maps, which is out", h)
		} else if h.edge.knows(generation) != nil && i == w.active {
			w.fail(Membership, "a shared copy leaves that the edge of %v maps, which is the source", h)
		}
	}
}

// atEdge lets the edge of a host look at frame i, and reports whether the host gets the frame.
func (w *world) atEdge(h *host, i int32) bool {
	f, d := w.pool.frames[i], &w.mapped
	d.Buf, d.Start = f.buf[:], headroom
	fragment(d, f.data())
	if d.View.Decode(d.Head(), d.Len()) != nil || d.View.DstIP(d.Head()) != w.sharedIP() {
		return true
	}
	v, head := &d.View, d.Head()
	from := roce.Flow{Src: v.SrcIP(head), Dst: v.DstIP(head), DestQPN: v.DestQPN(head)}
	for k := range h.edge.maps {
		if m := &h.edge.maps[k]; m.from == from && w.now >= m.since && h.edge.dead == 0 {
			m.apply(d)
			return true
		}
	}
	h.unheard++
	w.record(&h.toHost, f, "not mapped")
	w.pool.giveBack(i)
	return false
}

// apply makes frame d what the host expects.
func (m *mapping) apply(d *dataplane.Frame) {
	d.Original.Read(&d.View, d.Bytes())
	d.Region = -1
	if o := &d.Original; d.View.Opcode.Headers().Has(roce.HasRETH) {
		d.Region = m.memory.Find(o.VA, o.RKey, o.DMABytes)
	}
	c := dataplane.Copy{Path: &m.path, Edit: &m.edit, PSN: d.Original.PSN.Add(m.delta)}
	if start := c.Apply(d); start != headroom {
		panic(fmt.Sprintf("sim: a mapped copy starts at %d", start))
	}
}

// mayShare reports whether the receivers of the scenario can share a leg.
func (s *Scenario) mayShare() bool {
	receivers := 0
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if h.Multipath {
			return false
		}
		if h.Receiver {
			receivers++
		}
	}
	return receivers > 1 && s.Policy.Repair == feedback.RepairLocal && !s.has(MemoryChange) &&
		s.Unused == 0 && s.Removed == nil
}

// edges draws how the receivers share a leg, and when their edges die.
func (d drawer) edges(s *Scenario, packets int) {
	s.Edges.Shares = true
	if d.oneIn(3) {
		s.Edges.Loss = pick(d, 1e-3, 1e-2, 5e-2)
	}
	if d.oneIn(3) {
		*pick(d, &s.Edges.Lag, &s.Edges.Jitter) = d.between(time.Microsecond, 200*time.Microsecond)
	}
	if d.oneIn(4) {
		s.Edges.Learns = d.between(time.Microsecond, s.ackTimeout())
	}
	for range pick(d, 0, 0, 1, 1, 2) {
		f := d.moment(EdgeDies, packets)
		f.Host = 1 + d.IntN(len(s.Hosts)-1)
		if d.oneIn(2) {
			f.For = d.between(s.ackTimeout()/50, 3*s.ackTimeout())
		}
		s.Timed = append(s.Timed, f)
	}
}
