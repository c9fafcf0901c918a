package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A room is a package whose mutants are generated, and the tests that have to notice them, in the
// order in which they are tried.
type room struct {
	dir    string
	suites []suite
}

// rooms leave out dataplane/afxdp and dataplane/xsk, whose tests work on real interfaces: a mutant
// takes a minute. What has no tests of its own is tested where it is used.
var rooms = []room{
	{"roce", []suite{{dir: "roce"}}},
	{"mft", []suite{{dir: "mft"}, {dir: "dataplane"}}},
	{"feedback", []suite{stories, otherFeedback}},
	{"dataplane", []suite{{dir: "dataplane"}}},
	{"ctl", []suite{{dir: "ctl"}}},
	{"ctl/address", []suite{{dir: "ctl/address"}}},
	{"ctl/chronicle", []suite{{dir: "ctl"}}},
	{"ctl/config", []suite{{dir: "ctl/config"}}},
	{"ctl/groupfile", []suite{{dir: "ctl/groupfile"}}},
	{"ctl/metrics", []suite{{dir: "ctl/metrics"}}},
	{"ctl/nexthop", []suite{{dir: "ctl/nexthop"}}},
	{"ctl/perftest", []suite{{dir: "ctl/perftest"}}},
	{"ctl/plan", []suite{{dir: "ctl/plan"}}},
	{"ctl/ports", []suite{{dir: "ctl"}}},
	{"ctl/server", []suite{{dir: "ctl/server"}}},
	{"ctl/store", []suite{{dir: "ctl/store"}}},
	{"ctl/yamldoc", []suite{{dir: "ctl/yamldoc"}}},
}

// generated is one generated mutant of a room.
type generated struct {
	*room
	edit
}

// generateAll returns the mutants of some rooms, by their names, or of all.
func generateAll(names []string) (all []generated, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(rooms, func(r room) bool { return r.dir == name }) {
			return nil, fmt.Errorf("%s is no room whose mutants are generated", name)
		}
	}
	for i := range rooms {
		if r := &rooms[i]; len(names) == 0 || slices.Contains(names, r.dir) {
			edits, err := r.generate(".")
			if err != nil {
				return nil, err
			}
			for _, e := range edits {
				all = append(all, generated{r, e})
			}
		}
	}
	return all, nil
}

// generate returns the mutants of all files of the room. root is the top of the tree.
func (r *room) generate(root string) (all []edit, err error) {
	files, err := filepath.Glob(filepath.Join(root, r.dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		edits, err := generate(filepath.Join(r.dir, filepath.Base(file)), source)
		if err != nil {
			return nil, err
		}
		all = append(all, edits...)
	}
	return all, nil
}

// try returns the name of the test that notices the mutant, "" if none does.
func (g *generated) try() (noticed string, err error) {
	source, err := os.ReadFile(g.file)
	if err != nil {
		return "", err
	}
	return tryBroken(g.file, string(source[:g.from])+g.broken+string(source[g.to:]), g.suites)
}

// tryGenerated tries generated mutants in an order that the seed decides, all of them or until the
// time is over. The same seed is the same order; each commit is a seed of its own.
func tryGenerated(names []string, limit time.Duration, seed string) error {
	listed, err := readSurvivors(".")
	if err != nil {
		return err
	}
	all, err := generateAll(names)
	if err != nil {
		return err
	}
	if seed == "" {
		commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
		if err != nil {
			return fmt.Errorf("find the commit, or use -seed: %w", err)
		}
		seed = strings.TrimSpace(string(commit))
	}
	hash := fnv.New64a()
	hash.Write([]byte(seed))
	rand.New(rand.NewPCG(hash.Sum64(), 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	if err := testsPass(all); err != nil {
		return err
	}
	ctx := context.Background()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	c := campaign{listed: listed}
	c.tryAll(ctx, all)
	return c.report(seed, len(all))
}

// testsPass fails if a test of the rooms fails without any mutant: it would seem to notice everything.
func testsPass(all []generated) error {
	tried := map[*room]bool{}
	for i := range all {
		if r := all[i].room; !tried[r] {
			tried[r] = true
			if noticed, err := tryBroken("", "", r.suites); err != nil || noticed != "" {
				return errors.Join(fmt.Errorf("without any mutant there fails %q in %s", noticed, r.dir), err)
			}
		}
	}
	return nil
}

// campaign counts what became of generated mutants.
type campaign struct {
	listed survivors

	mu                                     sync.Mutex
	noticed, notViable, asListed, survived int
	errs                                   []error
}

// tryAll tries mutants on all processors, until none is left or ctx ends.
func (c *campaign) tryAll(ctx context.Context, all []generated) {
	next := make(chan *generated)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for g := range next {
				noticed, err := g.try()
				c.take(g, noticed, err)
			}
		})
	}
	defer workers.Wait()
	defer close(next)
	for i := range all {
		select {
		case next <- &all[i]:
		case <-ctx.Done():
			return
		}
	}
}

// take counts one mutant, and prints it if it survived and is not listed.
func (c *campaign) take(g *generated, noticed string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, errCompile):
		c.notViable++
	case err != nil:
		c.errs = append(c.errs, fmt.Errorf("%s: %w", g.entry, err))
	case noticed != "":
		c.noticed++
	case c.listed.has(&g.edit):
		c.asListed++
	default:
		c.survived++
		fmt.Printf("line %d, in %s\n%s\n", g.line, g.function, g.entry)
	}
}

// report prints the counts, and returns an error unless every survivor is listed.
func (c *campaign) report(seed string, all int) error {
	fmt.Printf("seed %.12s: of %d generated mutants %d were noticed, %d survived as listed, %d survived, %d do not compile\n",
		seed, all, c.noticed, c.asListed, c.survived, c.notViable)
	if c.survived > 0 {
		c.errs = append(c.errs, fmt.Errorf(
			"%d mutants survived: add tests that notice them, or list them in verify/mutants/%s with the reason why none can",
			c.survived, survivorsFile))
	}
	return errors.Join(c.errs...)
}
