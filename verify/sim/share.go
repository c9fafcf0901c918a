package sim

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// The links have 25 Gbit/s. The bounds of their queues are those with which HPCC's authors simulate
// DCQCN at this rate; sources and receivers have the parameters of DCQCN's paper
// (docs/wire.md#congestion).
const (
	sharedPicosPerByte = 320
	sharedRate         = 25_000_000_000
	sharedMTU          = 4096
	sharedQueueBytes   = 1 << 20
	sharedCNPInterval  = 50 * time.Microsecond
	sharedDelay        = 2 * time.Microsecond
	warmUp             = 50 * time.Millisecond // before shares are measured, and as long afterwards
	staggered          = 2 * time.Millisecond  // between the beginnings of two flows
)

var sharedMarks = dataplane.Egress{KminBytes: 100 << 10, KmaxBytes: 400 << 10, MarkPercent: 20}

// sharedCase is a group whose receivers' links are shared with flows.
type sharedCase struct {
	receivers int
	flows     []Flow
	deaf      bool // nobody marks, notifies or slows down
	policy    feedback.Policy
	seed      uint64
	takes     time.Duration
}

// scenario is a group whose source always has something to send. Behind the receivers there are as
// many hosts that only send flows.
func (c *sharedCase) scenario() Scenario {
	const messageBytes = 64 << 10
	link := Link{PicosPerByte: sharedPicosPerByte, Delay: sharedDelay, QueueBytes: sharedQueueBytes, Egress: sharedMarks}
	if c.deaf {
		link.Egress = dataplane.Egress{}
	}
	source := Host{ToSwitch: link, ToHost: link, Outstanding: 16}
	for i := range int(c.takes.Nanoseconds()*1000/sharedPicosPerByte/messageBytes) + 1 {
		source.Messages = append(source.Messages, Message{Op: rnic.Write, Bytes: messageBytes, From: i % 64 * sharedMTU})
	}
	s := Scenario{
		Seed: c.seed, Policy: c.policy, MTUBytes: sharedMTU, Regions: 1, MemoryBytes: messageBytes, Hosts: []Host{source},
		RepairChunks: comparedRepairChunks,
		Timeout:      perftestTimeout, RetryCount: retryForEver, RNRRetry: retryForEver, Limit: time.Hour,
	}
	for range c.receivers {
		s.Hosts = append(s.Hosts, Host{ToSwitch: link, ToHost: link, Receiver: true})
	}
	for _, f := range c.flows {
		for len(s.Hosts) <= f.From {
			s.Hosts = append(s.Hosts, Host{ToSwitch: link, ToHost: link})
		}
	}
	if !c.deaf {
		s.CNPInterval, s.RateControl = sharedCNPInterval, rnic.DCQCN(sharedRate)
	}
	return s
}

// shares is what a sharedCase measures.
type shares struct {
	// series has the bit rates in each period: that of the group, and of each flow.
	series  [][]float64
	lost    uint64 // frames that found a full queue
	longest int    // bytes that waited in a queue
	marked  uint64
	heard   uint64 // notifications that the source of the group heard
}

// run plays a case and measures every period.
func (c *sharedCase) run(period time.Duration) (m shares, err error) {
	var s sharing
	scenario := c.scenario()
	if err := s.open(&scenario, c.flows); err != nil {
		return m, err
	}
	before := make([]uint64, 1+len(c.flows))
	err = s.run(c.takes, period, func() {
		rates := make([]float64, len(before))
		for i, n := range s.delivered(c.receivers) {
			rates[i] = float64(n-before[i]) * 8 / period.Seconds()
			before[i] = n
		}
		m.series = append(m.series, rates)
	})
	w := &s.w
	for i := range w.hosts {
		for _, l := range []*link{&w.hosts[i].toHost, &w.hosts[i].toSwitch} {
			m.longest = max(m.longest, int(l.longest.Nanoseconds()*1000/sharedPicosPerByte))
		}
	}
	m.lost = w.tally[QueueFull].Data + w.tally[QueueFull].Feedback
	m.marked = w.tally[Marked].Data + w.tally[Marked].Feedback
	m.heard = w.hosts[0].qp.Counters().Get(rnic.CNPsReceived)
	return m, err
}

// delivered returns the bytes of payload that the slowest receiver of the group has, and those that
// the receiver of each flow has.
func (s *sharing) delivered(receivers int) (bytes []uint64) {
	slowest := ^uint64(0)
	for i := range receivers {
		slowest = min(slowest, s.w.hosts[1+i].qp.Counters().Get(rnic.PayloadBytesReceived))
	}
	bytes = append(bytes, slowest)
	for i := range s.flows {
		bytes = append(bytes, s.ends[2*i+1].qp.Counters().Get(rnic.PayloadBytesReceived))
	}
	return bytes
}

// over returns the rates over the periods from one to another, in all.
func (m *shares) over(from, to int) []float64 {
	sum := make([]float64, len(m.series[0]))
	for _, rates := range m.series[from:to] {
		for i, r := range rates {
			sum[i] += r / float64(to-from)
		}
	}
	return sum
}

// fairness is Jain's index: 1 if all rates are equal, and 1/n if one of n has everything (Jain,
// Chiu and Hawe, "A Quantitative Measure of Fairness", 1984).
func fairness(rates []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, r := range rates {
		sum += r
		squares += r * r
	}
	return sum * sum / (float64(len(rates)) * squares)
}

// beside returns a group of three receivers with n flows to the first one.
func beside(n int, deaf bool) sharedCase {
	c := sharedCase{receivers: 3, deaf: deaf, seed: 1, takes: 2 * warmUp}
	for i := range n {
		c.flows = append(c.flows, Flow{From: 4 + i, To: 1, Begin: time.Duration(1+i) * staggered, Until: c.takes})
	}
	return c
}

// congestedLegs returns a group of eight receivers, with a flow to each of the first n.
func congestedLegs(n int, p feedback.CNPPolicy) sharedCase {
	c := sharedCase{receivers: 8, policy: feedback.Policy{CNP: p}, seed: 1, takes: 2 * warmUp}
	for i := range n {
		c.flows = append(c.flows, Flow{From: 9 + i, To: 1 + i, Begin: time.Duration(1+i) * staggered, Until: c.takes})
	}
	return c
}

// moving is the experiment of Cepheus (HPCA 2024, figure 14): a group of 15 receivers, then a flow
// to one of them, and later, when that has ended, a flow to another one. The senders of the flows
// are receivers of the group.
func moving() sharedCase {
	const part = 60 * time.Millisecond
	return sharedCase{
		receivers: 15, seed: 1, takes: 4 * part,
		flows: []Flow{{From: 1, To: 2, Begin: part, Until: 2 * part}, {From: 3, To: 4, Begin: 3 * part, Until: 4 * part}},
	}
}

// Share writes tables in Markdown that show how a group shares links with unicast flows.
func Share(out io.Writer) error {
	for _, write := range []func(io.Writer) error{shareMoving, shareLeg, shareLegs} {
		if err := write(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return nil
}

const gigabit = 1e9

func shareMoving(out io.Writer) error {
	const period = 10 * time.Millisecond
	c := moving()
	m, err := c.run(period)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "| from, ms | group | flow 1 | flow 2 | fairness |\n|---|---|---|---|---|")
	for i, rates := range m.series {
		active := []float64{rates[0]}
		for k, f := range c.flows {
			if at := time.Duration(i) * period; at >= f.Begin && at < f.Until {
				active = append(active, rates[1+k])
			}
		}
		fmt.Fprintf(out, "| %d |%s %.3f |\n", (time.Duration(i) * period).Milliseconds(), gigabits(rates), fairness(active))
	}
	fmt.Fprintf(out, "\nLost: %d. Longest queue: %d KiB.\n", m.lost, m.longest>>10)
	return nil
}

// gigabits writes cells of a table.
func gigabits(rates []float64) (cells string) {
	for _, r := range rates {
		cells += fmt.Sprintf(" %.1f |", r/gigabit)
	}
	return cells
}

func shareLeg(out io.Writer) error {
	fmt.Fprintln(out, "| flows beside the group | | group | slowest flow | fastest flow | fairness | sum | lost | longest queue, KiB |\n"+
		"|---|---|---|---|---|---|---|---|---|")
	for _, n := range []int{1, 2, 3, 7} {
		for _, deaf := range []bool{true, false} {
			c, name := beside(n, deaf), "DCQCN"
			if deaf {
				name = "no marks"
			}
			m, err := c.run(warmUp)
			if err != nil {
				return err
			}
			rates, sum := m.over(1, 2), 0.0
			for _, r := range rates {
				sum += r
			}
			fmt.Fprintf(out, "| %d | %s |%s %.3f | %.1f | %d | %d |\n", n, name,
				gigabits([]float64{rates[0], slices.Min(rates[1:]), slices.Max(rates[1:])}), fairness(rates), sum/gigabit, m.lost, m.longest>>10)
		}
	}
	return nil
}

func shareLegs(out io.Writer) error {
	fmt.Fprintln(out, "| congested legs | `cnp: filter` | flows | `cnp: all` | flows |\n|---|---|---|---|---|")
	for _, n := range []int{1, 2, 4, 8} {
		fmt.Fprintf(out, "| %d |", n)
		for _, p := range []feedback.CNPPolicy{feedback.CNPFilter, feedback.CNPAll} {
			c := congestedLegs(n, p)
			m, err := c.run(warmUp)
			if err != nil {
				return err
			}
			rates, mean := m.over(1, 2), 0.0
			for _, r := range rates[1:] {
				mean += r / float64(n)
			}
			fmt.Fprint(out, gigabits([]float64{rates[0], mean}))
		}
		fmt.Fprintln(out)
	}
	return nil
}
