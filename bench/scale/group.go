package scale

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/rocast/rocast/ctl/tree"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Group is a multicast group: a tree of boxes, planned by the boxes themselves.
type Group struct {
	name      string
	number    int32
	policy    feedback.Policy
	boxes     []box // the first one is the root
	receivers []receiver
	source    *conn
	missing   int // receivers that do not have everything
	acts      []feedback.Action
	arrival
}

// box is the box at one switch, as far as one group is concerned.
type box struct {
	site
	number   int32
	parent   int32 // nobody: the root
	path     int32 // of this box at its parent
	up       int32 // link to the parent, or to the source
	paths    []path
	below    []int32 // receivers at this box and behind it
	state    *feedback.Group
	retained []packet // the newest packets, by PSN, with repair
	tickAt   Time     // when the next tick event is; 0: none is scheduled
	repaired uint64
}

// path is a receiver or a box below.
type path struct {
	link int32
	to   int32 // as packet.to
}

// receiver is a member that receives.
type receiver struct {
	responder
	host      int
	box, path int32
	taken     uint64
	arrivedAt Time
}

// NewGroup makes a group and sets up its tree.
func (n *Net) NewGroup(source int, receivers []int, policy feedback.Policy) (*Group, error) {
	g := &Group{name: fmt.Sprintf("group-%d", len(n.groups)), number: int32(len(n.groups)), policy: policy}
	for _, h := range receivers {
		if h < 0 || h >= n.Hosts() || h == source {
			return nil, fmt.Errorf("host %d cannot be a receiver: the source is %d, and there are %d hosts", h, source, n.Hosts())
		}
		g.receivers = append(g.receivers, receiver{host: h, responder: responder{psn: firstPSN}})
	}
	var err error
	if g.source, err = n.newConn(source, postedMessages); err != nil {
		return nil, err
	}
	g.source.group = g
	all := make([]int32, len(receivers))
	for i := range all {
		all[i] = int32(i)
	}
	root := site{edge, n.edgeOf(source), 0}
	g.register(n, root, nobody, 0, hostLink(source)+down, all)
	most := 0
	for i := range g.boxes {
		g.open(&g.boxes[i])
		most = max(most, len(g.boxes[i].paths))
	}
	g.acts = make([]feedback.Action, 0, feedback.MaxActions(most))
	n.groups = append(n.groups, g)
	return g, nil
}

// register makes a box plan its part, and asks the boxes that it needs, as
// ctl/branches/register.go does.
func (g *Group) register(n *Net, at site, parent, pathThere, up int32, members []int32) (number int32) {
	number = int32(len(g.boxes))
	b := box{site: at, number: number, parent: parent, path: pathThere, up: up, below: members}
	asked := map[string]site{}
	list := make([]tree.Member, len(members))
	for i, m := range members {
		for _, next := range n.through(at, g.receivers[m].host) {
			name := next.name()
			asked[name] = next
			list[i].Through = append(list[i].Through, name)
		}
	}
	given := tree.Plan(g.name, list, func(neighbour string) int { return n.load[[2]site{at, asked[neighbour]}] })
	var neighbours []string
	for i, m := range members {
		switch r := &g.receivers[m]; {
		case given[i] == "":
			r.box, r.path = number, int32(len(b.paths))
			b.paths = append(b.paths, path{link: hostLink(r.host) + down, to: toReceiver(m)})
		case !slices.Contains(neighbours, given[i]):
			neighbours = append(neighbours, given[i])
		}
	}
	g.boxes = append(g.boxes, b)
	for _, name := range neighbours {
		next := asked[name]
		n.load[[2]site{at, next}]++
		var behind []int32
		for i, m := range members {
			if given[i] == name {
				behind = append(behind, m)
			}
		}
		there, back := n.between(at, next, uint64(g.number))
		p := int32(len(g.boxes[number].paths))
		child := g.register(n, next, number, p, back, behind)
		g.boxes[number].paths = append(g.boxes[number].paths, path{link: there, to: child})
	}
	return number
}

// toReceiver is packet.to of a packet to a receiver. Boxes have their numbers.
func toReceiver(r int32) int32 { return -2 - r }

// open makes the state of a box.
func (g *Group) open(b *box) {
	b.state = feedback.New(feedback.Config{Policy: g.policy, Paths: len(b.paths), FirstPSN: firstPSN})
	if g.policy.Repair != feedback.RepairOff {
		window := uint(g.policy.WithDefaults().RepairWindow)
		b.retained = make([]packet, 2<<bits.Len(window))
	}
}

// Send makes the source send bytes to all receivers, from now on. A group sends once.
func (g *Group) Send(n *Net, bytes int64) {
	g.missing = len(g.receivers)
	n.start(g.source, bytes)
}

// Began returns when the source began to send.
func (g *Group) Began() Time { return g.source.beganAt }

// Heard returns when the program of the source heard that; 0: not yet.
func (g *Group) Heard() Time { return g.source.heardAt }

// Resent returns how many packets the source sent again, and how many the boxes did.
func (g *Group) Resent() (source, boxes uint64) {
	for i := range g.boxes {
		boxes += g.boxes[i].repaired
	}
	return g.source.resent(), boxes
}

// Delivered returns how many packets the slowest receiver has in order.
func (g *Group) Delivered() int {
	slowest := int(g.receivers[0].psn.Sub(firstPSN))
	for i := range g.receivers {
		slowest = min(slowest, int(g.receivers[i].psn.Sub(firstPSN)))
	}
	return slowest
}

// arrived takes a packet of the group at the end of a link.
func (g *Group) arrived(n *Net, p *packet) {
	switch {
	case p.kind == data && p.to < nobody:
		g.deliver(n, -2-p.to, p)
	case p.kind == data:
		b := &g.boxes[p.to]
		ev := feedback.Event{Kind: feedback.Data, PSN: p.psn, AckReq: p.ackReq, First: p.first, Last: p.last}
		outcome := g.step(n, b, &ev, p)
		if b.retained != nil && outcome == feedback.Forwarded {
			*b.slot(p.psn) = *p
		}
		if outcome == feedback.OutsideWindow || outcome == feedback.Refused {
			n.fail("%s: box %s takes packet %#x for %v", g.name, b.name(), p.psn, outcome)
		}
	case p.to == nobody:
		n.hear(g.source, p)
	case p.kind == answer:
		g.step(n, &g.boxes[p.to], &feedback.Event{Kind: feedback.Response, Path: int(p.path), PSN: p.psn, Syndrome: p.syndrome, MSN: p.msn}, p)
	default:
		g.step(n, &g.boxes[p.to], &feedback.Event{Kind: feedback.CNP, Path: int(p.path)}, p)
	}
}

func (b *box) slot(psn roce.PSN) *packet { return &b.retained[int(psn)&(len(b.retained)-1)] }

// step lets the merging of a box handle an event, and does what the merging says.
func (g *Group) step(n *Net, b *box, ev *feedback.Event, p *packet) (outcome feedback.Outcome) {
	now := feedback.Tick(n.now / Nanosecond)
	g.acts, outcome = b.state.Step(now, *ev, g.acts[:0])
	for i := range g.acts {
		switch a := &g.acts[i]; a.Kind {
		case feedback.Copy:
			again := *p
			again.to = b.paths[a.Path].to
			n.send(b.paths[a.Path].link, &again)
		case feedback.Repair:
			g.repair(n, b, a)
		case feedback.Reply:
			g.checkReply(n, b, a)
			n.send(b.up, &packet{
				flow: g.number, group: true, kind: answer, to: b.parent, path: b.path, psn: a.PSN, msn: a.MSN, syndrome: a.Syndrome, bytes: answerBytes,
			})
		case feedback.PassCNP:
			n.send(b.up, &packet{flow: g.number, group: true, kind: notice, to: b.parent, path: b.path, bytes: noticeBytes})
		default:
			if a.Kind != feedback.Notice || a.Note != feedback.NoteRepairing {
				n.fail("%s: box %s: unexpected %+v", g.name, b.name(), *a)
			}
		}
	}
	g.await(n, b, now)
	return outcome
}

// repair sends a retained packet again.
func (g *Group) repair(n *Net, b *box, a *feedback.Action) {
	again := *b.slot(a.PSN)
	if again.psn != a.PSN {
		n.fail("%s: box %s is to send packet %#x again, which it does not have", g.name, b.name(), a.PSN)
	}
	b.repaired++
	again.to = b.paths[a.Path].to
	again.ackReq = again.ackReq || a.AckReq
	n.send(b.paths[a.Path].link, &again)
}

// await schedules the next tick of a box, if its merging waits for something. An earlier tick is
// never put off (dataplane/waiting.go).
func (g *Group) await(n *Net, b *box, now feedback.Tick) {
	if b.retained == nil || !b.state.Waiting() {
		return
	}
	if due := Time(b.state.Due(now)) * Nanosecond; b.tickAt == 0 || due < b.tickAt {
		b.tickAt = due
		n.calendar.add(event{at: due, kind: tick, index: b.number, packet: packet{flow: g.number}})
	}
}

// ticked lets time pass for a box, unless it has an earlier tick.
func (n *Net) ticked(g *Group, b *box) {
	if n.now != b.tickAt {
		return
	}
	b.tickAt = 0
	if b.state.Waiting() {
		g.step(n, b, &feedback.Event{Kind: feedback.Timer}, nil)
	}
}

// deliver hands a request to a receiver.
func (g *Group) deliver(n *Net, number int32, p *packet) {
	r := &g.receivers[number]
	r.taken++
	before := r.msn
	psn, syndrome, answers := r.receive(p)
	reply := packet{flow: g.number, group: true, to: r.box, path: r.path, msn: r.msn}
	if answers {
		reply.kind, reply.psn, reply.syndrome, reply.bytes = answer, psn, syndrome, answerBytes
		n.send(hostLink(r.host), &reply)
	}
	if r.notify(n.now, Time(n.CNPInterval)*Nanosecond, p) {
		reply.kind, reply.bytes = notice, noticeBytes
		n.send(hostLink(r.host), &reply)
	}
	if r.msn != before && int(r.msn) == g.source.messages {
		r.arrivedAt = n.now
		if g.missing--; g.missing == 0 {
			g.arrival.note(n)
		}
	}
}
