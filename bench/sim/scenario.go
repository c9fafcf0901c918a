package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/rocast/rocast/bench/rnic"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Scenario is all that a run depends on. Every field is drawn from the seed by Draw, or set by a test.
type Scenario struct {
	Seed uint64 // of what happens to single frames

	Policy     feedback.Policy
	Addressing mft.Addressing
	IPv6       bool
	MTUBytes   int
	FirstPSN   roce.PSN // of the source
	Regions    int      // of the group's memory; 0: VA and R_Key pass unchanged

	Source    Host
	Receivers []Host
	Timed     []Timed

	Messages    []Message
	MemoryBytes int           // of the region the WRITEs go to
	Outstanding int           // messages the source's program keeps posted
	Think       time.Duration // what it takes its time for before it posts again

	Timeout    uint8 // local ACK timeout: 4.096 us * 2^Timeout
	RetryCount uint8 // 7: for ever
	RNRRetry   uint8 // 7: for ever

	// Limit is the simulated time within which the run has to end.
	Limit time.Duration
}

// Host is one host's link and its program.
type Host struct {
	FirstPSN roce.PSN // receivers: what the host's queue pair calls Scenario.FirstPSN

	ToSwitch, ToHost Link

	// Of receivers only.
	Receives    int           // posted receives its program keeps up
	RepostAfter time.Duration // its program takes so long to give one back
	RNRTimer    roce.RNRTimer
}

// Link is one direction of a cable, with the queue in front of it.
type Link struct {
	PicosPerByte int64 // 8000 is 1 Gbit/s
	Delay        time.Duration
	QueueBytes   int // a frame that finds more than this waiting is dropped

	// Rates of what befalls single frames, from 0 to 1.
	Loss, Duplicate, Reorder, Late, Damage float64
	LateBy                                 time.Duration // at most
}

// trouble is how likely a frame is not to arrive as it was sent, and in time.
func (l *Link) trouble() float64 { return l.Loss + l.Reorder + l.Late + l.Damage }

// Message is one work request of the source.
type Message struct {
	Op    rnic.Operation
	Bytes int
	Place int // WRITE: where in the memory
	From  int // where in the page of random bytes its data is
	Imm   uint32
}

// consumesReceive says whether a receiver needs a receive for it.
func (m *Message) consumesReceive() bool { return m.Op != rnic.Write && m.Op != rnic.Read }

func (m *Message) isSend() bool { return m.Op == rnic.Send || m.Op == rnic.SendImm }

func (m *Message) isWrite() bool { return m.Op == rnic.Write || m.Op == rnic.WriteImm }

func (s *Scenario) packets(m *Message) int {
	return max(1, (m.Bytes+s.MTUBytes-1)/s.MTUBytes)
}

// ackTimeout is the source's.
func (s *Scenario) ackTimeout() time.Duration { return 4096 * time.Nanosecond << s.Timeout }

// longestRNR is what a receiver may ask the source to wait, at most.
func (s *Scenario) longestRNR() (longest time.Duration) {
	for i := range s.Receivers {
		longest = max(longest, s.Receivers[i].RNRTimer.Duration())
	}
	return longest
}

func (s *Scenario) has(kind Fault) bool {
	for i := range s.Timed {
		if s.Timed[i].Kind == kind {
			return true
		}
	}
	return false
}

func (s *Scenario) reads() bool {
	for i := range s.Messages {
		if s.Messages[i].Op == rnic.Read {
			return true
		}
	}
	return false
}

// String tells a person what the run is about.
func (s *Scenario) String() string {
	var b strings.Builder
	packets := 0
	for i := range s.Messages {
		packets += s.packets(&s.Messages[i])
	}
	p := &s.Policy
	fmt.Fprintf(&b, "seed %d: ack %v, nak %v, on-fatal %v, speak %v, credits %v, silent after %v, evict %v\n",
		s.Seed, p.Ack, p.Nak, p.OnFatal, p.Speak, p.Credits, p.SilentAfter, p.Evict)
	fmt.Fprintf(&b, "%v, IPv6 %v, MTU %d, first PSN %#06x\n", s.Addressing, s.IPv6, s.MTUBytes, uint32(s.FirstPSN))
	fmt.Fprintf(&b, "%d messages in %d packets, %d outstanding, think %v, timeout %v, retries %d, RNR retries %d, limit %v\n",
		len(s.Messages), packets, s.Outstanding, s.Think, s.ackTimeout(), s.RetryCount, s.RNRRetry, s.Limit)
	fmt.Fprintf(&b, "a to switch   %v\n  from switch %v\n", &s.Source.ToSwitch, &s.Source.ToHost)
	for i := range s.Receivers {
		r := &s.Receivers[i]
		fmt.Fprintf(&b, "%s to switch   %v\n  from switch %v\n  first PSN %#06x, %d receives, back after %v, RNR timer %v\n",
			hostName(i+1), &r.ToSwitch, &r.ToHost, uint32(r.FirstPSN), r.Receives, r.RepostAfter, r.RNRTimer.Duration())
	}
	for i := range s.Timed {
		f := &s.Timed[i]
		fmt.Fprintf(&b, "%v of %s, %v after packet %d, for %v\n", f.Kind, hostName(f.Host), f.Delay, f.AfterPacket, f.For)
	}
	return b.String()
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
	if l.Late > 0 {
		text += fmt.Sprintf(" by %v", l.LateBy)
	}
	return text
}

// hostName is a for the source, b for the first receiver and so on, as in the stories of package feedback.
func hostName(host int) string { return string(rune('a' + host)) }
