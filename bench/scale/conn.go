package scale

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

const (
	// firstPSN lets the PSNs of every connection wrap early.
	firstPSN roce.PSN = 0xFFFFF0

	// postedMessages are what a program keeps posted. The window of the requester is shorter.
	postedMessages = 4

	retryForEver = 7
)

// All requesters have one address, and all responders another: the links know where a packet goes.
var (
	requesterMAC = roce.MAC{2, 0, 0, 0, 0, 1}
	responderMAC = roce.MAC{2, 0, 0, 0, 0, 2}
	requesterIP  = netip.AddrFrom4([4]byte{10, 0, 0, 1})
	responderIP  = netip.AddrFrom4([4]byte{10, 0, 0, 2})
)

const (
	requesterQPN roce.QPN = 17
	responderQPN roce.QPN = 18
	remoteVA              = 1 << 32
	remoteRKey            = 0x77
)

// conn is a requester at a host: the source of a group, or one end of a connection, which then has
// the responder at the other end as well.
type conn struct {
	number   int32
	host     int
	qp       *rnic.QP
	memory   rnic.Memory
	ready    bool // it is in the list of its host
	expireAt time.Duration

	// What its program sends. A relay posts by itself.
	bytes     int64 // in all
	messages  int
	posted    int
	completed int
	sent      uint64 // packets
	beganAt   Time
	heardAt   Time // when the program heard that everything is delivered

	group       *Group // or
	there, back []int32
	receiver    responder
	taken       uint64 // packets that the receiver took
	arrival
	relay *Relay
	node  int // of the relay, at the other end
}

func (n *Net) newConn(host int, depth int) (*conn, error) {
	c := &conn{number: int32(len(n.conns)), host: host, expireAt: rnic.Never, receiver: responder{psn: firstPSN}}
	var err error
	c.qp, err = rnic.NewQP(rnic.Config{
		MAC: requesterMAC, IP: requesterIP, QPN: requesterQPN, SendPSN: firstPSN, MTUBytes: n.MTUBytes,
		Timeout: n.Timeout, RetryCount: retryForEver, RNRRetry: retryForEver, SendDepth: depth, RecvDepth: 1, RateControl: n.RateControl,
	}, &c.memory)
	if err != nil {
		return nil, err
	}
	if err := c.qp.Connect(rnic.Peer{MAC: responderMAC, IP: responderIP, QPN: responderQPN}); err != nil {
		return nil, err
	}
	n.conns = append(n.conns, c)
	return c, nil
}

// Flow is a unicast connection over which a host sends something to another one.
type Flow struct{ conn *conn }

// Began returns when the flow began.
func (f Flow) Began() Time { return f.conn.beganAt }

// Arrived returns when the receiver had everything; 0: it has not.
func (f Flow) Arrived() Time { return f.conn.Arrived() }

// Then makes do run as soon as the receiver has everything.
func (f Flow) Then(do func()) { f.conn.Then(do) }

// Bytes returns how much the flow is to bring.
func (f Flow) Bytes() int64 { return f.conn.bytes }

// Delivered returns how many packets the receiver has in order.
func (f Flow) Delivered() int { return int(f.conn.receiver.psn.Sub(firstPSN)) }

// Send makes a host send bytes to another one, from now on.
func (n *Net) Send(from, to int, bytes int64) (Flow, error) {
	if from == to || from >= n.Hosts() || to >= n.Hosts() {
		return Flow{}, fmt.Errorf("no flow from host %d to host %d of %d", from, to, n.Hosts())
	}
	c, err := n.connect(from, to, postedMessages)
	if err != nil {
		return Flow{}, err
	}
	n.start(c, bytes)
	return Flow{c}, nil
}

// connect makes a connection between two hosts.
func (n *Net) connect(from, to, depth int) (*conn, error) {
	c, err := n.newConn(from, depth)
	if err != nil {
		return nil, err
	}
	choice := scatter(n.Seed, uint64(c.number))
	c.there, c.back = n.way(from, to, choice), n.way(to, from, choice)
	return c, nil
}

// scatter mixes two numbers into one that looks random (the finalizer of SplitMix64).
func scatter(a, b uint64) uint64 {
	x := a*0x9E3779B97F4A7C15 + b + 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// start makes the program of a connection send bytes.
func (n *Net) start(c *conn, bytes int64) {
	c.bytes, c.beganAt = bytes, n.now
	each := int64(n.MessageBytes)
	c.messages = int(max(1, (bytes+each-1)/each))
	n.postMore(c)
	n.pump(c.host)
}

// postMore posts as many messages as the program keeps posted.
func (n *Net) postMore(c *conn) {
	for c.posted < c.messages && c.posted-c.completed < postedMessages {
		each := int64(n.MessageBytes)
		n.post(c, int(min(c.bytes-int64(c.posted)*each, each)))
	}
}

func (n *Net) post(c *conn, bytes int) {
	to := rnic.Remote{VA: remoteVA, RKey: remoteRKey}
	if err := c.qp.PostWrite(uint64(c.posted), n.zeros[:bytes], to); err != nil {
		panic("scale: post: " + err.Error()) // the program keeps to the depth of the queue
	}
	c.posted++
	n.wake(c)
}

// wake notes that a connection may have a packet to send.
func (n *Net) wake(c *conn) {
	if !c.ready {
		c.ready = true
		n.nics[c.host].ready = append(n.nics[c.host].ready, c.number)
	}
}

// pump sends the next packet of a host if its link is idle, and otherwise schedules itself for when
// the link will be idle.
func (n *Net) pump(host int) {
	h, l := &n.nics[host], &n.links[hostLink(host)]
	if h.sending || l.idleAt <= n.now && !n.transmit(host) {
		return
	}
	h.sending = true
	n.calendar.add(event{at: max(l.idleAt, n.now+1), kind: pump, index: int32(host)})
}

// transmit sends one packet. Connections that have one take turns. A program that passes messages
// on posts a slice only when nothing that it posted before can be sent.
func (n *Net) transmit(host int) (sent bool) {
	h := &n.nics[host]
	for {
		for len(h.ready) > 0 {
			c := n.conns[h.ready[0]]
			h.ready, c.ready = h.ready[1:], false
			frame := c.qp.Transmit(n.duration(), n.buf[:])
			n.watchDeadline(c)
			if frame != nil {
				n.wake(c)
				p := n.request(c, frame)
				n.send(hostLink(host), &p)
				return true
			}
		}
		if len(h.todo) == 0 {
			return false
		}
		s := h.todo[0]
		h.todo = h.todo[1:]
		n.post(s.over, s.bytes)
	}
}

// request returns the packet for a frame that a requester has built.
func (n *Net) request(c *conn, frame []byte) packet {
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		panic("scale: a requester built a bad frame: " + err.Error())
	}
	c.sent++
	p := packet{
		flow: c.number, psn: v.PSN(frame), bytes: uint16(len(frame)), ackReq: v.AckReq(frame),
		first: !v.Opcode.IsMiddle() && !v.Opcode.IsLast(), last: !v.Opcode.IsFirst() && !v.Opcode.IsMiddle(),
	}
	if c.group != nil {
		p.flow, p.group = c.group.number, true
	}
	return p
}

// watchDeadline schedules an expire event for the next deadline of a queue pair. If the deadline
// moves later, the event looks at it again.
func (n *Net) watchDeadline(c *conn) {
	if d := c.qp.NextDeadline(); d < c.expireAt {
		c.expireAt = d
		n.calendar.add(event{at: max(Time(d)*Nanosecond, n.now), kind: expire, index: c.number})
	}
}

func (n *Net) expired(c *conn) {
	if n.duration() < c.expireAt {
		return // an earlier event replaced this one
	}
	c.expireAt = rnic.Never
	c.qp.Tick(n.duration())
	n.afterQP(c)
}

// passOn takes a packet of a connection at the end of a link.
func (n *Net) passOn(p *packet) {
	c := n.conns[p.flow]
	way := c.back
	if p.kind == data {
		way = c.there
	}
	p.path++
	switch {
	case int(p.path) < len(way):
		n.send(way[p.path], p)
	case p.kind == data:
		n.deliver(c, p)
	default:
		n.hear(c, p)
	}
}

// deliver hands a request to the responder of a connection.
func (n *Net) deliver(c *conn, p *packet) {
	c.taken++
	before := c.receiver.msn
	psn, syndrome, answers := c.receiver.receive(p)
	reply := packet{flow: p.flow, msn: c.receiver.msn}
	if answers {
		reply.kind, reply.psn, reply.syndrome, reply.bytes = answer, psn, syndrome, answerBytes
		n.send(c.back[0], &reply)
	}
	if c.receiver.notify(n.now, Time(n.CNPInterval)*Nanosecond, p) {
		reply.kind, reply.bytes = notice, noticeBytes
		n.send(c.back[0], &reply)
	}
	if c.receiver.msn == before {
		return
	}
	if int(c.receiver.msn) == c.messages {
		c.arrival.note(n)
	}
	if c.relay != nil {
		c.relay.arrived(n, c.node)
	}
}

// hear hands an answer to a requester.
func (n *Net) hear(c *conn, p *packet) {
	if reply := c.qp.Receive(n.duration(), n.buildAnswer(p), nil); reply != nil {
		panic("scale: a requester answers an answer")
	}
	if v, any := c.qp.Violation(); any {
		n.fail("connection %d: %v", c.number, v)
	}
	n.afterQP(c)
}

// buildAnswer returns the frame of an answer.
func (n *Net) buildAnswer(p *packet) []byte {
	ip := roce.IPUDP{Src: responderIP, Dst: requesterIP, HopLimit: 64, SrcPort: 0xC000}
	b := roce.AppendEthernet(n.answerBuf[:0], requesterMAC, responderMAC, ip.EtherType())
	if p.kind == notice {
		h := roce.CNPHeader(requesterQPN)
		var body roce.CNP
		b = body.Append(h.Append(ip.Append(b, roce.BTHBytes+roce.CNPBytes)))
	} else {
		bth := roce.BTH{Opcode: roce.OpAck, PKey: roce.DefaultPKey, DestQPN: requesterQPN, PSN: p.psn}
		aeth := roce.AETH{Syndrome: p.syndrome, MSN: p.msn}
		b = aeth.Append(bth.Append(ip.Append(b, roce.BTHBytes+roce.AETHBytes)))
	}
	b, err := roce.AppendICRC(b)
	if err != nil {
		panic("scale: built a bad answer: " + err.Error())
	}
	return b
}

// afterQP takes the completions of a queue pair, and lets its host go on.
func (n *Net) afterQP(c *conn) {
	for {
		done, ok := c.qp.Poll()
		if !ok {
			break
		}
		if done.Status != rnic.Success || done.WRID != uint64(c.completed) {
			n.fail("connection %d: %v, where message %d was next", c.number, done, c.completed)
			return
		}
		c.completed++
		n.checkCompleted(c)
	}
	if c.completed == c.messages && c.heardAt == 0 {
		c.heardAt = n.now
	}
	if c.relay == nil {
		n.postMore(c)
	}
	n.wake(c)
	n.watchDeadline(c)
	n.pump(c.host)
}
