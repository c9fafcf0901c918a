// Command mutants breaks one rule of merging at a time and shows that the tests notice: package feedback's own, or else
// those of verify/model.
//
//	go run ./verify/mutants                  all of them
//	go run ./verify/mutants -only 'RNR|quorum'   those whose rule, name or file match
//
// A mutant is a text in a file of feedback that stands there once, and what it is replaced by (list.go). Nothing in the
// tree is touched: the broken file is laid over the real one (go build -overlay). One that no test notices fails the run:
// either a story is missing, or the code it breaks does nothing.
//
// When the code changes, texts may no longer be found. That is an error too, so that the list stays true.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"sync"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("only", "", "break only rules whose rule, name or file match this `regexp`")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err == nil {
		err = run(pattern)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only *regexp.Regexp) error {
	if err := checkList(); err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range mutants {
		if only.MatchString(m.rule + " " + m.name + " " + m.file) {
			chosen = append(chosen, m)
		}
	}
	// Tests that fail anyway would catch everything.
	if caught, err := (mutant{}).try(); err != nil || caught != "" {
		return errors.Join(fmt.Errorf("without any mutant there fails %q", caught), err)
	}
	start := time.Now()
	verdicts := tryAll(chosen)
	survivors := print(chosen, verdicts)
	fmt.Printf("%d mutants, %d survived, %v\n", len(chosen), survivors, time.Since(start).Round(time.Second))
	if survivors > 0 {
		return fmt.Errorf("%d mutants survived", survivors)
	}
	return nil
}

// verdict is the name of the test that caught a mutant, "" for none, or what kept it from being tried.
type verdict struct {
	caught string
	err    error
}

func tryAll(ms []mutant) []verdict {
	verdicts := make([]verdict, len(ms))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := range next {
				verdicts[i].caught, verdicts[i].err = ms[i].try()
			}
		})
	}
	for i := range ms {
		next <- i
	}
	close(next)
	workers.Wait()
	return verdicts
}

// print prints the table and counts the survivors.
func print(ms []mutant, verdicts []verdict) (survivors int) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	for i, m := range ms {
		caught := verdicts[i].caught
		switch {
		case verdicts[i].err != nil:
			survivors++
			caught = "NOT TRIED: " + verdicts[i].err.Error()
		case caught == "":
			survivors++
			caught = "SURVIVED"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", m.rule, m.name, caught)
	}
	return survivors
}
