// Command rocsim runs thousands of seeds of the simulation, replays one seed, or shows what
// loss costs with each policy, and without multicast, or how groups share congested links:
//
//	make sim SEEDS=20000            seeds 0 to 19999
//	make sim SEEDS=20000 FROM=5000  seeds 5000 to 24999
//	make sim REPLAY=4711            one seed, its story and its frames
//	go run ./verify/sim/rocsim -table 20
//	go run ./verify/sim/rocsim -congestion
//	go run ./verify/sim/rocsim -receivers 512 -seeds 100
//	go run ./verify/sim/rocsim -tree -seeds 20000
//	make matrix                     the cells of the matrix, and some of them in namespaces
//
// It exits with 1 if an invariant did not hold.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rocast/rocast/verify/sim"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

type options struct {
	seeds, from, replay uint64
	workers, lines      int
	table, receivers    int
	full, tree          bool
	congestion, matrix  bool
	out, cell, only     string
}

// run is main with everything that it touches as an argument.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("rocsim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&o.seeds, "seeds", 1000, "how many seeds to run")
	flags.Uint64Var(&o.from, "from", 0, "the first `seed`")
	flags.Uint64Var(&o.replay, "replay", 0, "run this `seed` alone, print its story and write its frames")
	flags.IntVar(&o.receivers, "receivers", 0,
		fmt.Sprintf("every run has `n` receivers, at most %d, and the more receivers, the fewer packets; 0: mostly three", sim.MaxReceivers))
	flags.IntVar(&o.lines, "lines", 40, "how many of the last `lines` of a story to print; 0: all")
	flags.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "how many seeds run at the same time")
	flags.IntVar(&o.table, "table", 0, "show what loss costs, with so many `runs` for each figure; with -receivers, only for so many")
	flags.BoolVar(&o.congestion, "congestion", false, "show how a group shares congested links with unicast flows")
	flags.BoolVar(&o.full, "full", false, "with -table: all settings, which takes hours")
	flags.BoolVar(&o.tree, "tree", false, "every run goes through a tree of boxes, of two or three levels")
	flags.BoolVar(&o.matrix, "matrix", false, "play the cells of the matrix, each with -seeds seeds from -from on")
	flags.StringVar(&o.only, "only", "", "with -matrix, only cells that have these `values`, such as family=ipv6 event=kill")
	flags.StringVar(&o.cell, "cell", "", "play this cell of the matrix with seed -from, and print its story")
	flags.StringVar(&o.out, "out", "build", "`directory` for the frames of a replayed or failed seed")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ok, err := o.act(flags, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "rocsim:", err)
		return 2
	}
	if !ok {
		return 1
	}
	return 0
}

func (o *options) act(flags *flag.FlagSet, stdout io.Writer) (ok bool, err error) {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case o.receivers < 0 || o.receivers > sim.MaxReceivers:
		return false, fmt.Errorf("%d receivers are not from 1 to %d", o.receivers, sim.MaxReceivers)
	case o.tree && (o.receivers > 0 || given["table"]):
		return false, errors.New("-tree goes with neither -receivers nor -table")
	case o.workers < 1 || given["table"] && o.table < 1:
		return false, errors.New("-workers and -table need a number from 1 on")
	case o.cell != "":
		return o.retellCell(stdout)
	case o.matrix:
		return o.playMatrix(stdout)
	case o.congestion:
		return true, sim.Share(stdout)
	case given["table"]:
		return true, sim.Compare(stdout, sim.Comparison{Runs: o.table, Workers: o.workers, Receivers: o.receivers, Full: o.full})
	case given["replay"]:
		return o.retell(stdout, o.replay)
	}
	c, err := play(o)
	if err != nil {
		return false, err
	}
	c.report(stdout)
	if len(c.failed) == 0 {
		return true, nil
	}
	fmt.Fprintf(stdout, "\nthe first that failed:\n")
	_, err = o.retell(stdout, c.failed[0].seed)
	fmt.Fprintf(stdout, "replay: %s\n", o.again(c.failed[0].seed))
	return false, err
}

// draw makes the scenario of a seed.
func (o *options) draw(seed uint64) sim.Scenario {
	if o.receivers > 0 {
		return sim.DrawReceivers(seed, o.receivers)
	}
	return sim.Draw(seed)
}

// again returns the command that plays a seed of this campaign alone.
func (o *options) again(seed uint64) string {
	switch {
	case o.tree:
		return fmt.Sprintf("go run ./verify/sim/rocsim -tree -replay %d", seed)
	case o.receivers > 0:
		return fmt.Sprintf("go run ./verify/sim/rocsim -receivers %d -replay %d", o.receivers, seed)
	}
	return fmt.Sprintf("make sim REPLAY=%d", seed)
}

// retellTree plays one seed through its tree and prints the story.
func (o *options) retellTree(stdout io.Writer, seed uint64) (ok bool, err error) {
	var runner sim.Runner
	s := sim.DrawTree(seed)
	lines := o.lines
	if lines == 0 {
		lines = sim.AllLines
	}
	result, story, err := runner.ReplayTree(s, lines)
	if err != nil {
		return false, fmt.Errorf("replay seed %d: %w", seed, err)
	}
	fmt.Fprintln(stdout, &s)
	conclude(stdout, story, &result)
	return result.Failure == nil, nil
}

func conclude(stdout io.Writer, story []string, result *sim.Result) {
	for _, line := range story {
		fmt.Fprintln(stdout, line)
	}
	if result.Failure != nil {
		fmt.Fprintln(stdout, result.Failure)
		return
	}
	fmt.Fprintf(stdout, "all invariants held; the program of the source heard: %v, after %v\n", result.Status, result.Took)
}

// retell plays one seed with everything recorded.
func (o *options) retell(stdout io.Writer, seed uint64) (ok bool, err error) {
	if o.tree {
		return o.retellTree(stdout, seed)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return false, err
	}
	name := filepath.Join(o.out, fmt.Sprintf("sim-%d.pcapng", seed))
	capture, err := os.Create(name)
	if err != nil {
		return false, err
	}
	defer capture.Close()
	lines := o.lines
	if lines == 0 {
		lines = sim.AllLines
	}
	var runner sim.Runner
	s := o.draw(seed)
	result, story, err := runner.Replay(s, lines, capture)
	if err != nil {
		return false, fmt.Errorf("replay seed %d: %w", seed, err)
	}
	fmt.Fprintln(stdout, &s)
	conclude(stdout, story, &result)
	fmt.Fprintf(stdout, "frames: %s\n", name)
	return result.Failure == nil, capture.Close()
}
