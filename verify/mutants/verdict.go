package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"text/tabwriter"
	"time"
)

// verdict is the test that noticed a rule's mutant, or what kept the mutant from being tried.
type verdict struct {
	noticed noticer
	err     error
	took    time.Duration
}

// tryAll tries mutants on all processors. The verdicts are in the rules' order. numbers are those
// of the rules' copies, by the rules' names.
func tryAll(rs []rule, numbers map[string]int, before noticers) []verdict {
	verdicts := make([]verdict, len(rs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := range next {
				start, name := time.Now(), rs[i].name
				verdicts[i].noticed, verdicts[i].err = rs[i].try(numbers[name], before[name])
				verdicts[i].took = time.Since(start)
			}
		})
	}
	for i := range rs {
		next <- i
	}
	close(next)
	workers.Wait()
	return verdicts
}

// printVerdicts prints a table and returns the number of mutants that survived or were not tried.
func printVerdicts(rs []rule, verdicts []verdict) (survivors int) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	for i, r := range rs {
		noticed := verdicts[i].noticed.String()
		switch {
		case verdicts[i].err != nil:
			survivors++
			noticed = "NOT TRIED: " + verdicts[i].err.Error()
		case noticed == "":
			survivors++
			noticed = "SURVIVED"
		}
		fmt.Fprintf(out, "%s\t%s\t%.1f s\t%s\n", r.rule, r.name, verdicts[i].took.Seconds(), noticed)
	}
	return survivors
}
