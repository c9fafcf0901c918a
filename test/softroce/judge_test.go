//go:build softroce

package softroce

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/wire"
)

// judge sees every RoCEv2 frame on every wire. It drops the frames that the story wants to lose,
// and tells the story which frames pass. It also checks what no receiver could notice alone:
//
//   - The source never gets an ACK for a packet that a receiver has not acknowledged, or that the
//     source has not sent. No NAK acknowledges a packet that no ACK acknowledged before (rules 1
//     and 4).
//   - A receiver gets only frames for its own QP, from its peer, with a correct ICRC.
//   - No frame of a group arrives where only the kernel can have sent it.
//   - The source sends a packet again with the opcode that it had. Else its host is wrong, and the
//     box is not.
//
// The judge sees a frame before the wire passes it on. So the judge sees the consequences of a
// frame, on any wire, after the frame.
type judge struct {
	mu         sync.Mutex
	start      time.Time
	groups     []*group
	lost       func(*sighting) bool // whether the wire loses the frame; nil: never
	watches    []*watch
	trace      []sighting
	violations []string
	pulse      *pulse // of this story
}

// sighting is a frame of a group, seen at one hop.
type sighting struct {
	passage
	group  *group
	opcode roce.Opcode
}

func (s *sighting) String() string {
	lost := ""
	if s.lost {
		lost = "  LOST"
	}
	box := "box"
	switch s.hop {
	case uplink:
		return fmt.Sprintf("%s source -> %s   %v %d%s%s", s.head(), box, s.opcode, s.offset, mark(s.ackReq, " AckReq"), lost)
	case copied:
		return fmt.Sprintf("%s    %s -> r%d    %v %d%s%s", s.head(), box, s.receiver, s.opcode, s.offset, mark(s.ackReq, " AckReq"), lost)
	case response:
		return fmt.Sprintf("%s     r%d -> %s   %v %d msn %d%s", s.head(), s.receiver, box, s.aeth.Syndrome, s.offset, s.aeth.MSN, lost)
	default:
		return fmt.Sprintf("%s    %s -> source %v %d msn %d%s", s.head(), box, s.aeth.Syndrome, s.offset, s.aeth.MSN, lost)
	}
}

func (s *sighting) head() string {
	return fmt.Sprintf("%10.3f ms %s", float64(s.at.Microseconds())/1000, s.group.name)
}

func mark(on bool, text string) string {
	if on {
		return text
	}
	return ""
}

type watch struct {
	match func(*sighting) bool
	seen  chan struct{}
}

const (
	maxTrace      = 1 << 19
	maxViolations = 20
)

// newJudge puts a judge on all wires of the lab.
func newJudge(l *Lab) *judge {
	j := &judge{start: time.Now(), pulse: newPulse()}
	for _, guest := range l.Guests {
		for _, w := range guest.wires() {
			j.watch(guest, w)
		}
	}
	return j
}

// watch puts the judge on a wire of a guest.
func (j *judge) watch(guest *Guest, w *wire.Wire) {
	for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
		w.SetFilter(d, func(frame []byte) wire.Verdict { return j.see(guest, d, frame) })
	}
}

func (j *judge) see(guest *Guest, d wire.Direction, frame []byte) wire.Verdict {
	var v roce.View
	if v.Decode(frame, len(frame)) != nil {
		return wire.Pass
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.attribute(guest, d, &v, frame)
	if !ok {
		return wire.Pass
	}
	s.at = time.Since(j.start)
	s.lost = j.lost != nil && j.lost(&s)
	if len(j.trace) < maxTrace {
		j.trace = append(j.trace, s)
	}
	j.record(&s, &v, frame)
	j.watches = slices.DeleteFunc(j.watches, func(w *watch) bool {
		if w.match(&s) {
			close(w.seen)
			return true
		}
		return false
	})
	if s.lost {
		return wire.Drop
	}
	return wire.Pass
}

// attribute finds the group to which a frame belongs, if there is one.
func (j *judge) attribute(guest *Guest, d wire.Direction, v *roce.View, frame []byte) (sighting, bool) {
	claimed := false
	for _, g := range j.groups {
		if s, ok := g.attribute(guest, d, v, frame); ok {
			return s, true
		}
		claimed = claimed || d == wire.ToGuest && g.claims(guest, v, frame)
	}
	if claimed {
		j.violation("guest %d got %v PSN %d for QP %d from %v to %v, and no group sends that", guest.Number, v.Opcode, v.PSN(frame),
			v.DestQPN(frame), v.SrcIP(frame), v.DstIP(frame))
	}
	return sighting{}, false
}

// record notes what a frame says, and checks what rocast sent.
func (j *judge) record(s *sighting, v *roce.View, frame []byte) {
	g := s.group
	switch s.hop {
	case uplink:
		if s.offset <= g.offered {
			g.resent++
		}
		g.offered = max(g.offered, s.offset)
		if before, sent := g.opcodes[s.offset]; sent && before != s.opcode {
			j.violation("%v: the source has sent this packet as %v, so rxe has inserted an empty message (docs/wire.md, Requester)", s, before)
		}
		g.opcodes[s.offset] = s.opcode
		if !s.lost {
			g.sent = max(g.sent, s.offset)
		}
	case response:
		if !s.lost {
			g.acked[s.receiver] = max(g.acked[s.receiver], s.acknowledged())
		}
	case copied:
		g.copies[s.receiver]++
		if s.offset > g.sent {
			j.violation("%v: the source has sent packets up to %d only", s, g.sent)
		}
		j.checkFrame(s, v, frame)
	case merged:
		g.answers++
		least := g.least()
		if s.acknowledged() > least {
			j.violation("%v: enough receivers have acknowledged packets up to %d only (all: %v)", s, least, g.acked)
		}
		if s.offset > g.sent {
			j.violation("%v: the source has sent packets up to %d only", s, g.sent)
		}
		if !s.aeth.Syndrome.IsACK() {
			g.naks++
		}
		if s.aeth.Syndrome.IsACK() {
			g.ackedUpTo = max(g.ackedUpTo, s.offset)
		} else if s.offset > g.ackedUpTo+1 && !g.unseenLoss {
			j.violation("%v: the source has an ACK up to %d only, and an ACK has to go first", s, g.ackedUpTo)
		}
		j.checkFrame(s, v, frame)
	}
	if s.lost {
		g.lost++
	}
}

// least is the last packet that enough receivers have acknowledged: all receivers for which the
// group waits, or as many as the quorum.
func (g *group) least() int32 {
	var acked []int32
	for i, n := range g.acked {
		if !g.excluded[i] {
			acked = append(acked, n)
		}
	}
	slices.Sort(acked)
	if g.quorum > 0 {
		return acked[len(acked)-g.quorum]
	}
	return acked[0]
}

// checkFrame checks what makes a NIC drop a frame silently. The addresses were compared by
// attribute.
func (j *judge) checkFrame(s *sighting, v *roce.View, frame []byte) {
	if !v.ICRCValid([][]byte{frame}) {
		j.violation("%v: wrong ICRC", s)
	}
}

func (j *judge) violation(format string, args ...any) {
	if len(j.violations) < maxViolations {
		j.violations = append(j.violations, fmt.Sprintf(format, args...))
	}
}

// when returns a channel that is closed at the first frame that matches.
func (j *judge) when(match func(*sighting) bool) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &watch{match: match, seen: make(chan struct{})}
	j.watches = append(j.watches, w)
	return w.seen
}

// whenTrue returns a channel that is closed as soon as done returns true. done may read what the
// judge has seen.
func (j *judge) whenTrue(done func() bool) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &watch{match: func(*sighting) bool { return done() }, seen: make(chan struct{})}
	if done() {
		close(w.seen)
	} else {
		j.watches = append(j.watches, w)
	}
	return w.seen
}

// lose makes the wires lose every frame that matches one of the faults, instead of the faults
// before. Faults may keep state: the judge calls one at a time, for all wires.
func (j *judge) lose(faults ...func(*sighting) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = func(s *sighting) bool {
		lost := false
		for _, fault := range faults {
			lost = fault(s) || lost
		}
		return lost
	}
	if len(faults) == 0 {
		j.lost = nil
	}
}

// tally returns how many packets of a group the source has sent, and how many frames of the group
// were lost.
func (j *judge) tally(g *group) (sent, lost int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return int(g.sent) + 1, g.lost
}

// locked runs fn while no frame passes.
func (j *judge) locked(fn func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fn()
}

// reset forgets the story that has ended. It returns what rocast did wrong in it.
func (j *judge) reset() (violations []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	violations = j.violations
	j.pulse.late.Store(0)
	j.start, j.groups, j.lost, j.watches, j.trace, j.violations = time.Now(), nil, nil, nil, j.trace[:0], nil
	return violations
}

// writeTrace writes the last n frames.
func (j *judge) writeTrace(w io.Writer, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b strings.Builder
	for i := max(0, len(j.trace)-n); i < len(j.trace); i++ {
		fmt.Fprintln(&b, &j.trace[i])
	}
	_, _ = io.WriteString(w, b.String())
}

// at matches the frames of one hop.
func at(h hop) func(*sighting) bool {
	return func(s *sighting) bool { return s.hop == h }
}

// to matches the copies for one receiver.
func to(receiver int) func(*sighting) bool {
	return func(s *sighting) bool { return s.hop == copied && s.receiver == receiver }
}

// from matches the responses of one receiver.
func from(receiver int) func(*sighting) bool {
	return func(s *sighting) bool { return s.hop == response && s.receiver == receiver }
}

// packetsAt narrows a match to some PSNs, counted from the first PSN of the turn.
func packetsAt(match func(*sighting) bool, offsets ...int32) func(*sighting) bool {
	return func(s *sighting) bool { return slices.Contains(offsets, s.offset) && match(s) }
}

// each matches, for every PSN, the first n frames that match.
func each(n int, match func(*sighting) bool) func(*sighting) bool {
	seen := map[int32]int{}
	return func(s *sighting) bool {
		if !match(s) || seen[s.offset] == n {
			return false
		}
		seen[s.offset]++
		return true
	}
}

// randomly matches a random share of the frames that match. It is random and not every Nth frame: a
// go-back round of fixed length would lose the same packet each time.
func randomly(seed uint64, probability float64, match func(*sighting) bool) func(*sighting) bool {
	random := rand.New(rand.NewPCG(seed, 0))
	return func(s *sighting) bool { return match(s) && random.Float64() < probability }
}
