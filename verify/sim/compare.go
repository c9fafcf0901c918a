package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// compared are the policies that Compare compares.
var compared = []struct {
	name   string
	policy feedback.Policy
}{
	{"hold", feedback.Policy{Nak: feedback.NakHold}},
	{"lower", feedback.Policy{Nak: feedback.NakLower}},
	{"quorum 2 of 3, hold", feedback.Policy{Ack: 2, Nak: feedback.NakHold}},
	{"hold, speak rnr", feedback.Policy{Nak: feedback.NakHold, Speak: feedback.SpeakRNR}},
}

// lossRates are the loss rates of each link, in both directions.
var lossRates = []float64{0, 1e-4, 1e-3, 1e-2}

// The transfer that Compare measures has the queue pair attributes of perftest and links of 25
// Gbit/s.
const (
	comparedMessages = 256
	comparedBytes    = 64 << 10
	comparedMTU      = 1024
	perftestTimeout  = 14 // 67 ms
)

// Compare writes a table in Markdown that shows how each policy performs under loss. Each figure is
// the mean of this many runs, each with losses of its own.
func Compare(out io.Writer, runs int) error {
	fmt.Fprintf(out, "| policy | loss | goodput | resent | NAKs | RNR NAKs | timeouts | behind |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range compared {
		var lossless time.Duration
		for _, rate := range lossRates {
			total, took, err := transfers(c.policy, rate, runs)
			if err != nil {
				return fmt.Errorf("policy %s at loss %g: %w", c.name, rate, err)
			}
			if rate == 0 {
				lossless = took
			}
			mean := func(which rnic.Counter) float64 { return float64(total.source.Get(which)) / float64(runs) }
			fmt.Fprintf(out, "| %s | %g | %.3f | %.0f | %.1f | %.1f | %.1f | %.1f |\n", c.name, rate, float64(lossless)/float64(took),
				mean(rnic.FramesRetransmitted), mean(rnic.NAKSequenceReceived), mean(rnic.RNRNAKsReceived), mean(rnic.Timeouts), float64(total.behind)/float64(runs))
		}
	}
	return nil
}

// sum adds up the runs of one cell.
type sum struct {
	source rnic.Counters
	behind int
}

func transfers(p feedback.Policy, loss float64, runs int) (total sum, took time.Duration, err error) {
	var runner Runner
	for seed := range runs {
		s := transfer(uint64(seed), p, loss)
		r, err := runner.Run(s)
		if err != nil {
			return total, 0, err
		}
		if r.Failure != nil {
			return total, 0, fmt.Errorf("transfer %d: %w", seed, r.Failure)
		}
		took += r.Took
		for i, n := range r.Source.Count {
			total.source.Count[i] += n
		}
		total.behind += r.Behind
	}
	return total, took, nil
}

// transfer is a scenario in which one source writes 16 MiB to three receivers.
func transfer(seed uint64, p feedback.Policy, loss float64) Scenario {
	l := Link{PicosPerByte: 320, Delay: 2 * time.Microsecond, QueueBytes: 1 << 20, Loss: loss}
	source := Host{ToSwitch: l, ToHost: l, Outstanding: 16}
	for i := range comparedMessages {
		source.Messages = append(source.Messages, Message{
			Op: rnic.Write, Bytes: comparedBytes, Target: i % 16 * comparedBytes, From: i * comparedMTU,
		})
	}
	receiver := Host{ToSwitch: l, ToHost: l, Receiver: true}
	return Scenario{
		Seed: seed, Policy: p, MTUBytes: comparedMTU, Regions: 1, MemoryBytes: 16 * comparedBytes,
		Hosts:   []Host{source, receiver, receiver, receiver},
		Timeout: perftestTimeout, RetryCount: retryForEver, RNRRetry: retryForEver, Limit: time.Hour,
	}
}
