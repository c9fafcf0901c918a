package sim

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/internal/rnic"
)

// outcome is what one run measures.
type outcome struct {
	took      time.Duration   // until all senders have heard of everything
	latencies []time.Duration // of each message, from its post until the last receiver had it
	busiest   uint64          // frames on the link that carried most
	resent    uint64          // packets that the source resent
}

// tester plays runs of both kinds, one after the other.
type tester struct {
	group Runner
	relay relay
}

func (t *tester) play(s Scenario, m *method) (o outcome, err error) {
	if m.shape != nil {
		if err = t.relay.run(&s, m.shape, m.slices); err != nil {
			return o, err
		}
		return t.relay.outcome(), nil
	}
	r, err := t.group.Run(s)
	if err != nil {
		return o, err
	}
	if r.Failure != nil {
		return o, r.Failure
	}
	w := &t.group.w
	o = outcome{took: r.Took, latencies: latencies(w.hosts[0].flights), resent: r.Source.Get(rnic.FramesRetransmitted)}
	for i := range w.hosts {
		o.busiest = max(o.busiest, w.hosts[i].toSwitch.offered, w.hosts[i].toHost.offered)
	}
	return o, nil
}

func (r *relay) outcome() outcome {
	o := outcome{took: r.w.took, latencies: latencies(r.flights)}
	for i := range r.nodes {
		o.busiest = max(o.busiest, r.nodes[i].toSwitch.offered, r.nodes[i].toHost.offered)
	}
	for _, e := range r.nodes[0].next {
		o.resent += e.qp.Counters().Get(rnic.FramesRetransmitted)
	}
	return o
}

func latencies(flights []flight) (l []time.Duration) {
	for i := range flights {
		l = append(l, flights[i].arrivedAt-flights[i].postedAt)
	}
	return l
}

// cell is a method at a loss rate: one line of the table.
type cell struct {
	method
	loss float64
	runs []outcome // by seed
}

// cells returns the lines of a setting. The first one is a group without loss, with which the
// others are compared.
func (c *Comparison) cells(s *setting) (cells []cell) {
	cells = []cell{{method: policies[0], runs: make([]outcome, 1)}}
	for _, loss := range s.losses {
		for _, m := range s.methods(loss) {
			runs := c.Runs
			if loss == 0 {
				runs = 1 // nothing is left to chance
			}
			cells = append(cells, cell{m, loss, make([]outcome, runs)})
		}
	}
	return cells
}

func (c *Comparison) compare(out io.Writer, s *setting) error {
	cells := c.cells(s)
	if err := c.measure(s, cells); err != nil {
		return err
	}
	s.write(out, cells)
	return nil
}

// measure plays all runs of the cells.
func (c *Comparison) measure(s *setting, cells []cell) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, c.Workers)
	for worker := range c.Workers {
		wg.Go(func() {
			var t tester
			for errs[worker] == nil {
				k, seed := jobAt(cells, int(next.Add(1)-1))
				if k == len(cells) {
					return
				}
				line := &cells[k]
				o, err := t.play(s.scenario(uint64(seed), line.policy, line.loss), &line.method)
				if err != nil {
					errs[worker] = fmt.Errorf("%s at loss %g, seed %d: %w", line.name, line.loss, seed, err)
				}
				line.runs[seed] = o
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// jobAt returns the cell and the seed of run number n of all runs of the cells.
func jobAt(cells []cell, n int) (k, seed int) {
	for k = range cells {
		if n < len(cells[k].runs) {
			return k, n
		}
		n -= len(cells[k].runs)
	}
	return len(cells), 0
}

func (s *setting) write(out io.Writer, cells []cell) {
	fmt.Fprintf(out, "%v\n\n| loss | | goodput | median run | p50, us | p99, us | busiest link | resent |\n|---|---|---|---|---|---|---|---|\n", s)
	lossless, packets := float64(cells[0].runs[0].took), float64(s.messages*s.bytes/comparedMTU)
	for _, c := range listed(cells[1:]) {
		l := c.latencies()
		fmt.Fprintf(out, "| %s | %s | %.3f | %.3f | %d | %d | %.2f | %.3f |\n", power(c.loss), c.name,
			lossless/c.mean(), lossless/c.median(func(o *outcome) float64 { return float64(o.took) }),
			percentile(l, 50).Microseconds(), percentile(l, 99).Microseconds(),
			c.median(func(o *outcome) float64 { return float64(o.busiest) })/packets,
			c.median(func(o *outcome) float64 { return float64(o.resent) })/packets)
	}
	fmt.Fprintln(out)
}

// power writes a loss rate, which is 0 or a power of ten.
func power(loss float64) string {
	if loss == 0 {
		return "0"
	}
	return fmt.Sprintf("10^%.0f", math.Log10(loss))
}

// listed returns the cells that the table has, of chains only two: that with four slices, and that
// which took the least time.
func listed(cells []cell) (lines []cell) {
	for from, to := 0, 0; from < len(cells); from = to {
		for to = from; to < len(cells) && cells[to].name == cells[from].name && cells[to].loss == cells[from].loss; {
			to++
		}
		same := cells[from:to]
		if len(same) == 1 {
			lines = append(lines, same[0])
			continue
		}
		four := same[slices.IndexFunc(same, func(c cell) bool { return c.slices == chainSlices })]
		best := slices.MinFunc(same, func(a, b cell) int { return cmp.Compare(a.mean(), b.mean()) })
		four.name = fmt.Sprintf("%s, %d slices", four.name, four.slices)
		best.name = fmt.Sprintf("%s, best: %d slices", best.name, best.slices)
		lines = append(lines, four, best)
	}
	return lines
}

// mean is how long the runs took on average, in nanoseconds.
func (c *cell) mean() float64 {
	total := time.Duration(0)
	for i := range c.runs {
		total += c.runs[i].took
	}
	return float64(total) / float64(len(c.runs))
}

func (c *cell) median(of func(*outcome) float64) float64 {
	var values []float64
	for i := range c.runs {
		values = append(values, of(&c.runs[i]))
	}
	slices.Sort(values)
	return percentile(values, 50)
}

// latencies returns those of all messages of all runs, sorted.
func (c *cell) latencies() (all []time.Duration) {
	for i := range c.runs {
		all = append(all, c.runs[i].latencies...)
	}
	slices.Sort(all)
	return all
}

// percentile returns the least of the sorted values than which at most 100-p per cent are greater.
func percentile[T any](sorted []T, p int) T { return sorted[(len(sorted)*p+99)/100-1] }
