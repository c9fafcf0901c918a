package sim

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// relay is a run of a scenario without the group: programs pass the messages on over connections
// between two hosts each, on the same links, and the switch only forwards. A host passes a slice of
// a message on as soon as the host has all of the slice.
//
// The source posts its next message when all hosts have the oldest one. It learns that at once; a
// real program would have to be told.
type relay struct {
	w     world // its links, frames and time; its hosts and its box are not used
	cut   relaying.Cut
	shape relaying.Shape
	nodes []node
	ends  []end // connection c is from ends[2c] to ends[2c+1], at host c+1
	plan  plan

	flights []flight // by message
	posted  int      // messages
	done    int      // messages that all hosts have, as all senders know
}

// node is one host.
type node struct {
	number           int
	toSwitch, toHost link
	memory           rnic.Memory
	bytes            []byte // room for as many messages as may be posted
	next             []*end // connections to the hosts that this host sends to
	ready            []*end // connections that may have a packet to send
	todo             []slice
	sending          bool // a transmit event is scheduled
}

// slice is a piece of a message that is to be sent. All slices of a run are numbered from 0.
type slice struct {
	over   *end
	number int
}

// end is one end of a connection.
type end struct {
	node     *node
	qp       *rnic.QP
	number   int
	ready    bool // in node.ready
	arrived  int  // slices that have come whole
	expireAt time.Duration
}

// run plays s until all receivers have everything.
func (r *relay) run(s *Scenario, how relaying.Shape, slices int) error {
	r.shape, r.cut.Slices = how, slices
	if err := r.open(s); err != nil {
		return err
	}
	r.post()
	for r.w.failure == nil {
		e, ok := r.w.schedule.next()
		switch {
		case !ok && r.done < len(r.flights):
			r.w.fail(Ends, "%d of %d messages are at all receivers, and nothing happens", r.done, len(r.flights))
		case !ok:
			return nil
		case e.at > s.Limit:
			r.w.fail(Ends, "not over in time: %d of %d messages are at all receivers", r.done, len(r.flights))
		default:
			r.w.now = e.at
			r.handle(&e)
		}
	}
	return r.w.failure
}

func (r *relay) handle(e *event) {
	n := &r.nodes[e.host]
	switch e.kind {
	case atSwitch:
		n.toSwitch.arrive()
		to := binary.BigEndian.Uint16(r.w.pool.frames[e.index].data()[4:]) // as hostMAC numbers hosts
		r.w.send(&r.nodes[to].toHost, e.index)
	case atHost:
		n.toHost.arrive()
		r.receive(n, e.index)
	case transmit:
		n.sending = false
		r.pump(n)
	case expire:
		r.expired(&r.ends[e.index])
	}
}

func (r *relay) open(s *Scenario) error {
	source := &s.Hosts[0]
	r.w.begin(s)
	r.plan.lay(s, source)
	r.posted, r.done = 0, 0
	r.cut.MessageBytes, r.cut.Posted = r.plan.messages[0].Bytes, source.Outstanding // all messages are equal
	r.flights = append(r.flights[:0], make([]flight, len(source.Messages))...)
	r.nodes = append(r.nodes[:0], make([]node, len(s.Hosts))...)
	r.ends = append(r.ends[:0], make([]end, 2*(len(s.Hosts)-1))...)
	for i := range r.nodes {
		n := &r.nodes[i]
		n.number, n.bytes = i, make([]byte, r.cut.Room())
		n.toSwitch.reset(&s.Hosts[i].ToSwitch, i, true)
		n.toHost.reset(&s.Hosts[i].ToHost, i, false)
		err := n.memory.Register(rnic.Region{VA: virtualVA, RKey: virtualRKey, Access: rnic.RemoteWrite, Bytes: n.bytes})
		if err != nil {
			return err
		}
	}
	for host := 1; host < len(r.nodes); host++ {
		if err := r.connect(host); err != nil {
			return err
		}
	}
	return nil
}

// connect connects a receiver to the host from which it gets the messages.
func (r *relay) connect(receiver int) error {
	from := &r.nodes[r.shape(receiver)]
	pair := r.ends[2*(receiver-1):][:2]
	pair[0].node, pair[1].node = from, &r.nodes[receiver]
	for i := range pair {
		e := &pair[i]
		e.number, e.expireAt = 2*(receiver-1)+i, rnic.Never
		cfg := rnic.Config{
			MAC: hostMAC(e.node.number), IP: r.w.address(e.node.number), QPN: firstQPN + roce.QPN(e.number), MTUBytes: r.w.s.MTUBytes,
			Timeout: r.w.s.Timeout, RetryCount: r.w.s.RetryCount, RNRRetry: r.w.s.RNRRetry,
			SendDepth: r.w.s.Hosts[0].Outstanding * r.cut.Slices, RecvDepth: 1,
		}
		var err error
		if e.qp, err = rnic.NewQP(cfg, &e.node.memory); err != nil {
			return err
		}
	}
	for i := range pair {
		to := &pair[1-i]
		if err := pair[i].qp.Connect(r.w.peer(to.node.number, firstQPN+roce.QPN(to.number))); err != nil {
			return err
		}
	}
	from.next = append(from.next, &pair[0])
	return nil
}

// peer is a queue pair of a host, as that at the other end knows it.
func (w *world) peer(host int, qpn roce.QPN) rnic.Peer {
	return rnic.Peer{MAC: hostMAC(host), IP: w.address(host), QPN: qpn}
}

// post posts as many messages as the program of the source wants outstanding.
func (r *relay) post() {
	for r.posted < len(r.flights) && r.posted-r.done < r.w.s.Hosts[0].Outstanding {
		i := r.posted
		r.flights[i] = flight{postedAt: r.w.now, missing: r.cut.Slices * (len(r.nodes) - 1)}
		copy(r.nodes[0].bytes[r.cut.Offset(i*r.cut.Slices):], r.plan.data(i))
		r.posted++
		for k := range r.cut.Slices {
			r.nodes[0].passOn(i*r.cut.Slices + k)
		}
	}
	r.pump(&r.nodes[0])
}

// passOn makes a host send a slice that it has to the hosts that get it from there, one after the
// other.
func (n *node) passOn(number int) {
	for _, e := range n.next {
		n.todo = append(n.todo, slice{e, number})
	}
}

// pump sends the next packet of a host if its link is idle, and otherwise schedules itself for when
// the link will be idle.
func (r *relay) pump(n *node) {
	if n.sending || n.toSwitch.freeAt <= r.w.now && !r.transmit(n) {
		return
	}
	n.sending = true
	r.w.schedule.add(event{at: max(n.toSwitch.freeAt, r.w.now+1), kind: transmit, host: int32(n.number)})
}

// transmit sends one packet. Connections that have one take turns. The program posts a slice only
// when nothing that it posted before can be sent: so the slices leave one after the other.
func (r *relay) transmit(n *node) (sent bool) {
	i := r.w.pool.lend()
	f := r.w.pool.frames[i]
	for {
		for len(n.ready) > 0 {
			e := n.ready[0]
			n.ready, e.ready = n.ready[1:], false
			b := e.qp.Transmit(r.w.now, f.room())
			r.watchDeadline(e)
			if b != nil {
				e.wake()
				f.bytes, f.stream = len(b), int32(e.number)
				r.w.send(&n.toSwitch, i)
				return true
			}
		}
		if len(n.todo) == 0 {
			r.w.pool.giveBack(i)
			return false
		}
		r.postSlice(n.todo[0])
		n.todo = n.todo[1:]
	}
}

func (r *relay) postSlice(s slice) {
	at := r.cut.Offset(s.number)
	to := rnic.Remote{VA: virtualVA + uint64(at), RKey: virtualRKey}
	if err := s.over.qp.PostWrite(uint64(s.number), s.over.node.bytes[at:][:r.cut.Bytes(s.number)], to); err != nil {
		panic("sim: post: " + err.Error()) // the program keeps to the depth of the queue
	}
	s.over.wake()
}

// wake notes that a connection may have a packet to send.
func (e *end) wake() {
	if !e.ready {
		e.ready = true
		e.node.ready = append(e.node.ready, e)
	}
}

// receive hands frame i to the queue pair for which it is, and sends what the queue pair answers.
func (r *relay) receive(n *node, i int32) {
	f := r.w.pool.frames[i]
	var v roce.View
	if err := v.Decode(f.data(), f.bytes); err != nil {
		panic("sim: a frame that nothing damages cannot be read: " + err.Error())
	}
	e := &r.ends[v.DestQPN(f.data())-firstQPN]
	answer := r.w.pool.lend()
	a := r.w.pool.frames[answer]
	before := e.qp.Counters().Get(rnic.MessagesReceived)
	if reply := e.qp.ReceiveDecoded(r.w.now, &v, f.data(), a.room()); reply != nil {
		a.bytes = len(reply)
		r.w.send(&n.toSwitch, answer)
	} else {
		r.w.pool.giveBack(answer)
	}
	r.w.pool.giveBack(i)
	if e.qp.Counters().Get(rnic.MessagesReceived) != before {
		r.arrived(e)
	}
	r.afterQP(e)
}

// arrived lets the program of a host see a slice that has come whole. It polls the end of the slice
// in its memory.
func (r *relay) arrived(e *end) {
	number := e.arrived
	e.arrived++
	e.node.passOn(number)
	if number%r.cut.Slices < r.cut.Slices-1 {
		return
	}
	message := r.cut.Message(number)
	r.flights[message].arrivedAt = r.w.now
	first := r.cut.Offset(message * r.cut.Slices)
	if !bytes.Equal(e.node.bytes[first:][:r.cut.MessageBytes], r.plan.data(message)) {
		r.w.fail(Memory, "message %d is not in the memory of %s as it was sent", message, hostName(e.node.number))
	}
}

// afterQP takes the completions of a queue pair, and lets its host go on.
func (r *relay) afterQP(e *end) {
	done := r.done
	for {
		c, ok := e.qp.Poll()
		if !ok {
			break
		}
		if c.Status != rnic.Success {
			r.w.fail(Ends, "%s: %v", hostName(e.node.number), c)
			return
		}
		r.complete(r.cut.Message(int(c.WRID)))
	}
	e.wake()
	r.pump(e.node)
	if r.done != done {
		r.post()
	}
}

// complete notes that one more host has a slice of a message, as the host that sent it knows.
func (r *relay) complete(message int) {
	f := &r.flights[message]
	if f.missing--; f.missing == 0 {
		r.done++
		r.w.took = r.w.now
	}
}

// watchDeadline schedules an expire event for the next deadline of a queue pair.
func (r *relay) watchDeadline(e *end) {
	if d := e.qp.NextDeadline(); d < e.expireAt {
		e.expireAt = d
		r.w.schedule.add(event{at: d, kind: expire, host: int32(e.node.number), index: int32(e.number)})
	}
}

func (r *relay) expired(e *end) {
	if r.w.now < e.expireAt {
		return // an earlier event replaced this one
	}
	e.expireAt = rnic.Never
	e.qp.Tick(r.w.now)
	r.afterQP(e)
}
