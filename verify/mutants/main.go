// Command mutants breaks the code on purpose, one place at a time, and shows that a test notices
// each time. There are two kinds of mutants:
//
//   - rules (list*.go): each breaks one rule of merging by hand, or of the engine that carries
//     plain packets, of the queues of ports, or of the soft NIC's DCQCN. The tests of package
//     feedback have to notice, or else those of verify/model; for a file of another package those
//     of dataplane, or else the simulation; for the soft NIC, RDMA-CM and the edge in the wire
//     their own. A rule for a program of the kernel compiles it, and the tests of bpf notice.
//   - generated ones (generate.go): each changes one condition, operator, number or statement of a
//     room of the list in generated.go. The tests of that room have to notice. A mutant that
//     survives because nothing can notice it is listed in survivors.txt, with the reason.
//
// Usage:
//
//	go run ./verify/mutants                             all rules
//	go run ./verify/mutants -record                     all rules; their tests go first from then on
//	go run ./verify/mutants -only 'RNR|quorum'          rules whose rule, name or file match
//	go run ./verify/mutants -generated all              all generated mutants: hours
//	go run ./verify/mutants -generated mft,feedback     those of some rooms
//	go run ./verify/mutants -generated feedback/cnp.go  those of a file
//	go run ./verify/mutants -generated swept -sample 9   9 mutants of the rooms in which none survives
//
// Nothing in the tree is touched: the compiler is told to take the broken file in place of the real
// one (go build -overlay).
//
// Why the mutants are generated here and not by a tool of others: gremlins v0.6.0, the one that the
// Go module proxy has, tries a mutant only where a block of Go's coverage profile covers it. The
// conditions of a switch's cases are in no block, nor are constants, so it tries neither; every
// fifth condition of this tree stands in a case. And it removes no statements.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "try only rules whose rule, name or file match this `regexp`")
	record := flag.Bool("record", false, "write down which test noticed each rule, so that it is tried first")
	generated := flag.String("generated", "", "try the generated mutants of these `rooms` or files, separated by commas; swept, or all")
	sample := flag.Int("sample", 0, "try only this `number` of the generated mutants; 0: all")
	seed := flag.String("seed", "", "generated mutants: decides their order; default: the commit")
	flag.Parse()
	var err error
	if *generated == "" {
		err = tryRules(*only, *record)
	} else {
		err = tryGenerated(strings.Split(*generated, ","), *sample, *seed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// tryRules tries the rules that match a regular expression.
func tryRules(only string, record bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if err := checkRules(); err != nil {
		return err
	}
	var chosen []rule
	for _, r := range rules {
		if pattern.MatchString(r.rule + " " + r.name + " " + r.file) {
			chosen = append(chosen, r)
		}
	}
	start := time.Now()
	dir, err := os.MkdirTemp("", "rocast-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	numbers, err := copyRules(dir, chosen)
	if err != nil {
		return err
	}
	before, err := readNoticers(".")
	if err != nil {
		return err
	}
	compiled := time.Since(start)
	verdicts := tryAll(chosen, numbers, before)
	survivors := printVerdicts(chosen, verdicts)
	fmt.Printf("%d mutants, %d of them compiled together in %v, %d survived, %v\n",
		len(chosen), len(numbers), compiled.Round(time.Second), survivors, time.Since(start).Round(time.Second))
	if record {
		before.take(chosen, verdicts)
		if err := before.write(); err != nil {
			return err
		}
	}
	if survivors > 0 {
		return fmt.Errorf("%d mutants survived: a test is missing, or the broken code does nothing", survivors)
	}
	return nil
}
