package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/verify/sim"
)

// campaign adds up many seeds.
type campaign struct {
	from, seeds uint64
	workers     int
	took, cpu   time.Duration
	events      uint64
	tally       sim.Tally
	engine      sim.EngineCount
	ended       [rnic.FatalError + 1]uint64 // runs, by what the program of the source heard
	failed      []failure                   // by seed
}

type failure struct {
	seed uint64
	err  *sim.Failure
}

// play runs the seeds that were asked for. Each run is on one goroutine from beginning to end.
func play(o *options) (*campaign, error) {
	c := &campaign{from: o.from, seeds: o.seeds, workers: o.workers}
	start, cpu := time.Now(), cpuTime()
	var next atomic.Uint64
	var mu sync.Mutex
	var wg sync.WaitGroup
	var broken error
	for range o.workers {
		wg.Go(func() {
			part, err := some(o, &next)
			mu.Lock()
			defer mu.Unlock()
			c.add(part)
			if err != nil {
				broken = err
			}
		})
	}
	wg.Wait()
	c.took, c.cpu = time.Since(start), cpuTime()-cpu
	slices.SortFunc(c.failed, func(a, b failure) int { return int(a.seed) - int(b.seed) })
	return c, broken
}

// some runs seeds until there are none left.
func some(o *options, next *atomic.Uint64) (*campaign, error) {
	var c campaign
	var runner sim.Runner
	for {
		n := next.Add(1) - 1
		if n >= o.seeds {
			return &c, nil
		}
		seed := o.from + n
		result, err := o.run(&runner, seed)
		if err != nil {
			return &c, fmt.Errorf("seed %d: %w", seed, err)
		}
		c.events += result.Events
		c.tally.Add(&result.Tally)
		c.engine.Add(&result.Engine)
		if result.Failure != nil {
			c.failed = append(c.failed, failure{seed, result.Failure})
		} else {
			c.ended[result.Status]++
		}
	}
}

func (o *options) run(r *sim.Runner, seed uint64) (sim.Result, error) {
	if o.tree {
		return r.RunTree(sim.DrawTree(seed))
	}
	return r.Run(o.draw(seed))
}

func (c *campaign) add(part *campaign) {
	c.events += part.events
	c.tally.Add(&part.tally)
	c.engine.Add(&part.engine)
	c.failed = append(c.failed, part.failed...)
	for i, n := range part.ended {
		c.ended[i] += n
	}
}

// cpuTime returns the time that the process has used on all its threads.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// shownFailures bounds the list of failed seeds; their number is always printed.
const shownFailures = 10

func (c *campaign) report(out io.Writer) {
	runs := float64(c.seeds)
	fmt.Fprintf(out, "%d runs, seeds %d to %d, in %v on %d threads: %.0f runs/s, %.0f a minute for each core's time; %d events a run\n",
		c.seeds, c.from, c.from+c.seeds-1, c.took.Round(time.Millisecond), c.workers, runs/c.took.Seconds(), runs/c.cpu.Minutes(),
		c.events/c.seeds)
	fmt.Fprintf(out, "\n%-16s %10s %12s %12s\n", "injected", "times", "data", "feedback")
	for kind := range c.tally {
		n := &c.tally[kind]
		fmt.Fprintf(out, "%-16v %10d %12d %12d\n", sim.Fault(kind), n.Times, n.Data, n.Feedback)
	}
	e := &c.engine
	fmt.Fprintf(out, "\nthe engine was armed %d times and carried %d packets, %d of them while the core was at work and %d after its crash; "+
		"it merged %d ACKs into %d\n",
		e.Armed, e.Carried, e.CarriedApart, e.CarriedAlone, e.Merged, e.Told)
	fmt.Fprintf(out, "\n%10s  the program of the source heard\n", "runs")
	for status, n := range c.ended {
		if n > 0 {
			fmt.Fprintf(out, "%10d  %v\n", n, rnic.Status(status))
		}
	}
	if len(c.failed) == 0 {
		fmt.Fprintf(out, "\nall invariants held in all runs\n")
		return
	}
	fmt.Fprintf(out, "\nin %d runs an invariant did not hold:\n", len(c.failed))
	for _, f := range c.failed[:min(len(c.failed), shownFailures)] {
		fmt.Fprintf(out, "seed %d: %v\n", f.seed, f.err)
	}
}
