package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
)

// cellStream is the random stream of a seed for DrawCell.
const cellStream = 4

// The hosts of a cell: the source, and receivers with a part each. The numbers are drawn.
const (
	cellReceivers = 4
	cellPackets   = 96
)

// KnownFailures are values with which runs fail, and why. A run of the matrix prints them, and
// fails when none of their runs fails any more: then the entry is deleted.
var KnownFailures = []matrix.Rule{}

// IsKnown reports whether a cell is among the known failures.
func IsKnown(c matrix.Cell) bool {
	return slices.ContainsFunc(KnownFailures, func(r matrix.Rule) bool { return c.Has(r.Of) })
}

// DrawCell makes the scenario of a cell of the matrix and a seed: one with several boxes if the
// cell has them. What the cell says is as it says; everything else is drawn, above all when things
// happen.
func DrawCell(c matrix.Cell, seed uint64) (s TreeScenario) {
	d := drawer{rand.New(rand.NewPCG(seed, cellStream))}
	tree, relays := c.Is("shape", "tree"), c.Is("ack", "quorum")
	if c.Is("shape", "racks") || tree && !relays {
		return d.treeCell(c, seed)
	}
	s.Scenario = Scenario{Seed: seed, Hosts: make([]Host, 1+cellReceivers)}
	d.cell(&s.Scenario, c)
	if tree {
		d.relays(&s.Scenario, c)
	}
	return s
}

// relays puts some receivers behind a box that passes on what is for them, as boxes do for a
// quorum. What happens to the switch or to a receiver's cable happens to that box or to the link to
// it as well.
func (d drawer) relays(s *Scenario, c matrix.Cell) {
	far := 2 + d.IntN(cellReceivers-1)
	for _, i := range d.Perm(cellReceivers)[:far] {
		s.Hosts[1+i].Far = true
	}
	s.FarLink = FarLink{Down: s.Hosts[1].ToHost, Up: s.Hosts[1].ToSwitch}
	if d.oneIn(3) {
		s.FarLink.Down.Delay += d.between(time.Microsecond, s.ackTimeout()/8)
	}
	s.Edges.Shares = c.Is("repair", "local") && !c.Is("regions", "table") && !c.Is("event", "region") && !d.oneIn(3)
	for k := range s.Timed {
		if f := &s.Timed[k]; (f.Kind == SwitchCrash || f.Kind == Cut) && d.oneIn(2) {
			f.Kind, f.Host = FarCrash, 0
		}
	}
	s.Limit *= 2
}

// RunCell plays a cell with a seed. Beside the invariants, the program of the first source has to
// hear what the cell promises.
func (r *Runner) RunCell(c matrix.Cell, seed uint64) (Result, error) {
	if why, ok := c.Runs(matrix.Simulation); !ok {
		return Result{}, fmt.Errorf("the cell is not simulated: %s", why)
	}
	s := DrawCell(c, seed)
	play := func() (Result, error) { return r.Run(s.Scenario) }
	if s.Boxes != nil {
		play = func() (Result, error) { return r.RunTree(s) }
	}
	result, err := play()
	result.expect(c)
	return result, err
}

// ReplayCell is RunCell that also returns the last lines of the story, and the scenario.
func (r *Runner) ReplayCell(c matrix.Cell, seed uint64, lines int) (result Result, story []string, err error) {
	s := DrawCell(c, seed)
	if s.Boxes != nil {
		result, story, err = r.ReplayTree(s, lines)
		story = append([]string{s.String()}, story...)
	} else {
		result, story, err = r.Replay(s.Scenario, lines, nil)
		story = append([]string{s.Scenario.String()}, story...)
	}
	result.expect(c)
	return result, story, err
}

// expect makes a result whose invariants held a failure, if the program of the first source heard
// what the cell does not promise. A queue pair lives, with these exceptions:
//   - a receiver refuses a WRITE, and the group's policy does not let it go on without that
//     receiver;
//   - the source waits in vain after that, because the NAK was lost or the turn of another one has
//     failed;
//   - a quorum cannot be had any more;
//   - no question could reach a source behind a crash, which lost its turn inside a message;
//   - the source has lost its turn by force, and waits in vain for an ACK, or it goes on without
//     those who were left behind, because the turn could not be stored; of those who are left one
//     that refuses a WRITE cannot be spared.
func (r *Result) expect(c matrix.Cell) {
	ok, refused := r.Status == rnic.Success, c.Is("event", "refused")
	switch r.Status {
	case rnic.RemoteAccess:
		ok = refused && (c.Is("on-fatal", "fail") || c.Is("ack", "quorum") || c.Is("source-switch", "force"))
	case rnic.RetryExceeded:
		ok = refused || c.MayLoseQuorum() || c.Is("source-switch", "force")
	case rnic.RemoteInvalidRequest:
		ok = r.CutDeaf
	case rnic.RemoteOperational:
		ok = c.MayLoseQuorum() || c.Is("source-switch", "force")
	}
	if r.Failure == nil && !ok {
		r.Failure = &Failure{Ends, r.Took, fmt.Sprintf("the program of the first source heard: %v", r.Status)}
	}
}

// cell draws a scenario with one box.
func (d drawer) cell(s *Scenario, c matrix.Cell) {
	d.say(s, c)
	d.network(s)
	d.lossOf(s, c)
	part := d.Perm(cellReceivers) // who does what: each does one thing at most
	for i := range part {
		part[i]++
	}
	d.happens(s, c, part[0])
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.SendPSN, h.RecvPSN, h.Receiver = d.psn(), d.psn(), i > 0
	}
	if !c.Is("source-switch", "none") {
		s.Hosts[0].Receiver = true
		d.takesOver(s, part[1])
		if c.Is("event", "switch") {
			d.takesOver(s, part[2])
		}
	}
	d.writes(s, cellPackets)
	if c.Is("ack", "quorum") {
		s.Policy.Ack = feedback.AckPolicy(1 + d.IntN(s.always()))
	}
	d.silence(s, c)
	s.RetryCount, s.RNRRetry, s.Limit = retryForEver, retryForEver, s.longEnough()
	if c.Is("event", "refused") || c.MayLoseQuorum() || c.Is("source-switch", "force") { // then sources may wait in vain
		s.RetryCount = uint8(3 + d.IntN(4))
	}
	if c.Is("repair", "local") {
		s.Policy.Repair, s.RepairChunks = feedback.RepairLocal, 1<<12
	}
	d.engine(s)
	d.turns(s)
	if c.Is("edge", "shared") {
		d.edges(s, cellPackets)
		if !c.Is("loss", "legs") { // a shared copy is lost on the way to the receivers
			s.Edges.Loss = 0
		}
	}
	if c.Is("event", "restart") {
		s.StoreAfter = 1
	} else if c.Is("event", "kill") && d.oneIn(2) {
		s.StoreAfter = d.between(time.Microsecond, s.ackTimeout())
	}
}

// say sets what a cell says of the group.
func (d drawer) say(s *Scenario, c matrix.Cell) {
	s.Addressing = must(mft.ParseAddressing(c.Get("addressing")))
	s.IPv6, s.Tagged, s.FanOut = c.Is("family", "ipv6"), c.Is("tag", "vlan"), c.Is("engine", "auto")
	s.MTUBytes = must(strconv.Atoi(c.Get("mtu")))
	for _, name := range []string{"nak", "on-fatal"} {
		i := slices.IndexFunc(feedback.Keys, func(k feedback.Key) bool { return k.Name == name })
		if err := feedback.Keys[i].Set(&s.Policy, c.Get(name)); err != nil {
			panic("sim: a value of the matrix: " + name + " " + err.Error())
		}
	}
	if c.Is("source-switch", "force") {
		s.Policy.Switch = feedback.SwitchForce
	}
	switch c.Get("regions") {
	case "one":
		s.Regions = 1
	case "many":
		s.Regions = 2
	case "table":
		s.Regions, s.Unused = 2, 700
	}
}

// must returns a value that a cell has.
func must[T any](v T, err error) T {
	if err != nil {
		panic("sim: a value of the matrix: " + err.Error())
	}
	return v
}

// lossOf draws how much is lost where the cell says.
func (d drawer) lossOf(s *Scenario, c matrix.Cell) {
	rate := pick(d, 1e-2, 3e-2, 1e-1)
	s.eachLink(func(l *Link) { l.QueueBytes = cellPackets * (4096 + 128) }) // nothing else is lost
	for i := range s.Hosts {
		h := &s.Hosts[i]
		switch {
		case c.Is("loss", "legs") && i > 0:
			h.ToHost.Loss = rate
		case c.Is("loss", "uplink") && i == 0:
			h.ToSwitch.Loss = rate
		case c.Is("loss", "answers") && i == 0:
			h.ToHost.Loss = rate
		case c.Is("loss", "answers"):
			h.ToSwitch.Loss = rate
		}
	}
}

// happens draws the event of a cell. It happens to a receiver, or to the switch.
func (d drawer) happens(s *Scenario, c matrix.Cell, receiver int) {
	kinds := map[string]Fault{
		"restart": SwitchCrash, "kill": SwitchCrash, "join": Join, "leave": Leave, "cut": Cut, "refused": KeyLost,
		"region": MemoryChange, "route-moved": NextHop,
	}
	kind, ok := kinds[c.Get("event")]
	if !ok {
		return
	}
	f := d.moment(kind, cellPackets/2)
	switch kind {
	case SwitchCrash:
		f.For = d.between(s.ackTimeout()/50, 3*s.ackTimeout())
	case Cut:
		f.Host, f.For = receiver, d.between(s.ackTimeout()/50, 3*s.ackTimeout())
	case Join:
		f.Host, f.For, s.Hosts[receiver].Outside = receiver, s.confirmsAfter(), true
	case Leave, KeyLost:
		f.Host = receiver
	}
	s.Timed = append(s.Timed, f)
}

// takesOver makes a receiver the source when some packets of the first source have been sent.
func (d drawer) takesOver(s *Scenario, receiver int) {
	f := d.moment(SourceChange, cellPackets)
	f.Host = receiver
	s.Timed = append(s.Timed, f)
}

// writes draws what the sources send, and how well the receivers keep up.
func (d drawer) writes(s *Scenario, packets int) {
	d.messages(s, &s.Hosts[0], packets)
	for i := range s.Timed {
		if f := &s.Timed[i]; f.Kind == SourceChange {
			d.messages(s, &s.Hosts[f.Host], 1+packets/4)
		}
	}
	if s.has(KeyLost) { // only a WRITE can be refused
		for i := range s.Hosts[0].Messages {
			s.Hosts[0].Messages[i].Op = rnic.Write
		}
	}
	d.targets(s)
	d.receives(s)
}

// silence draws when a receiver counts as silent, and sets whether it is evicted then.
func (d drawer) silence(s *Scenario, c matrix.Cell) {
	if s.Policy.Evict = c.Is("evict", "yes"); s.Policy.Evict || d.oneIn(4) {
		s.Policy.SilentAfter = d.between(2*s.ackTimeout(), 4*s.ackTimeout()) // else lost answers put all receivers out, one after the other
	}
}

// treeCell makes the scenario of a cell with several boxes, perhaps in racks.
func (d drawer) treeCell(c matrix.Cell, seed uint64) TreeScenario {
	shapes := treeShapes
	if c.Is("shape", "racks") {
		shapes = rackShapes
	}
	s := d.tree(shapes)
	if len(s.At) == 2 { // the source and one receiver, without which nobody is left
		s.At = append(s.At, 0)
	}
	s.Scenario = Scenario{Seed: seed, Hosts: make([]Host, len(s.At)+len(s.Boxes))} // the last are links, for now
	d.say(&s.Scenario, c)
	d.network(&s.Scenario)
	d.lossOf(&s.Scenario, c)
	for b := range s.Boxes {
		l := &s.Hosts[len(s.At)+b]
		s.Boxes[b].Up, s.Boxes[b].Down = l.ToSwitch, l.ToHost
	}
	s.Hosts = s.Hosts[:len(s.At)]
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.SendPSN, h.RecvPSN, h.Receiver = d.psn(), d.psn(), i > 0
	}
	if s.RetryCount = retryForEver; c.Is("event", "refused") { // only a WRITE can be refused
		s.Timed = append(s.Timed, d.moment(KeyLost, cellPackets/2))
	}
	d.writes(&s.Scenario, cellPackets)
	for b := range s.Boxes {
		x := &s.Boxes[b]
		x.Policy, x.DownPSN, x.FanOut = s.Policy, d.psn(), s.FanOut
		if c.Is("repair", "local") {
			x.Policy.Repair, x.Chunks = feedback.RepairLocal, 1<<12
		}
	}
	if c.Is("shape", "racks") {
		d.cellRacks(&s, c)
	}
	switch f := d.moment(SwitchCrash, cellPackets/2); c.Get("event") {
	case "restart", "kill":
		f.Host, f.For = d.IntN(len(s.Boxes)), d.between(s.ackTimeout()/50, 3*s.ackTimeout())
		s.Timed = append(s.Timed, f)
	case "cut":
		f.Kind, f.For = Cut, d.between(s.ackTimeout()/50, 3*s.ackTimeout())
		if f.Host = 1 + d.IntN(len(s.Hosts)+len(s.Boxes)-2); f.Host >= len(s.Hosts) {
			f.Host++ // the root has no link to a box above
		}
		s.Timed = append(s.Timed, f)
	case "route-moved":
		d.moves(&s, cellPackets/2)
	case "join":
		d.comesOrGoes(&s, Join, cellPackets/2)
	case "leave":
		d.comesOrGoes(&s, Leave, cellPackets/2)
	case "region":
		d.memoryChanges(&s, cellPackets/2)
	}
	parts := drawer{rand.New(rand.NewPCG(seed, partStream))}
	parts.ends(&s, c)
	s.endless()
	return s
}

// comesOrGoes draws a host or a box that joins or leaves.
func (d drawer) comesOrGoes(s *TreeScenario, kind Fault, packets int) {
	if !d.oneIn(2) || !d.hostChanges(s, kind, packets) {
		d.boxChanges(s, kind, packets)
	}
}

// ends draws which receiver ends where the cell says so, and whether boxes go on without those that
// are silent. Where they do, a receiver dies in many cells.
func (d drawer) ends(s *TreeScenario, c matrix.Cell) {
	dies := c.Is("evict", "yes")
	if dies || d.oneIn(4) {
		d.silent(s, dies)
	}
	victim, ok := d.victim(s)
	for i := range s.Timed {
		if f := &s.Timed[i]; f.Kind == KeyLost {
			if f.Host = victim; !dies { // the NAK may be lost, and then the source waits in vain
				s.RetryCount = uint8(3 + d.IntN(4))
			}
		}
	}
	if dies && ok && !s.has(KeyLost, Move) && !d.oneIn(4) {
		f := d.moment(ReceiverCrash, cellPackets/2)
		f.Host = victim
		s.Timed = append(s.Timed, f)
	}
}

// cellRacks draws the racks of a cell. Shared copies stop coming to boxes, and come again.
func (d drawer) cellRacks(s *TreeScenario, c matrix.Cell) {
	for up := range s.Boxes {
		if below := s.below(up); len(below) > 1 {
			d.racksBelow(s, below)
		}
	}
	for k := range s.Racks {
		r := &s.Racks[k]
		if !c.Is("loss", "legs") { // a shared copy is lost on the way to the receivers
			r.Loss = 0
		}
		if f := d.moment(EdgeDies, cellPackets/2); d.oneIn(2) {
			f.Host, f.For = len(s.Hosts)+pick(d, r.Boxes...), d.between(s.ackTimeout()/50, 3*s.ackTimeout())
			s.Timed = append(s.Timed, f)
		}
	}
}
