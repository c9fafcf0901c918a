package sim

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Boxes below one box may be on one network, behind one of its ports: a rack. The box above sends
// one copy of a new packet to a multicast address, the network gives it to each box of the rack,
// and each maps it in front of everything else (mft.Mapping). Behind another port of the box above
// there may be another rack.
//
// Who shares decides package ctl/edges, as in the product. A box asks the one above, loads the
// answer and asks again, which confirms. Each question and each answer takes its time. A box that
// crashes has forgotten its mappings, and a box above that crashes what was confirmed.
//
//	box below ── question ──▶ edges.Book ── another version of the group of the box above
//	          ◀── answer ────     │
//	               └── another version of the group of the box below, then the next question

// Rack is boxes below one box that are on one network.
type Rack struct {
	Boxes []int         // two or more, below the same box
	Loss  float64       // of shared copies, before the network replicates them
	Lag   time.Duration // a question or an answer takes so long at most
	Fails int           // of eight answers a box cannot load so many
}

// aboveRacks is what a box knows of the racks below it.
type aboveRacks struct {
	racks       []*Rack     // nil: there is none
	book        *edges.Book // since the box has started
	own         int         // faults during which the group's file says copies: own
	lost, found int         // reports that shared copies do not reach a box, and that they do again
}

// inRack is what a box of a rack knows as an edge of the box above.
type inRack struct {
	*Rack                    // nil: it is in none
	mapped []api.EdgeMapping // what it has loaded
	answer api.EdgeAnswer    // what it is to load next
	have   uint64            // as api.EdgeQuestion.Have
	part   *api.EdgePart
	told   []roce.QPN // the generations that it had loaded when the box above heard its newest question
	round  int32      // of its questions: what belongs to another one is lost
	waits  bool       // the box above keeps its question until there is another answer
	deaf   int        // faults during which no shared copy comes to it
	once   bool       // it has had a mapping since it has started, so it knows that its source is a box
	heard  int        // shared copies that became packets for it
	shared bool       // what it handles now came as one
	failed int        // mappings that it could not load
}

var rackAddresses = edges.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("239.77.0.0/28"), netip.MustParsePrefix("ff15::4d00/124")}}

// openRacks tells the boxes which of them are in a rack.
func (t *treeRun) openRacks() {
	for k := range t.s.Racks {
		r := &t.s.Racks[k]
		up := &t.boxes[t.s.Boxes[r.Boxes[0]].Parent].shares
		up.racks = append(up.racks, r)
		for _, c := range r.Boxes {
			t.boxes[c].maps.Rack = r
		}
	}
}

// portTo is the port by which a box reaches box c below it.
func (t *treeRun) portTo(c int) mft.PortID {
	if r := t.boxes[c].maps.Rack; r != nil {
		c = r.Boxes[0]
	}
	return mft.PortID(t.linkNumber(c))
}

// rackAt returns the rack behind a port of a box, or nil.
func (t *treeRun) rackAt(b *treeBox, port mft.PortID) *Rack {
	for _, r := range b.shares.racks {
		if t.portTo(r.Boxes[0]) == port {
			return r
		}
	}
	return nil
}

// inRacks returns the boxes of all racks below a box.
func (t *treeRun) inRacks(b *treeBox) (boxes []*treeBox) {
	for _, r := range b.shares.racks {
		for _, c := range r.Boxes {
			boxes = append(boxes, &t.boxes[c])
		}
	}
	return boxes
}

// startRack lets a box that has just started share anew with the boxes of its racks, which ask
// again, and ask the box above for what it is to map.
func (t *treeRun) startRack(b *treeBox) {
	if b.shares.racks != nil {
		b.shares.book = edges.NewBook(rackAddresses, t.drawLeg)
		t.publish(b)
		for _, c := range t.inRacks(b) {
			c.maps.told = nil
			t.ask(c)
		}
	}
	if b.maps.Rack != nil {
		t.ask(b)
	}
}

// forget lets a box that crashes forget what it has loaded.
func (r *inRack) forget() { r.mapped, r.have, r.part, r.once = nil, 0, nil, false }

// drawLeg returns a QPN that no generation of any box had.
func (t *treeRun) drawLeg() (roce.QPN, error) {
	t.legs++
	return firstGeneration + roce.QPN(t.legs), nil
}

// ask lets a box of a rack ask the box above, and forget what it has asked before.
func (t *treeRun) ask(c *treeBox) {
	c.maps.round++
	c.maps.waits = false
	t.later(asksAbove, c)
}

// later lets a step of the present question happen, unless the run is over.
func (t *treeRun) later(kind eventKind, c *treeBox) {
	w := &t.w
	if w.now == 0 || !w.over() {
		after := time.Duration(w.frameRNG.Int64N(int64(max(c.maps.Lag, 1))))
		w.schedule.add(event{at: w.now + after, kind: kind, host: int32(c.number), index: c.maps.round})
	}
}

// asked lets the box above hear a question.
func (t *treeRun) asked(c *treeBox) {
	up, r := &t.boxes[c.Parent], &c.maps
	switch {
	case c.crashed > 0:
		return
	case up.crashed > 0:
		t.later(asksAbove, c)
		return
	}
	r.told = nil
	for _, m := range r.mapped {
		r.told = append(r.told, roce.QPN(m.LegQPN))
	}
	q := api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: r.have, Part: r.part}
	r.waits = true
	if share := up.shares.book.Ask(time.Unix(0, int64(t.w.now)), t.endOf(c), q); len(share) > 0 {
		t.publish(up)
	}
	t.answer(up)
}

// answer answers the boxes of racks that are to have other mappings than they have.
func (t *treeRun) answer(up *treeBox) {
	for _, c := range t.inRacks(up) {
		r := &c.maps
		if !r.waits {
			continue
		}
		if r.answer, _ = up.shares.book.Answer(t.endOf(c)); r.answer.Number != r.have {
			r.waits = false
			t.later(loadsMappings, c)
		}
	}
}

var errNotJoined = errors.New("the address cannot be joined")

// loads lets a box of a rack load what the box above has answered, and ask the next question.
func (t *treeRun) loads(c *treeBox) {
	r := &c.maps
	if c.crashed > 0 {
		return
	}
	r.mapped, r.have = nil, r.answer.Number
	failed := map[uint32]error{}
	for _, m := range r.answer.Mappings {
		if t.w.chanceOf8(r.Fails) {
			failed[m.LegQPN], r.have = errNotJoined, 0
			r.failed++
		} else {
			r.mapped = append(r.mapped, m)
		}
	}
	r.part = r.answer.Part(failed)
	if rec := t.w.recorder; rec != nil {
		rec.note(t.w.now, "box %d maps %d generations, and cannot load %d", c.number, len(r.mapped), len(failed))
	}
	t.publish(c)
	t.ask(c)
}

// endOf is the address of a box of a rack at its link.
func (t *treeRun) endOf(c *treeBox) netip.Addr { return t.linkLeg(c.number, 0, c.upper).Dst }

// mappings returns those for the group of a box that fit its present end of the link, as
// ctl/groups does.
func (t *treeRun) mappings(c *treeBox, g *mft.Group) (list []mft.Mapping) {
	for _, m := range c.maps.mapped {
		if m.From == g.Source.Dst && m.Host == g.Source.Src && m.QPN == uint32(g.Source.RemoteQPN) {
			c.maps.once = true
			list = append(list, mft.Mapping{To: m.To, QPN: roce.QPN(m.LegQPN), AddPSN: m.AddPSN})
		}
	}
	return list
}

// share lets the boxes of each rack share a leg in the next version of a group, as far as they can.
func (t *treeRun) share(b *treeBox, next *mft.Group) {
	r := &b.shares
	if r.own > 0 || b.Policy.Repair == feedback.RepairOff || next.Memory.Len() > mft.ShareRegions {
		r.book.Forget(next.Name)
		return
	}
	var state *dataplane.GroupState
	t.atCore(b, func(now feedback.Tick) { state = b.core.GroupState(now, b.group, &b.outputs) })
	var receivers []edges.Receiver
	for i := range next.Paths {
		p := &next.Paths[i]
		receiver := edges.Receiver{Path: p, Port: strconv.Itoa(int(p.Port)), Idle: "it has not joined yet"}
		if was := state.Group.FindPath(p.Dst, p.RemoteQPN); was >= 0 && takesData(state.Paths[was].Part) {
			receiver.Idle, receiver.AddPSN = "", uint32(p.FirstPSN-state.Since[was])&0xFFFFFF
		}
		receivers = append(receivers, receiver)
	}
	next.Shares, _ = r.book.Share(next.Name, next.Memory, state.Turns, receivers)
}

// noteEdge takes the report of a box that shared copies do not reach a box of its rack, or do
// again. They may be lost for many reasons, so only who it is about is checked.
func (t *treeRun) noteEdge(b *treeBox, n *dataplane.Note) {
	isOne := slices.ContainsFunc(t.inRacks(b), func(c *treeBox) bool { return t.endOf(c) == n.Receiver && c.standing == member })
	if !isOne {
		t.w.fail(Membership, "box %d: %v is %v, and no box of its racks", b.number, n.Receiver, n.What)
	} else if n.What == feedback.NoteEdgeLost {
		b.shares.lost++
	} else {
		b.shares.found++
	}
	if r := t.w.recorder; r != nil {
		r.note(t.w.now, "box %d: %v is %v", b.number, n.Receiver, n.What)
	}
}

// checkShared fails if a shared copy of a box leaves that a box maps which is not in the group, or
// that is for one which has not said that it maps it, or does not get it.
func (t *treeRun) checkShared(b *treeBox, l *mft.Leg) {
	s := &b.group.Shares[slices.IndexFunc(b.group.Shares, func(s mft.Share) bool { return s.DestQPN == l.DestQPN })]
	for _, c := range t.inRacks(b) {
		isMember := slices.ContainsFunc(s.Members, func(qp mft.QP) bool { return qp.IP == t.endOf(c) })
		switch {
		case c.standing != member && c.mapsLeg(l.DestQPN):
			t.w.fail(Membership, "box %d sends a shared copy that box %d maps, which is not in the group", b.number, c.number)
		case isMember && !slices.Contains(c.maps.told, l.DestQPN):
			t.w.fail(Membership, "box %d shares a copy with box %d, which has not confirmed its mapping", b.number, c.number)
		case isMember && t.portTo(c.number) != l.Port:
			t.w.fail(Membership, "box %d shares a copy by port %d with box %d, which is in another rack", b.number, l.Port, c.number)
		}
	}
}

// replicate gives a shared copy of a box, which is frame i, to all boxes of the rack behind its
// port.
func (t *treeRun) replicate(b *treeBox, l *mft.Leg, i int32) {
	w, f, r := &t.w, t.w.pool.frames[i], t.rackAt(b, l.Port)
	w.carried.Shared++
	t.checkShared(b, l)
	if r.Loss > 0 && w.frameRNG.Float64() < r.Loss {
		w.hit(f, Loss)
		w.pool.giveBack(i)
		return
	}
	for _, n := range r.Boxes {
		if t.boxes[n].maps.deaf > 0 {
			continue
		}
		twin := w.pool.lend()
		c := w.pool.frames[twin]
		c.bytes = copy(c.buf[headroom:], f.data())
		c.inherit(f)
		w.send(&t.boxes[n].toBox, twin)
	}
	w.pool.giveBack(i)
}

// mapsLeg reports whether a box maps the copies of a generation.
func (b *treeBox) mapsLeg(qpn roce.QPN) bool {
	return slices.ContainsFunc(b.group.Mappings, func(m mft.Mapping) bool { return m.QPN == qpn })
}

// isForRack reports whether a frame has a multicast address, so that a box that does not map it has
// nothing to do with it.
func isForRack(f *frame) bool {
	var v roce.View
	return v.Decode(f.data(), f.bytes) == nil && v.DstIP(f.data()).IsMulticast()
}

// checkMapped fails if a packet of the box above has another PSN than that of the packet which it
// is: the box has mapped it wrongly.
func (t *treeRun) checkMapped(b *treeBox, f *frame) {
	if f.damaged || t.s.TakeTurns || int(b.frame.Port) != t.linkNumber(b.number) {
		return
	}
	if psn, want := sentPSN(f.data()), b.DownPSN.Add(f.packet-int32(b.since)); psn != want {
		t.w.fail(Links, "box %d takes packet %d for the one with PSN %d, and it has PSN %d", b.number, f.packet, psn, want)
	}
}
