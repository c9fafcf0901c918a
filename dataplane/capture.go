package dataplane

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rocast/rocast/mft"
)

// CaptureKind is a set of kinds of captured frames. Each frame has one kind.
type CaptureKind uint8

const (
	CaptureData     CaptureKind = 1 << iota // data that was taken, and its copies
	CaptureFeedback                         // acknowledge packets and CNPs: those taken, and those sent to the source
	CaptureDrop                             // what was refused, and what was to be sent and was lost

	CaptureAll = CaptureData | CaptureFeedback | CaptureDrop
)

// Fate says what became of a captured frame.
type Fate uint8

const (
	Received   Fate = iota // it was received, and its Reason says what became of it
	SentCopy               // a copy of a received frame
	SentRepair             // a copy of a retained frame
	SentReply              // a frame of our own to the source
	// Of frames that were to be sent: there is no next hop; the queue of the port is full (Egress);
	// repairs have their share of it; the port could not send.
	LostNoHop
	LostQueueFull
	LostRepairPutOff
	LostByPort
)

var fateNames = [...]string{
	Received: "received", SentCopy: "copy", SentRepair: "repair", SentReply: "reply",
	LostNoHop: "unsent", LostQueueFull: "queue-full", LostRepairPutOff: "repair-put-off", LostByPort: "tx-lost",
}

func (f Fate) String() string { return fateNames[f] }

// Snap bounds how many bytes of each frame are captured. SnapLeast has all headers of any RoCE
// packet; SnapMost is more than the longest frame that belongs to a group.
const (
	SnapLeast = 128
	SnapMost  = handoffBytes
)

// CaptureConfig says which frames a capture is to have.
type CaptureConfig struct {
	// One: only frames of Group, and those to its address that belong to no group.
	One    bool
	Group  mft.GroupID
	Kinds  CaptureKind
	Sample int // about one in so many received frames, with all that is sent because of it; 0: all
	Snap   int // bytes of each frame, from SnapLeast to SnapMost
}

// Captured is a frame that a capture has.
type Captured struct {
	At    time.Time
	Group mft.GroupID // mft.NoGroup: of none
	// Table has the group, unless the group was removed a while ago.
	Table *mft.Table
	// Event is the same for a received frame and all that was sent because of it. What is sent
	// because time has passed has events of its own.
	Event  uint64
	Port   mft.PortID // mft.NoPort with LostNoHop
	Fate   Fate
	Reason Reason    // if it was received
	To     *mft.Path // with LostNoHop: for whom the copy was; the frame itself is the received one
	Length int       // of the whole frame, in bytes
	ICRC   uint32    // 0: not a RoCE packet
	Bytes  []byte    // the first bytes; valid until the next call of Read
}

// Verdict returns in one word what became of the frame.
func (c *Captured) Verdict() string {
	switch c.Fate {
	case Received:
		return c.Reason.Verdict().String()
	case SentCopy, SentRepair, SentReply:
		return "send"
	}
	return Drop.String()
}

// Why returns the reason of the verdict.
func (c *Captured) Why() string {
	if c.Fate == Received {
		return c.Reason.String()
	}
	return c.Fate.String()
}

// MaxCaptures is how many captures may run at a time.
const MaxCaptures = 4

// ErrCaptures: as many captures run as may.
var ErrCaptures = fmt.Errorf("%d captures run already; end one of them", MaxCaptures)

// captures is a Switch's record of the captures that run.
type captures struct {
	mu sync.Mutex
	n  int
}

// Capture is a running capture. While it runs, no engine carries its groups: their packets come to
// the workers. One goroutine may use it.
type Capture struct {
	s      *Switch
	want   CaptureConfig
	taps   []*tap      // by worker
	before *mft.Table  // as it was at the last read
	zero   []time.Time // by worker: when its clock was 0
	closed bool
}

// Capture begins a capture. The caller ends it by Close.
func (s *Switch) Capture(c CaptureConfig) (*Capture, error) {
	t := s.Table()
	var g *mft.Group
	if c.One {
		if g = t.Group(c.Group); g == nil {
			return nil, errors.New("the group is gone")
		}
	}
	s.captures.mu.Lock()
	defer s.captures.mu.Unlock()
	if s.captures.n == MaxCaptures {
		return nil, ErrCaptures
	}
	s.captures.n++
	capture := &Capture{s: s, want: c, before: t}
	for _, w := range s.workers {
		tap := newTap(c, g, tapRoom(c.Snap))
		s.do(w, func(w *Worker) {
			capture.zero = append(capture.zero, time.Now().Add(-time.Duration(w.now())))
			w.open(tap)
		})
		capture.taps = append(capture.taps, tap)
	}
	return capture, nil
}

// Close ends the capture. What was captured before can still be read. From then on engines may
// carry the groups again. A second call does nothing.
func (c *Capture) Close() {
	if c.closed {
		return
	}
	c.closed = true
	for i, w := range c.s.workers {
		c.s.do(w, func(w *Worker) { w.close(c.taps[i]) })
	}
	c.s.captures.mu.Lock()
	defer c.s.captures.mu.Unlock()
	c.s.captures.n--
}

// Read calls see for each frame that was captured since the last call: for a received frame, and
// then for all that was sent because of it. It does not wait.
func (c *Capture) Read(see func(*Captured)) {
	table := c.s.Table()
	for i, t := range c.taps {
		for head, tail := t.head.Load(), t.tail.Load(); tail != head; tail++ {
			at := int(tail) & (len(t.slots) - 1)
			r := &t.slots[at]
			frame := Captured{
				At: c.zero[i].Add(time.Duration(r.at)), Group: r.group, Table: table, Event: r.event, Port: r.port,
				Fate: r.fate, Reason: r.reason, To: r.path, Length: r.length, ICRC: r.icrc, Bytes: t.bytes[at*t.want.Snap:][:r.n],
			}
			if table.Group(r.group) == nil {
				frame.Table = c.before
			}
			see(&frame)
			t.tail.Store(tail + 1)
		}
	}
	c.before = table
}

// Lost returns how many frames found no room so far.
func (c *Capture) Lost() (lost uint64) {
	for _, t := range c.taps {
		lost += t.lost.Load()
	}
	return lost
}

// Gone reports whether the group that is captured was removed.
func (c *Capture) Gone() bool { return c.want.One && c.s.Table().Group(c.want.Group) == nil }
