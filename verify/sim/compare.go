package sim

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
)

// Comparison says what Compare compares.
type Comparison struct {
	Runs      int  // for each figure, with losses of their own
	Workers   int  // runs at the same time
	Receivers int  // only settings with so many receivers; 0: all
	Full      bool // every setting and loss rate with each other, which takes hours
}

// Compare writes tables in Markdown that show what loss costs: groups with each policy, and
// programs that do without multicast. Goodput is that of all runs together and that of the median
// run, each relative to a group without loss. Latencies are those of all messages of all runs. What
// the busiest link carried and what the source resent are for each packet of the transfer, in the
// median run.
func Compare(out io.Writer, c Comparison) error {
	settings := defaultSettings()
	if c.Full {
		settings = fullSettings()
	}
	if c.Receivers != 0 {
		settings = slices.DeleteFunc(settings, func(s setting) bool { return s.receivers != c.Receivers })
	}
	if len(settings) == 0 {
		return fmt.Errorf("there is no table for %d receivers, only for %v", c.Receivers, comparedReceivers)
	}
	for i := range settings {
		if err := c.compare(out, &settings[i]); err != nil {
			return err
		}
	}
	return nil
}

// method is one way to bring messages to all receivers: a group with a policy, or programs that
// pass the messages on.
type method struct {
	name   string
	policy feedback.Policy
	shape  relaying.Shape // nil: a group
	slices int
}

// policies are the groups that are compared. Without loss they do the same.
var policies = []method{
	{name: "`hold`", policy: feedback.Policy{Nak: feedback.NakHold}},
	{name: "`lower`", policy: feedback.Policy{Nak: feedback.NakLower}},
	{name: "`hold`, `repair: local`", policy: feedback.Policy{Nak: feedback.NakHold, Repair: feedback.RepairLocal}},
}

// setting is everything on which a transfer depends, except for the loss rate.
type setting struct {
	receivers int
	legs      bool          // only the receivers' links lose frames; else all links do
	delay     time.Duration // of each link
	timeout   uint8
	messages  int // in all
	bytes     int // of each message
	posted    int // messages that the program keeps posted
	losses    []float64
}

// Two loads. The last message of a stream is like the others, while each message of the other load
// ends with a packet that nothing follows, so that nobody notices its loss.
const (
	streamBytes, streamPosted = 64 << 10, 16
	singleBytes, singlePosted = 1 << 20, 1
)

// The links have 25 Gbit/s, and the queue pairs have the attributes of perftest.
const (
	comparedPicosPerByte = 320
	comparedMTU          = 1024
	comparedRepairChunks = 16384 // the default of rocastd
	perftestTimeout      = 14    // 67 ms
	longTimeout          = 17    // 0.5 s
	shortDelay           = 2 * time.Microsecond
	mediumDelay          = 10 * time.Microsecond
	longDelay            = 50 * time.Microsecond
)

// defaultSettings are a base and what changes when one thing is different from the base.
func defaultSettings() []setting {
	base := stream(3)
	base.losses = []float64{0, 1e-5, 1e-4, 1e-3, 1e-2}
	vary := func(losses []float64, change func(*setting)) setting {
		s := base
		s.losses = losses
		change(&s)
		return s
	}
	return []setting{
		base,
		vary([]float64{1e-3, 1e-2}, func(s *setting) { s.legs = true }),
		vary([]float64{1e-3}, func(s *setting) { s.timeout = longTimeout }),
		vary([]float64{1e-3}, func(s *setting) { s.delay = mediumDelay }),
		vary([]float64{1e-3}, func(s *setting) { s.delay = longDelay }),
		vary([]float64{0, 1e-3}, func(s *setting) { s.single() }),
		vary([]float64{1e-3}, func(s *setting) { s.count(1) }),
		vary([]float64{0, 1e-4, 1e-3}, func(s *setting) { s.count(64) }),
		vary([]float64{0, 1e-4}, func(s *setting) { s.count(512) }),
	}
}

var comparedReceivers = []int{1, 3, 64, 512}

// fullSettings are all settings.
func fullSettings() (all []setting) {
	for _, receivers := range comparedReceivers {
		for _, timeout := range []uint8{perftestTimeout, longTimeout} {
			for _, delay := range []time.Duration{shortDelay, mediumDelay, longDelay} {
				for variant := range 4 {
					s := stream(receivers)
					if variant >= 2 {
						s.single()
					}
					s.legs, s.timeout, s.delay = variant%2 == 1, timeout, delay
					s.losses = []float64{0, 1e-5, 1e-4, 1e-3, 1e-2}
					all = append(all, s)
				}
			}
		}
	}
	return all
}

func stream(receivers int) setting {
	s := setting{delay: shortDelay, timeout: perftestTimeout, bytes: streamBytes, posted: streamPosted}
	s.count(receivers)
	return s
}

// single makes the load one message at a time.
func (s *setting) single() {
	s.bytes, s.posted = singleBytes, singlePosted
	s.count(s.receivers)
}

// count sets the number of receivers, and bounds the packets of a run.
func (s *setting) count(receivers int) {
	total := 16 << 20
	switch {
	case receivers > 64:
		total = 1 << 20
	case receivers > 3:
		total = 4 << 20
	}
	s.receivers, s.messages = receivers, total/s.bytes
}

func (s *setting) String() string {
	where, load := "every link, in both directions", fmt.Sprintf("%d messages of %d KiB, %d posted", s.messages, s.bytes>>10, s.posted)
	if s.legs {
		where = "the receivers' links only"
	}
	if s.posted == 1 {
		load = fmt.Sprintf("%d messages of %d KiB, one at a time", s.messages, s.bytes>>10)
	}
	if s.messages == 1 {
		load = fmt.Sprintf("one message of %d KiB", s.bytes>>10)
	}
	timeout := rnic.AckTimeout(s.timeout)
	packets := rnic.PacketsIn(timeout, comparedMTU, int64(time.Second)*1000*8/comparedPicosPerByte)
	return fmt.Sprintf("Receivers: %d. Loss on %s. Round trip %v (%d KiB at 25 Gbit/s). Source timeout %v (%d packets of a link). Load: %s.",
		s.receivers, where, 4*s.delay, (4*s.delay).Nanoseconds()*1000/comparedPicosPerByte>>10, timeout.Round(time.Millisecond), packets, load)
}

// scenario is one transfer.
func (s *setting) scenario(seed uint64, p feedback.Policy, loss float64) Scenario {
	link := Link{PicosPerByte: comparedPicosPerByte, Delay: s.delay, QueueBytes: 1 << 20, Loss: loss}
	source := Host{ToSwitch: link, ToHost: link, Outstanding: s.posted}
	if s.legs {
		source.ToSwitch.Loss, source.ToHost.Loss = 0, 0
	}
	for i := range s.messages {
		source.Messages = append(source.Messages, Message{Op: rnic.Write, Bytes: s.bytes, From: i * comparedMTU})
	}
	hosts := []Host{source}
	for range s.receivers {
		hosts = append(hosts, Host{ToSwitch: link, ToHost: link, Receiver: true})
	}
	return Scenario{
		Seed: seed, Policy: p, MTUBytes: comparedMTU, Regions: 1, MemoryBytes: s.bytes, Hosts: hosts,
		RepairChunks: comparedRepairChunks,
		Timeout:      s.timeout, RetryCount: retryForEver, RNRRetry: retryForEver, Limit: time.Hour,
	}
}

const (
	chainSlices = 4 // shown beside the best number
	maxSlices   = 256
)

// methods returns what is compared in a setting.
func (s *setting) methods(loss float64) []method {
	m := slices.Clone(policies)
	if loss == 0 {
		m = []method{{name: "every policy", policy: policies[0].policy}}
	}
	m = append(m, method{name: "unicast", shape: relaying.Unicast, slices: 1})
	if s.receivers == 1 {
		return m // a chain or a tree is the same
	}
	for n := 1; n <= maxSlices && s.bytes/n >= comparedMTU; n *= 2 {
		m = append(m, method{name: "chain", shape: relaying.Chain, slices: n})
	}
	return append(m, method{name: "binomial tree", shape: relaying.Binomial, slices: 1})
}
