package sim

import (
	"time"

	"github.com/rocast/rocast/internal/rnic"
)

// Result is the outcome of a run.
type Result struct {
	Failure *Failure      // nil: all invariants held
	Status  rnic.Status   // the first error that the program of the first source heard
	Took    time.Duration // simulated, until the programs of the sources had heard of everything
	Events  uint64
	Hash    uint64 // over all events, in order
	Tally   Tally
	Source  rnic.Counters // of the first source
	Behind  int           // receivers that a quorum left behind
	Engine  EngineCount
	// CutDeaf says that a source lost its turn inside a message while it waited for the time of an
	// RNR NAK, so that no question could reach it. The queue pairs of its receivers have ended.
	CutDeaf bool
}

// Runner plays scenarios, one after the other. It is for one goroutine.
type Runner struct{ w world }

// Run plays s. The error says why a scenario cannot be set up.
func (r *Runner) Run(s Scenario) (Result, error) {
	w := &r.w
	begin := w.open
	if s.Removed != nil {
		begin = w.runRemoved
	}
	if err := begin(&s); err != nil {
		return Result{}, err
	}
	if w.failure == nil {
		w.run()
	}
	behind := 0
	for i := range w.hosts {
		if w.hosts[i].behind {
			behind++
		}
	}
	return Result{
		Failure: w.failure, Status: w.hosts[0].status, Took: w.took, Events: w.events, Hash: w.hash, Tally: w.tally,
		Source: *w.hosts[0].qp.Counters(), Behind: behind, Engine: w.carried,
		CutDeaf: w.cutDeaf,
	}, nil
}
