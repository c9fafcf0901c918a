package main

import (
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
)

// A room is a package that is broken, by generated mutants or by rules, and the tests that have to
// notice, in the order in which they are tried.
type room struct {
	dir    string
	suites []suite
	swept  bool // every mutant was tried once, and is noticed or listed: a new survivor is a missing test

	binaries map[string]string // of the guarded tests, by their directories
}

// rooms leave out dataplane/afxdp and dataplane/xsk, whose tests work on real interfaces: a mutant
// takes a minute. What has no tests of its own is tested where it is used. A room that gets much
// new code is not swept any more, until all its mutants were tried again.
var rooms = []room{
	{dir: "roce", suites: []suite{{dir: "roce"}}, swept: true},
	{dir: "roce/cm", suites: []suite{{dir: "roce/cm"}}, swept: true},
	{dir: "mft", suites: []suite{{dir: "mft"}, {dir: "dataplane"}}},
	{dir: "feedback", suites: []suite{stories, otherFeedback}},
	{dir: "dataplane", suites: quickFirst("dataplane", "PortThatTakesNothing|EnginesAgree|KeepsToTheWindow|MayKeepTheLastCopy|AgreeOnTheOwner")},
	{dir: "ctl", suites: []suite{control, {dir: "cmd/rocast"}, {dir: "ctl/server"}}},
	{dir: "ctl/address", suites: quickFirst("ctl/address", "Kernel|Interfaces|WithoutItsNote|IPv6|TakeOff|Living")},
	{dir: "ctl/branches", suites: []suite{{dir: "ctl/branches"}, control}},
	{dir: "ctl/chronicle", suites: []suite{{dir: "ctl/chronicle"}, control}},
	{dir: "ctl/cm", suites: append(quickFirst("ctl/cm", "Many|Repeated|Bounds|Down|Over(Sockets|IPv6)|ICRC|LogNames|CannotBe|NotSent|Transmit|Daemon"),
		suite{dir: "ctl/config"}, suite{dir: "ctl", flags: []string{"-test.run=RDMACM"}})},
	{dir: "ctl/config", suites: []suite{{dir: "ctl/config"}}, swept: true},
	{dir: "ctl/doctor", suites: []suite{{dir: "ctl/doctor"}}},
	{dir: "ctl/follow", suites: []suite{{dir: "ctl/follow"}, control}},
	{dir: "ctl/groupfile", suites: []suite{{dir: "ctl/groupfile"}}},
	{dir: "ctl/groups", suites: []suite{{dir: "ctl/groups"}, control}},
	{dir: "ctl/hosts", suites: []suite{{dir: "ctl/hosts"}, control}},
	{dir: "ctl/metrics", suites: []suite{{dir: "ctl/metrics"}}},
	{dir: "ctl/neighbour", suites: []suite{{dir: "ctl/neighbour"}, {dir: "ctl/config"}}},
	{dir: "ctl/nexthop", suites: quickFirst("ctl/nexthop", "TheKernelsHop|VLAN|IPv6|Gateway|Settle|LearnsItAgain|WithoutACarrier|ALink")},
	{dir: "ctl/perftest", suites: quickFirst("ctl/perftest", "AClientThatDies|StopsTalking|ThatDoesNotAnswer|WithoutReceiversEnds")},
	{dir: "ctl/plan", suites: []suite{{dir: "ctl/plan"}, control}},
	{dir: "ctl/ports", suites: []suite{{dir: "ctl/ports"}, control}, swept: true},
	{dir: "ctl/server", suites: []suite{{dir: "ctl/server"}}},
	{dir: "ctl/services", suites: []suite{{dir: "ctl/services"}, control}},
	{dir: "ctl/shared", suites: []suite{{dir: "ctl/shared"}, control}},
	{dir: "ctl/store", suites: []suite{{dir: "ctl/store"}}},
	{dir: "ctl/tree", suites: []suite{{dir: "ctl/tree"}}, swept: true},
	{dir: "ctl/view", suites: []suite{{dir: "ctl/view"}, control}},
	{dir: "ctl/watch", suites: []suite{{dir: "ctl/watch"}, control}},
	{dir: "ctl/yamldoc", suites: []suite{{dir: "ctl/yamldoc"}}, swept: true},
}

// control are the tests of ctl, but for those with etcd: memoryLimit is too small for these.
var control = suite{dir: "ctl"}

// quickFirst are the tests of a package, those that match slow after the others.
func quickFirst(dir, slow string) []suite {
	return []suite{{dir: dir, flags: []string{"-test.skip=" + slow}}, {dir: dir, flags: []string{"-test.run=" + slow}}}
}

// generated is one generated mutant of a room.
type generated struct {
	*room
	edit
}

// generateAll returns the mutants that the names stand for. A name is a room, a file, "swept" for
// the rooms that were swept, or "all".
func generateAll(names []string) (all []generated, err error) {
	known := map[string]bool{"all": true, "swept": true}
	for i := range rooms {
		r := &rooms[i]
		edits, err := r.generate(".")
		if err != nil {
			return nil, err
		}
		known[r.dir] = true
		for _, e := range edits {
			known[e.file] = true
			if r.swept && slices.Contains(names, "swept") || slices.Contains(names, "all") ||
				slices.Contains(names, r.dir) || slices.Contains(names, e.file) {
				all = append(all, generated{r, e})
			}
		}
	}
	for _, name := range names {
		if !known[name] {
			return nil, fmt.Errorf("no mutants are generated of %s", name)
		}
	}
	return all, nil
}

// generate returns the mutants of all files of the room. root is the top of the tree.
func (r *room) generate(root string) (all []edit, err error) {
	generators, err := r.generators(root)
	for _, g := range generators {
		all = append(all, g.edits...)
	}
	for i := range all {
		all[i].number = i + 1
	}
	return all, err
}

func (r *room) generators(root string) (all []*generator, err error) {
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
		g, err := newGenerator(filepath.Join(r.dir, filepath.Base(file)), source)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// try returns the test that notices the mutant. Some tests are tried first.
func (g *generated) try(first []noticer) (noticed noticer, err error) {
	suites := g.suitesFrom(first...)
	if g.guarded && g.binaries != nil {
		return g.runGuarded(g.number, suites)
	}
	source, err := os.ReadFile(g.file)
	if err != nil {
		return noticer{}, err
	}
	return tryBroken(g.file, string(source[:g.from])+g.broken+string(source[g.to:]), suites)
}

// tryGenerated tries generated mutants in an order that the seed decides: all of them, or the first
// ones, as many as sample says. The same seed is the same order; each commit is a seed of its own.
// A sample has a number and not a time, so that a commit has the same sample on every machine.
func tryGenerated(names []string, sample int, seed string) error {
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
	if sample > 0 {
		all = all[:min(sample, len(all))]
	}
	dir, err := os.MkdirTemp("", "rocast-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := testsPass(dir, all); err != nil {
		return err
	}
	c := campaign{listed: listed, noticers: map[string][]noticer{}}
	c.tryAll(all)
	return c.report(seed, len(all))
}

// testsPass fails if a test of the rooms fails without any mutant: it would seem to notice
// everything. It also bounds the time of each suite by what the suite takes now, and compiles the
// guarded tests.
func testsPass(dir string, all []generated) error {
	overlay, err := writeOverlay(dir, nil)
	if err != nil {
		return err
	}
	tried := map[*room]bool{}
	for i := range all {
		r := all[i].room
		if tried[r] {
			continue
		}
		tried[r] = true
		for k := range r.suites {
			if err := r.suites[k].pass(dir, overlay); err != nil {
				return err
			}
		}
		if err := r.buildGuarded(dir); err != nil {
			fmt.Fprintf(os.Stderr, "%s without guards, which is slow: %v\n", r.dir, err)
		}
	}
	return nil
}

// campaign counts what became of generated mutants.
type campaign struct {
	listed survivors

	mu                                            sync.Mutex
	noticers                                      map[string][]noticer // of the last mutants of a function, by its entry
	tried, noticed, notViable, asListed, survived int
	errs                                          []error
}

// tryAll tries mutants on all processors.
func (c *campaign) tryAll(all []generated) {
	next := make(chan *generated)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for g := range next {
				noticed, err := g.try(c.likely(g))
				c.take(g, noticed, err)
			}
		})
	}
	for i := range all {
		next <- &all[i]
	}
	close(next)
	workers.Wait()
}

// triedFirst is how many tests are tried before the suites.
const triedFirst = 3

// likely returns the tests that noticed the last mutants of the same function.
func (c *campaign) likely(g *generated) []noticer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.noticers[g.functionEntry()])
}

// remember puts a test before the others that notice mutants of the same function.
func (c *campaign) remember(g *generated, n noticer) {
	function := g.functionEntry()
	others := slices.DeleteFunc(c.noticers[function], func(o noticer) bool { return o == n })
	c.noticers[function] = append([]noticer{n}, others[:min(len(others), triedFirst-1)]...)
}

// take counts one mutant, and prints it if it survived and is not listed.
func (c *campaign) take(g *generated, noticed noticer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tried++; c.tried%100 == 0 {
		fmt.Fprintf(os.Stderr, "%d tried\n", c.tried)
	}
	switch {
	case errors.Is(err, errCompile):
		c.notViable++
	case err != nil:
		c.errs = append(c.errs, fmt.Errorf("%s: %w", g.entry, err))
	case noticed != (noticer{}):
		c.noticed++
		c.remember(g, noticed)
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
