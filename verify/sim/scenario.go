package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Scenario is everything on which a run depends. Draw draws every field from the seed; a test sets
// them.
type Scenario struct {
	Seed uint64 // of the faults of single frames

	Policy      feedback.Policy
	Addressing  mft.Addressing
	IPv6        bool
	Tagged      bool // all frames have a VLAN tag
	TakesNext   bool // queue pairs take a NAK or RNR NAK of the first packet that was never sent, as rxe does; else they ignore it
	MTUBytes    int
	Regions     int // of the group's memory; 0: VA and R_Key pass unchanged
	Unused      int // regions more that nobody uses
	MemoryBytes int // of all used regions together
	Edges       Edges
	FarLink     FarLink
	FanOut      bool // an engine in front of the core carries plain packets
	Engine      Engine
	// RepairChunks is how many buffers the core may retain for repair.
	RepairChunks int

	// Hosts[0] is the source with which the group was created; it sends from the start.
	Hosts []Host
	Timed []Timed

	// StoreAfter is how long control takes to store that a receiver is out of the group. A crash
	// of the switch after that leaves the receiver out; after any other one it counts again. 0:
	// control stores nothing.
	StoreAfter time.Duration
	Turns      Turns

	// CNPInterval is the least time between two congestion notifications of one host; 0: no host
	// sends any, and no queue marks packets.
	CNPInterval time.Duration
	// RateControl is how sources react to notifications; zero: they do not.
	RateControl rnic.RateControl

	Timeout    uint8 // local ACK timeout of all sources: 4.096 us * 2^Timeout
	RetryCount uint8 // 7: no limit
	RNRRetry   uint8 // 7: no limit

	// Removed is a group that was there before; nil: the switch is new.
	Removed *Removed

	// GoesOn: the run goes on after the sources have heard of everything, for as long as the switch
	// has something to do.
	GoesOn bool

	// Limit is the simulated time within which the run has to end.
	Limit time.Duration
}

// Engine is how the engine and the core work beside each other. The zero value: the core handles
// every frame before the engine sees the next one.
type Engine struct {
	// Lag bounds three times: how long a frame waits for the kernel to look at its port, then for
	// the core to look at its ring, and how long the core is busy between two looks.
	Lag   time.Duration
	Batch int // frames that the core looks at together
	// Lingers is how long the engine goes on when the core has crashed.
	Lingers time.Duration
	// CarriedLate and CopiedLate are how much later the copies leave that the engine and the core
	// make: they have different queues of one port.
	CarriedLate, CopiedLate time.Duration
}

// Host is the links of a host, and its program.
type Host struct {
	ToSwitch, ToHost Link

	// What the host sends. A host without messages never becomes the source. One with messages,
	// except the first, becomes the source when a SourceChange says so.
	SendPSN     roce.PSN // of its first packet
	Messages    []Message
	Outstanding int           // messages that its program keeps posted
	Think       time.Duration // that its program waits before it posts again

	FlowControl bool // its queue pair keeps end-to-end credits
	Multipath   bool // its route leads to two ports of the switch: see OtherUplink

	// What the host receives. The members of the group are the source and all receivers.
	Receiver    bool
	Far         bool     // it is behind the far box: see far.go
	Outside     bool     // it is no member until a Join
	RecvPSN     roce.PSN // the first PSN that its queue pair expects
	Weight      int      // receivers that a quorum counts for it; 0: one
	Receives    int      // receives that its program keeps posted
	RepostAfter time.Duration
	RNRTimer    roce.RNRTimer
}

// Link is one direction of a cable, with the queue in front of it.
type Link struct {
	PicosPerByte int64 // 8000 is 1 Gbit/s
	Delay        time.Duration
	QueueBytes   int // a frame that finds more bytes waiting is dropped

	// Where the queue marks frames as having met congestion.
	dataplane.Egress
	CrossBytes int // so many bytes wait at least while fault CrossTraffic lasts

	// Rates of faults of single frames, from 0 to 1.
	Loss, Duplicate, Reorder, Late, Damage float64
	LateBy                                 time.Duration // at most
}

// faulty reports whether frames may get lost or come late on the link by themselves.
func (l *Link) faulty() bool { return l.Loss+l.Reorder+l.Late+l.Damage > 0 }

// Message is one work request of a source.
type Message struct {
	Op     rnic.Operation
	Bytes  int
	Target int // WRITE, READ: where in the memory of the group
	From   int // where its data is in the page of random bytes
	Imm    uint32
}

// takesReceive reports whether the message takes a receive.
func (m *Message) takesReceive() bool { return m.Op != rnic.Write && m.Op != rnic.Read }

func (m *Message) isSend() bool { return m.Op == rnic.Send || m.Op == rnic.SendImm }

// weight is how many receivers a quorum counts for the host.
func (h *Host) weight() int { return max(1, h.Weight) }

func (s *Scenario) packets(m *Message) int { return max(1, (m.Bytes+s.MTUBytes-1)/s.MTUBytes) }

// ackTimeout is the local ACK timeout of the sources.
func (s *Scenario) ackTimeout() time.Duration { return rnic.AckTimeout(s.Timeout) }

// longestRNR is the longest time that a receiver may make a source wait with an RNR NAK.
func (s *Scenario) longestRNR() (longest time.Duration) {
	for i := range s.Hosts {
		longest = max(longest, s.Hosts[i].RNRTimer.Duration())
	}
	return longest
}

func (s *Scenario) has(kinds ...Fault) bool {
	for i := range s.Timed {
		for _, kind := range kinds {
			if s.Timed[i].Kind == kind {
				return true
			}
		}
	}
	return false
}

func (s *Scenario) reads() bool {
	for i := range s.Hosts {
		for k := range s.Hosts[i].Messages {
			if s.Hosts[i].Messages[k].Op == rnic.Read {
				return true
			}
		}
	}
	return false
}

func (s *Scenario) eachLink(f func(*Link)) {
	for i := range s.Hosts {
		f(&s.Hosts[i].ToSwitch)
		f(&s.Hosts[i].ToHost)
	}
	if s.hasFar() {
		f(&s.FarLink.Down)
		f(&s.FarLink.Up)
	}
}

// String describes the scenario.
func (s *Scenario) String() string {
	var b strings.Builder
	p := &s.Policy
	fmt.Fprintf(&b, "seed %d:", s.Seed)
	for i := range feedback.Keys {
		if k := &feedback.Keys[i]; !k.Repairs || p.Repair != feedback.RepairOff {
			fmt.Fprintf(&b, " %s: %s;", k.Name, k.Text(*p))
		}
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "%v, IPv6 %v, tagged %v, takes NAKs of what is sent next %v, MTU %d, %d regions and %d unused ones, timeout %v, retries %d, RNR retries %d, limit %v\n",
		s.Addressing, s.IPv6, s.Tagged, s.TakesNext, s.MTUBytes, s.Regions, s.Unused, s.ackTimeout(), s.RetryCount, s.RNRRetry, s.Limit)
	if p.Repair != feedback.RepairOff {
		fmt.Fprintf(&b, "%d buffers for repair\n", s.RepairChunks)
	}
	if s.hasFar() {
		fmt.Fprintf(&b, "the link to the far box:\n  down %v\n  up   %v\n", &s.FarLink.Down, &s.FarLink.Up)
	}
	if s.Edges.Shares {
		fmt.Fprintf(&b, "receivers share a leg: %+v\n", s.Edges)
	}
	if s.FanOut {
		fmt.Fprintf(&b, "an engine in front: %+v\n", s.Engine)
	}
	if s.StoreAfter > 0 {
		fmt.Fprintf(&b, "control stores after %v which receivers are out\n", s.StoreAfter)
	}
	if s.CNPInterval > 0 {
		fmt.Fprintf(&b, "CNPs %v apart from each receiver\n", s.CNPInterval)
	}
	if was := s.Removed; was != nil {
		fmt.Fprintf(&b, "before it, removed after packet %d, a group with the same numbers:\n%vand then:\n", was.AfterPacket, &was.Scenario)
	}
	for i := range s.Hosts {
		s.describe(&b, i)
	}
	for i := range s.Timed {
		f := &s.Timed[i]
		fmt.Fprintf(&b, "%v of %s, %v after packet %d", f.Kind, hostName(f.Host), f.Delay, f.AfterPacket)
		if f.For > 0 {
			fmt.Fprintf(&b, ", for %v", f.For)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *Scenario) describe(b *strings.Builder, i int) {
	h := &s.Hosts[i]
	fmt.Fprintf(b, "%s to switch   %v\n  from switch %v\n", hostName(i), &h.ToSwitch, &h.ToHost)
	if n := len(h.Messages); n > 0 {
		packets := 0
		for k := range h.Messages {
			packets += s.packets(&h.Messages[k])
		}
		fmt.Fprintf(b, "  sends %d messages in %d packets from PSN %#06x, %d outstanding, think %v\n",
			n, packets, uint32(h.SendPSN), h.Outstanding, h.Think)
	}
	if h.Receiver {
		fmt.Fprintf(b, "  receives from PSN %#06x, %d receives, back after %v, RNR timer %v, outside %v, far %v, counts %d\n",
			uint32(h.RecvPSN), h.Receives, h.RepostAfter, h.RNRTimer.Duration(), h.Outside, h.Far, h.weight())
	}
}

func (l *Link) String() string {
	text := fmt.Sprintf("%.3g Gbit/s, %v, queue %d", 8000/float64(l.PicosPerByte), l.Delay, l.QueueBytes)
	for _, rate := range [...]struct {
		name  string
		value float64
	}{{"loss", l.Loss}, {"duplicate", l.Duplicate}, {"reorder", l.Reorder}, {"late", l.Late}, {"damage", l.Damage}} {
		if rate.value > 0 {
			text += fmt.Sprintf(", %s %g", rate.name, rate.value)
		}
	}
	if l.KmaxBytes > 0 {
		text += fmt.Sprintf(", marks %d %% from %d to %d bytes, cross traffic %d", l.MarkPercent, l.KminBytes, l.KmaxBytes, l.CrossBytes)
	}
	if l.Late > 0 {
		text += fmt.Sprintf(" by %v", l.LateBy)
	}
	return text
}

// hostName is a for the first source, b for the next host and so on, as in the stories of package
// feedback. Hosts behind z have their number: h26.
func hostName(host int) string {
	if host > 'z'-'a' {
		return fmt.Sprintf("h%d", host)
	}
	return string(rune('a' + host))
}
