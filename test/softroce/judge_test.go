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

// judge sees every RoCEv2 frame on every wire. It loses what the story wants lost, tells the story what passes, and holds
// the box to what no receiver could notice by itself:
//
//   - the source is never told of a packet that a receiver has not acknowledged, nor of one that it has not sent, and no NAK
//     acknowledges anything that an ACK has not before (rules 1 and 4),
//   - what a receiver gets is for its own QP, from the group's IP, with a right ICRC,
//   - no frame of a group goes where only the kernel could have sent it.
//
// A frame is seen before the wire passes it on, so what one frame causes is seen after it, on whatever wire.
type judge struct {
	mu       sync.Mutex
	start    time.Time
	casts    []*cast
	lost     func(*sight) bool // the story's faults; nil: none
	watches  []*watch
	trace    []sight
	offences []string
}

// hop is where on its way a group's frame is seen.
type hop uint8

const (
	uplink hop = iota // data, the source to the box
	copied            // data, the box to a receiver
	answer            // ACK or NAK, a receiver to the box
	merged            // ACK or NAK, the box to the source
)

// sight is a group's frame at one hop.
type sight struct {
	at       time.Duration
	hop      hop
	group    *cast
	receiver int   // of a copy or an answer
	offset   int32 // its PSN, counted from the group's first
	opcode   roce.Opcode
	ackReq   bool
	aeth     roce.AETH // of an answer, or of a merged one
	lost     bool
}

func (s *sight) String() string {
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
	case answer:
		return fmt.Sprintf("%s     r%d -> %s   %v %d msn %d%s", s.head(), s.receiver, box, s.aeth.Syndrome, s.offset, s.aeth.MSN, lost)
	default:
		return fmt.Sprintf("%s    %s -> source %v %d msn %d%s", s.head(), box, s.aeth.Syndrome, s.offset, s.aeth.MSN, lost)
	}
}

func (s *sight) head() string {
	return fmt.Sprintf("%10.3f ms %s", float64(s.at.Microseconds())/1000, s.group.name)
}

func mark(on bool, text string) string {
	if on {
		return text
	}
	return ""
}

type watch struct {
	match func(*sight) bool
	seen  chan struct{}
}

const (
	maxTrace    = 1 << 17
	maxOffences = 20
)

// newJudge puts the judge on every wire of the lab.
func newJudge(l *Lab) *judge {
	j := &judge{start: time.Now()}
	for _, g := range l.Guests {
		for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
			g.Wire.SetFilter(d, func(frame []byte) wire.Verdict { return j.see(g, d, frame) })
		}
	}
	return j
}

func (j *judge) see(g *Guest, d wire.Direction, frame []byte) wire.Verdict {
	var v roce.View
	if v.Decode(frame, len(frame)) != nil {
		return wire.Pass
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.attribute(g, d, &v, frame)
	if !ok {
		return wire.Pass
	}
	s.at = time.Since(j.start)
	s.lost = j.lost != nil && j.lost(&s)
	if len(j.trace) < maxTrace {
		j.trace = append(j.trace, s)
	}
	j.hold(&s, &v, frame)
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

// attribute finds out which group's frame this is, if any's.
func (j *judge) attribute(g *Guest, d wire.Direction, v *roce.View, frame []byte) (sight, bool) {
	claimed := false
	for _, c := range j.casts {
		if s, ok := c.attribute(g, d, v, frame); ok {
			return s, true
		}
		claimed = claimed || d == wire.ToGuest && c.claims(g, v, frame)
	}
	if claimed {
		j.accuse("guest %d got %v PSN %d for QP %d from %v to %v, which is nobody's copy", g.Number, v.Opcode, v.PSN(frame),
			v.DestQPN(frame), v.SrcIP(frame), v.DstIP(frame))
	}
	return sight{}, false
}

// hold keeps the group's books and compares.
func (j *judge) hold(s *sight, v *roce.View, frame []byte) {
	c := s.group
	switch s.hop {
	case uplink:
		if !s.lost {
			c.sent = max(c.sent, s.offset)
		}
	case answer:
		if !s.lost {
			c.acked[s.receiver] = max(c.acked[s.receiver], acknowledged(s))
		}
	case copied:
		c.copies[s.receiver]++
		if s.offset > c.sent {
			j.accuse("%v: the source has sent no more than %d", s, c.sent)
		}
		j.holdFrame(s, v, frame)
	case merged:
		least := c.least()
		if acknowledged(s) > least {
			j.accuse("%v: a receiver has acknowledged no more than %d (all: %v)", s, least, c.acked)
		}
		if s.offset > c.sent {
			j.accuse("%v: the source has sent no more than %d", s, c.sent)
		}
		if s.aeth.Syndrome.IsACK() {
			c.told = max(c.told, s.offset)
		} else if s.offset > c.told+1 {
			j.accuse("%v: the source has had an ACK up to %d only, and one has to go first", s, c.told)
		}
		j.holdFrame(s, v, frame)
	}
	if s.lost {
		c.lost++
	}
}

// least is the last packet that enough receivers have acknowledged: all who are waited for, or as many as the quorum wants.
func (c *cast) least() int32 {
	var acked []int32
	for i, n := range c.acked {
		if !c.away[i] {
			acked = append(acked, n)
		}
	}
	slices.Sort(acked)
	if c.quorum > 0 {
		return acked[len(acked)-c.quorum]
	}
	return acked[0]
}

// holdFrame checks what the NIC that gets the frame would drop without a word. Whose address it comes from is checked in
// attribute.
func (j *judge) holdFrame(s *sight, v *roce.View, frame []byte) {
	if !v.ICRCValid([][]byte{frame}) {
		j.accuse("%v: wrong ICRC", s)
	}
}

// acknowledged is the last packet that an ACK or NAK acknowledges: a NAK all before its own.
func acknowledged(s *sight) int32 {
	if s.aeth.Syndrome.IsACK() {
		return s.offset
	}
	return s.offset - 1
}

func (j *judge) accuse(format string, args ...any) {
	if len(j.offences) < maxOffences {
		j.offences = append(j.offences, fmt.Sprintf(format, args...))
	}
}

// when is closed at the first frame that matches.
func (j *judge) when(match func(*sight) bool) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &watch{match: match, seen: make(chan struct{})}
	j.watches = append(j.watches, w)
	return w.seen
}

// once is closed as soon as the books say so.
func (j *judge) once(done func() bool) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &watch{match: func(*sight) bool { return done() }, seen: make(chan struct{})}
	if done() {
		close(w.seen)
	} else {
		j.watches = append(j.watches, w)
	}
	return w.seen
}

// lose makes the wires lose each frame that any of the faults wants lost. Faults may keep state: they run one at a time,
// whatever the wire.
func (j *judge) lose(faults ...func(*sight) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = func(s *sight) bool {
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

// tally is how many packets of a group the source has sent, and how many frames of it were lost.
func (j *judge) tally(c *cast) (sent, lost int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return int(c.sent) + 1, c.lost
}

// books runs fn while no frame passes.
func (j *judge) books(fn func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fn()
}

// reset forgets the story before, and returns what the box did wrong in it.
func (j *judge) reset() (offences []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	offences = j.offences
	j.start, j.casts, j.lost, j.watches, j.trace, j.offences = time.Now(), nil, nil, nil, j.trace[:0], nil
	return offences
}

// writeTrace writes the last n frames, or all.
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
func at(h hop) func(*sight) bool {
	return func(s *sight) bool { return s.hop == h }
}

// to matches the copies for one receiver.
func to(receiver int) func(*sight) bool {
	return func(s *sight) bool { return s.hop == copied && s.receiver == receiver }
}

// from matches one receiver's answers.
func from(receiver int) func(*sight) bool {
	return func(s *sight) bool { return s.hop == answer && s.receiver == receiver }
}

// packetsAt narrows a match to some PSNs, counted from the group's first.
func packetsAt(match func(*sight) bool, offsets ...int32) func(*sight) bool {
	return func(s *sight) bool { return slices.Contains(offsets, s.offset) && match(s) }
}

// each is, for every PSN among those that match, the first n frames.
func each(n int, match func(*sight) bool) func(*sight) bool {
	seen := map[int32]int{}
	return func(s *sight) bool {
		if !match(s) || seen[s.offset] == n {
			return false
		}
		seen[s.offset]++
		return true
	}
}

// randomly is a share of the frames that match. Never every Nth: a go-back round of fixed length would lose the same
// packet each time.
func randomly(seed uint64, probability float64, match func(*sight) bool) func(*sight) bool {
	random := rand.New(rand.NewPCG(seed, 0))
	return func(s *sight) bool { return match(s) && random.Float64() < probability }
}
