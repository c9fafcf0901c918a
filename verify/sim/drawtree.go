package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
)

// Random streams of a seed for DrawTree, for whether members take turns, and for racks.
const (
	treeStream     = 3
	treeTurnStream = 7
	rackStream     = 10
	partStream     = 11 // who is evicted, and which hosts come and go
)

// The boxes above box 1, 2 and so on, in the trees that are drawn: two and three levels.
var treeShapes = [][]int{{0}, {0}, {0, 0}, {0, 1}, {0, 1}, {0, 0, 0}, {0, 0, 1}, {0, 1, 1}, {0, 0, 1, 2}, {0, 0, 0, 0}}

// The same where boxes are in racks: some box has two or more below it.
var rackShapes = [][]int{{0, 0}, {0, 0, 0}, {0, 0, 1}, {0, 1, 1}, {0, 0, 0, 0}}

// DrawTree makes the scenario of a seed through a tree of boxes. Every fault of a single frame
// befalls every link, and boxes crash. The source waits for all members, for as long as it takes.
// In half of the trees members take turns. In many others boxes are in racks, and boxes join the
// running group or leave it, with everybody below them.
func DrawTree(seed uint64) TreeScenario {
	d := drawer{rand.New(rand.NewPCG(seed, treeStream))}
	s := d.tree(treeShapes)
	packets := 1 + d.IntN(StandardPackets)
	s.Scenario = Scenario{Seed: seed, Hosts: make([]Host, len(s.At)+len(s.Boxes))} // the last are links, for now
	d.policy(&s.Scenario)
	s.Policy.Credits = feedback.CreditsUnlimited
	if s.Addressing == mft.ByVirtualQPN {
		s.Addressing = mft.ByGroupIP
	}
	d.network(&s.Scenario)
	d.faults(&s.Scenario)
	if d.oneIn(8) {
		s.eachLink(func(l *Link) { l.Loss, l.Duplicate, l.Reorder, l.Late, l.Damage = 0, 0, 0, 0, 0 })
	}
	for b := range s.Boxes {
		l := &s.Hosts[len(s.At)+b]
		s.Boxes[b].Up, s.Boxes[b].Down = l.ToSwitch, l.ToHost
	}
	s.Hosts = s.Hosts[:len(s.At)]
	d.treeFaults(&s, packets)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.SendPSN, h.RecvPSN, h.Receiver = d.psn(), d.psn(), i > 0
	}
	turner := drawer{rand.New(rand.NewPCG(seed, treeTurnStream))}
	turner.treeTurns(&s, packets)
	d.programs(&s.Scenario, packets)
	for k := range s.Hosts[0].Messages {
		if m := &s.Hosts[0].Messages[k]; m.Op == rnic.Read { // no group carries one
			m.Op = rnic.Write
		}
	}
	d.boxes(&s)
	if s.TakeTurns {
		turner.betweenTurns(&s)
	} else {
		d.moves(&s, packets)
		racker := drawer{rand.New(rand.NewPCG(seed, rackStream))}
		racker.racks(&s, packets)
		if !s.has(Move) && racker.oneIn(3) {
			racker.boxChanges(&s, Join, packets)
		}
	}
	if s.RetryCount = retryForEver; !s.TakeTurns && !s.has(Move) {
		parts := drawer{rand.New(rand.NewPCG(seed, partStream))}
		parts.parts(&s, packets)
	}
	s.endless()
	return s
}

// parts draws hosts that come and go, that end, and that boxes go on without; and changes of the
// memory.
func (d drawer) parts(s *TreeScenario, packets int) {
	if s.Regions > 0 && d.oneIn(4) {
		d.memoryChanges(s, packets)
	}
	for _, kind := range []Fault{Join, Leave} {
		if d.oneIn(3) {
			d.hostChanges(s, kind, packets)
		}
	}
	evict := d.oneIn(3)
	if evict || d.oneIn(6) {
		d.silent(s, evict)
	}
	for range pick(d, 0, 1, 2) {
		f := d.moment(pick(d, ReceiverCrash, KeyLost), packets)
		var ok bool
		if f.Host, ok = d.victim(s); !ok || f.Kind == ReceiverCrash && !evict {
			continue
		}
		if s.Timed = append(s.Timed, f); !evict { // its NAK may be lost, and then the source waits in vain
			s.RetryCount = uint8(3 + d.IntN(4))
		}
	}
	if d.oneIn(2) {
		s.StoreAfter = d.between(time.Microsecond, s.ackTimeout())
	}
	if evict && d.oneIn(2) {
		d.relief(s, packets)
	}
}

// relief draws a box of which one receiver joins, and then the only other one leaves. The root has
// somebody else, in case the box is left out.
func (d drawer) relief(s *TreeScenario, packets int) {
	for _, b := range d.Perm(len(s.Boxes) - 1) {
		b++
		var here []int
		others := len(s.below(b)) > 0
		stays := false // somebody, elsewhere
		for h, at := range s.At {
			quiet := h > 0 && !s.Hosts[h].Outside && !s.happensTo(h)
			switch {
			case at == b && quiet:
				here = append(here, h)
			case at == b:
				others = true
			default:
				stays = stays || quiet && !s.goesWithABox(h)
			}
		}
		if len(here) != 2 || others || !stays {
			continue
		}
		joins := d.moment(Join, packets)
		leaves := joins
		joins.Host, leaves.Host, leaves.Kind = here[0], here[1], Leave
		joins.For = s.confirmsAfter()
		leaves.Delay += d.between(time.Nanosecond, s.ackTimeout()/pick[time.Duration](d, 1, 1000))
		s.Hosts[joins.Host].Outside = true
		s.Timed = append(s.Timed, joins, leaves)
		return
	}
}

// silent draws after which time a receiver is silent, and whether boxes go on without it then.
func (d drawer) silent(s *TreeScenario, evict bool) {
	for b := range s.Boxes {
		if p := &s.Boxes[b].Policy; b == 0 {
			p.Evict, p.SilentAfter = evict, max(4*feedback.MinSilentAfter, d.between(2*s.ackTimeout(), 4*s.ackTimeout()))
		} else {
			p.Evict, p.SilentAfter = evict, s.Boxes[s.Boxes[b].Parent].Policy.Below().SilentAfter
		}
	}
}

// memoryChanges draws when the memory of the group changes, at each box by itself.
func (d drawer) memoryChanges(s *TreeScenario, packets int) {
	for b := range s.Boxes {
		for range 1 + d.IntN(2) {
			f := d.moment(MemoryChange, packets)
			f.Host = b
			s.Timed = append(s.Timed, f)
		}
	}
}

// hostChanges draws a host that joins or leaves, and reports whether there is one that may. Its box
// has somebody else.
func (d drawer) hostChanges(s *TreeScenario, kind Fault, packets int) bool {
	for _, h := range d.Perm(len(s.Hosts)) {
		if h == 0 || s.happensTo(h) || s.Hosts[h].Outside || !s.othersAt(h) {
			continue
		}
		f := d.moment(kind, packets)
		f.Host = h
		if kind == Join {
			f.For = s.confirmsAfter()
		}
		s.Timed = append(s.Timed, f)
		s.Hosts[h].Outside = kind == Join
		return true
	}
	return false
}

// othersAt reports whether the box of a host has somebody else all the time.
func (s *TreeScenario) othersAt(h int) bool {
	stays := func(n int) bool {
		return !slices.ContainsFunc(s.Timed, func(f Timed) bool { return f.Host == n && (f.Kind == Join || f.Kind == Leave) })
	}
	for o, at := range s.At {
		if o > 0 && o != h && at == s.At[h] && stays(o) {
			return true
		}
	}
	return slices.ContainsFunc(s.below(s.At[h]), func(c int) bool { return stays(len(s.Hosts) + c) })
}

// happensTo reports whether a host joins, leaves or ends.
func (s *TreeScenario) happensTo(h int) bool {
	return slices.ContainsFunc(s.Timed, func(f Timed) bool {
		return f.Host == h && (f.Kind == Join || f.Kind == Leave || f.Kind == ReceiverCrash || f.Kind == KeyLost)
	})
}

// victim draws a receiver that may end: another one stays, whose boxes stay too. It reports whether
// there is one.
func (d drawer) victim(s *TreeScenario) (host int, ok bool) {
	var may []int
	stays := 0
	for h := 1; h < len(s.At); h++ {
		if s.Hosts[h].Outside || s.happensTo(h) {
			continue
		}
		may = append(may, h)
		if !s.goesWithABox(h) {
			stays++
		}
	}
	if len(may) < 2 || stays < 2 {
		return 0, false
	}
	return pick(d, may...), true
}

// goesWithABox reports whether the box of a host, or one above, is not in the group all the time.
func (s *TreeScenario) goesWithABox(h int) bool {
	for b := s.At[h]; b > 0; b = s.Boxes[b].Parent {
		if s.Boxes[b].Outside || slices.ContainsFunc(s.Timed, func(f Timed) bool { return f.Kind == Leave && f.Host == len(s.Hosts)+b }) {
			return true
		}
	}
	return false
}

// treeTurns draws whether members take turns, and who sends beside the first source. That one may
// be a source alone.
func (d drawer) treeTurns(s *TreeScenario, packets int) {
	if d.oneIn(2) {
		return
	}
	s.TakeTurns = true
	s.Hosts[0].Receiver = len(s.Hosts) == 2 || !d.oneIn(4) // somebody has to receive
	for _, h := range d.Perm(len(s.Hosts) - 1)[:1+d.IntN(min(4, len(s.Hosts)-1))] {
		f := d.moment(SourceChange, packets)
		f.Host = 1 + h
		s.Timed = append(s.Timed, f)
	}
	s.Turns = Turns{Stored: true, Lag: pick[time.Duration](d, 0, d.between(time.Microsecond, s.ackTimeout()))}
	if d.oneIn(2) {
		s.Turns.LostNotes, s.Turns.Unstored = d.IntN(5), d.IntN(5)
	}
	if d.oneIn(2) {
		s.Turns.CrashedSteps, s.Turns.Crashes = 1+d.IntN(4), 1+d.IntN(4)
	}
	if only := s.pathsOfRoot() == 1; s.has(SwitchCrash) || s.Turns.Crashes > 0 {
		// Nobody shows a root that has crashed how many messages came from behind its only path.
		s.Hosts[0].Receiver = s.Hosts[0].Receiver || only
	} else if only && len(s.Hosts) > 2 { // all receivers may be behind one box
		s.Hosts[0].Receiver = d.oneIn(2)
	}
}

// pathsOfRoot is how many paths the root has beside that of the first source.
func (s *TreeScenario) pathsOfRoot() (n int) {
	for _, at := range s.At[1:] {
		if at == 0 {
			n++
		}
	}
	for i := range s.Boxes[1:] {
		if s.Boxes[1+i].Parent == 0 {
			n++
		}
	}
	return n
}

// betweenTurns draws what programs do so that others have turns between. With crashes all messages
// are one packet long: a crash inside a message of a source that then waits may end queue pairs.
func (d drawer) betweenTurns(s *TreeScenario) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if d.oneIn(2) {
			h.Outstanding, h.Think = 1+d.IntN(4), d.between(time.Microsecond, 2*s.ackTimeout())
		}
		if s.has(SwitchCrash) || s.Turns.Crashes > 0 {
			h.Messages = s.split(h.Messages)
		}
	}
	for b := range s.Boxes {
		s.Boxes[b].UpPSN = d.psn()
	}
}

// split makes messages of one packet of longer ones.
func (s *Scenario) split(messages []Message) (short []Message) {
	for _, m := range messages {
		for left := m.Bytes; ; left -= s.MTUBytes {
			m.Bytes = min(left, s.MTUBytes)
			if short = append(short, m); left <= s.MTUBytes {
				break
			}
			m.Target, m.From = m.Target+s.MTUBytes, m.From+s.MTUBytes
		}
	}
	return short
}

// tree draws boxes, and the hosts at each.
func (d drawer) tree(shapes [][]int) TreeScenario {
	shape := pick(d, shapes...)
	s := TreeScenario{Boxes: make([]TreeBox, 1+len(shape)), At: []int{0}}
	leaf := make([]bool, len(s.Boxes))
	for i := range leaf {
		leaf[i] = i > 0
	}
	for i, parent := range shape {
		s.Boxes[1+i].Parent = parent
		leaf[parent] = false
	}
	for b := range s.Boxes {
		for n := d.IntN(3); n > 0 || leaf[b]; n-- {
			s.At = append(s.At, b)
			leaf[b] = false
		}
	}
	return s
}

// endless lets the source retry for ever, and sets how long the run may take.
func (s *TreeScenario) endless() {
	s.RNRRetry = retryForEver
	messages := 0
	for i := range s.Hosts {
		messages += len(s.Hosts[i].Messages)
	}
	s.Limit = time.Duration(len(s.Boxes)) * (10*time.Second + 300*s.ackTimeout() +
		s.longestRNR()*time.Duration(100+messages))
	if s.TakeTurns { // each message may begin a turn
		s.Limit += time.Duration(messages) * 10 * s.ackTimeout()
	}
}

// treeFaults draws the faults of hosts, links and boxes.
func (d drawer) treeFaults(s *TreeScenario, packets int) {
	for range pick(d, 0, 0, 1, 1, 2, 3) {
		f := d.moment(pick(d, Burst, Cut, SlowHost, SwitchCrash, SwitchCrash, RNRStorm), packets)
		f.For = d.between(s.ackTimeout()/50, 3*s.ackTimeout())
		switch f.Kind {
		case SwitchCrash:
			f.Host = d.IntN(len(s.Boxes))
		case RNRStorm:
			f.Host = 1 + d.IntN(len(s.Hosts)-1)
		default:
			if f.Host = d.IntN(len(s.Hosts) + len(s.Boxes) - 1); f.Host >= len(s.Hosts) {
				f.Host++ // the root has no link to a box above
			}
		}
		s.Timed = append(s.Timed, f)
	}
}

// moves draws receivers that move to other boxes. Each box keeps a member all the time.
func (d drawer) moves(s *TreeScenario, packets int) {
	stay := make([]int, len(s.Boxes)) // the members that do not move, by box
	for h := 1; h < len(s.At); h++ {
		stay[s.At[h]]++
	}
	for b := 1; b < len(s.Boxes); b++ {
		stay[s.Boxes[b].Parent]++
	}
	moved := make([]bool, len(s.At))
	for range pick(d, 0, 0, 1, 1, 2) {
		f := d.moment(Move, packets)
		f.Host, f.To, f.For = 1+d.IntN(len(s.At)-1), d.IntN(len(s.Boxes)), d.between(time.Microsecond, 3*s.ackTimeout())
		if from := s.At[f.Host]; moved[f.Host] || stay[from] > 1 && from != f.To {
			if !moved[f.Host] {
				stay[from]--
			}
			moved[f.Host] = true
			s.Timed = append(s.Timed, f)
		}
	}
}

// boxes draws what differs from box to box.
func (d drawer) boxes(s *TreeScenario) {
	for i := range s.Boxes {
		b := &s.Boxes[i]
		own := Scenario{Policy: s.Policy, MTUBytes: s.MTUBytes}
		own.Policy.Nak = pick(d, feedback.NakHold, feedback.NakLower)
		d.repair(&own)
		b.Policy, b.Chunks = own.Policy, own.RepairChunks
		b.DownPSN, b.FanOut = d.psn(), d.oneIn(2)
	}
}

// racks draws which boxes are on one network, and what happens to them.
func (d drawer) racks(s *TreeScenario, packets int) {
	for up := range s.Boxes {
		below := s.below(up)
		if len(below) < 2 || d.oneIn(5) {
			continue
		}
		d.racksBelow(s, below)
		for own := (Scenario{MTUBytes: s.MTUBytes}); s.Boxes[up].Policy.Repair == feedback.RepairOff && !d.oneIn(8); {
			nak := s.Boxes[up].Policy.Nak
			own.Policy = s.Policy
			d.repair(&own)
			s.Boxes[up].Policy, s.Boxes[up].Chunks = own.Policy, own.RepairChunks
			s.Boxes[up].Policy.Nak = nak
		}
		d.rackFaults(s, up, below, packets)
	}
}

// below returns the boxes below one.
func (s *TreeScenario) below(up int) (boxes []int) {
	for c := range s.Boxes {
		if c > 0 && s.Boxes[c].Parent == up {
			boxes = append(boxes, c)
		}
	}
	return boxes
}

// racksBelow makes a rack of the boxes below one, or of all but one, or two racks.
func (d drawer) racksBelow(s *TreeScenario, below []int) {
	d.Shuffle(len(below), func(i, k int) { below[i], below[k] = below[k], below[i] })
	if len(below) > 3 && !d.oneIn(4) {
		s.Racks = append(s.Racks, d.rack(s, below[:2]), d.rack(s, below[2:]))
		return
	}
	if len(below) > 2 && d.oneIn(3) {
		below = below[1:]
	}
	s.Racks = append(s.Racks, d.rack(s, below))
}

// rack draws a rack of these boxes.
func (d drawer) rack(s *TreeScenario, boxes []int) Rack {
	r := Rack{Boxes: boxes, Lag: d.between(time.Microsecond, s.ackTimeout()/pick[time.Duration](d, 1, 1000))}
	if d.oneIn(3) {
		r.Loss = pick(d, 1e-3, 1e-2, 5e-2)
	}
	if d.oneIn(4) {
		r.Fails = 1 + d.IntN(4)
	}
	return r
}

// boxChanges draws a box that joins or leaves, with everybody below it. The group of the box above
// has somebody else all the time.
func (d drawer) boxChanges(s *TreeScenario, kind Fault, packets int) {
	boxes := slices.DeleteFunc(d.Perm(len(s.Boxes)), func(c int) bool { return c == 0 || !s.hasOther(c) })
	if len(boxes) == 0 {
		return
	}
	f := d.moment(kind, packets)
	f.Host = len(s.Hosts) + boxes[0]
	s.Timed = append(s.Timed, f)
	if kind == Join {
		s.Timed[len(s.Timed)-1].For = s.confirmsAfter()
		s.outside(boxes[0])
	}
}

// hasOther reports whether the box above box c has a receiver all the time beside it.
func (s *TreeScenario) hasOther(c int) bool {
	up := s.Boxes[c].Parent
	if slices.Contains(s.At[1:], up) {
		return true
	}
	return slices.ContainsFunc(s.below(up), func(o int) bool {
		return o != c && !slices.ContainsFunc(s.Timed, func(f Timed) bool { return f.Kind == Leave && f.Host == len(s.Hosts)+o })
	})
}

// outside keeps a box out of the group, and everybody below it, until it joins.
func (s *TreeScenario) outside(c int) {
	s.Boxes[c].Outside = true
	for h, at := range s.At {
		for at > 0 && at != c {
			at = s.Boxes[at].Parent
		}
		if h > 0 && at == c {
			s.Hosts[h].Outside = true
		}
	}
}

// rackFaults draws what happens to the boxes of a rack below box up.
func (d drawer) rackFaults(s *TreeScenario, up int, boxes []int, packets int) {
	for range pick(d, 0, 0, 1, 1, 2) {
		f := d.moment(pick(d, EdgeDies, EdgeDies, SwitchCrash, CopiesOwn), packets)
		switch f.Kind {
		case EdgeDies:
			f.Host = len(s.Hosts) + pick(d, boxes...)
		case SwitchCrash:
			f.Host = pick(d, boxes...)
		default:
			f.Host = up
		}
		if f.Kind != EdgeDies || d.oneIn(2) {
			f.For = d.between(s.ackTimeout()/50, 3*s.ackTimeout())
		}
		s.Timed = append(s.Timed, f)
	}
	if !s.has(Move, Leave) && d.oneIn(4) {
		f := d.moment(Leave, packets)
		f.Host = len(s.Hosts) + pick(d, boxes...)
		s.Timed = append(s.Timed, f)
	}
}
