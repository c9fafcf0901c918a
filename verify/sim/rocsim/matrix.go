package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/verify/sim"
)

// cellOutcome is what the runs of one cell had.
type cellOutcome struct {
	failed uint64 // runs
	seed   uint64 // of the first one
	first  *sim.Failure
}

// playMatrix plays cells, each with o.seeds seeds from o.from on, and reports whether all held that
// are not known to fail, and whether each known failure still fails.
func (o *options) playMatrix(out io.Writer) (ok bool, err error) {
	cells, err := o.cells()
	if err != nil {
		return false, err
	}
	began := time.Now()
	outcomes, err := o.playCells(cells)
	if err != nil {
		return false, err
	}
	runs := uint64(len(cells)) * o.seeds
	took := time.Since(began)
	fmt.Fprintf(out, "%d cells, %d runs, seeds %d to %d, in %v: %.0f runs a minute\n", len(cells), runs, o.from, o.from+o.seeds-1,
		took.Round(time.Millisecond), float64(runs)/took.Minutes())
	ok = true
	for k, c := range cells {
		if x := &outcomes[k]; x.failed > 0 && !sim.IsKnown(c) {
			ok = false
			fmt.Fprintf(out, "\n%d of %d runs failed: %v\nreplay: make matrix IN=simulation SEED=%d CELL='%v'\n", x.failed, o.seeds, x.first, x.seed, c)
		}
	}
	for _, known := range sim.KnownFailures {
		tried, failed := uint64(0), uint64(0)
		for k, c := range cells {
			if c.Has(known.Of) {
				tried, failed = tried+o.seeds, failed+outcomes[k].failed
			}
		}
		fmt.Fprintf(out, "\nknown failure %s: %s: %d of %d runs\n", known.Of, known.Why, failed, tried)
		if tried > knownTries && failed == 0 {
			ok = false
			fmt.Fprintf(out, "it fails no longer: take it from KnownFailures of verify/sim\n")
		}
	}
	if ok {
		fmt.Fprintf(out, "\nall cells hold that are not known to fail\n")
	}
	return ok, nil
}

// knownTries is how many runs of a known failure have to hold before it counts as mended.
const knownTries = 200

// cells returns the cells of the matrix that have the values that are asked for.
func (o *options) cells() (cells []matrix.Cell, err error) {
	if err := matrix.Check(o.only); err != nil {
		return nil, err
	}
	for _, c := range matrix.Cover(matrix.Simulation, o.from) {
		if c.Has(o.only) {
			cells = append(cells, c)
		}
	}
	if len(cells) == 0 {
		return nil, fmt.Errorf("no simulated cell has %s", o.only)
	}
	return cells, nil
}

func (o *options) playCells(cells []matrix.Cell) ([]cellOutcome, error) {
	outcomes := make([]cellOutcome, len(cells))
	errs := make([]error, o.workers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for worker := range o.workers {
		wg.Go(func() {
			var runner sim.Runner
			for k := next.Add(1) - 1; k < int64(len(cells)) && errs[worker] == nil; k = next.Add(1) - 1 {
				errs[worker] = o.playCell(&runner, cells[k], &outcomes[k])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func (o *options) playCell(runner *sim.Runner, c matrix.Cell, x *cellOutcome) error {
	for n := range o.seeds {
		result, err := runner.RunCell(c, o.from+n)
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		if result.Failure != nil {
			if x.failed++; x.failed == 1 {
				x.seed, x.first = o.from+n, result.Failure
			}
		}
	}
	return nil
}

// retellCell plays the first seed of one cell and prints the story.
func (o *options) retellCell(out io.Writer) (ok bool, err error) {
	c, err := matrix.Parse(o.cell)
	if err != nil {
		return false, err
	}
	lines := o.lines
	if lines == 0 {
		lines = sim.AllLines
	}
	var runner sim.Runner
	if _, err := runner.RunCell(c, o.from); err != nil { // it says why a cell is not simulated
		return false, err
	}
	result, story, err := runner.ReplayCell(c, o.from, lines)
	if err != nil {
		return false, err
	}
	conclude(out, story, &result)
	return result.Failure == nil, nil
}
