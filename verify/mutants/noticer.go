package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// noticer is what notices a mutant: a test, or what all tests of a package do. The zero noticer
// stands for nothing.
type noticer struct {
	dir  string // of the package
	test string // its name, with the names of the tests that it is part of
	all  string // what the tests do, where none is named
}

func (n noticer) String() string {
	if n.all != "" {
		return n.dir + ": " + n.all
	}
	if story, ok := strings.CutPrefix(n.test, "TestStories/"); ok {
		return "story " + strings.TrimPrefix(story, "plain/")
	}
	return strings.TrimPrefix(n.test, "TestEverydayWorlds/")
}

// alone returns the suite with one of its tests.
func (s suite) alone(test string) suite {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	s.flags = append(slices.Clone(s.flags), "-test.skip=", "-test.run="+strings.Join(parts, "/"))
	return s
}

// suitesFrom returns the suites of the room behind tests that may notice a mutant before the suites
// have come that far. What survives these tests still meets every suite.
func (r *room) suitesFrom(first ...noticer) []suite {
	var ordered []suite
	for _, n := range first {
		i := slices.IndexFunc(r.suites, func(s suite) bool { return s.dir == n.dir })
		if i >= 0 && n.test != "" {
			ordered = append(ordered, r.suites[i].alone(n.test))
		}
	}
	return append(ordered, r.suites...)
}

// noticedFile says which test noticed the mutant of each rule when -record was given last. An entry
// is a line with a package and a test, and, indented below it, the names of the rules. A rule that
// is in no entry, or in a wrong one, only takes longer.
const noticedFile = "noticed.txt"

const noticedHead = `# The test that noticed each rule's mutant, which is tried first. "go run ./verify/mutants -record"
# writes this file.
`

// noticers are those of rules, by the rules' names.
type noticers map[string]noticer

// readNoticers reads the file of the tree whose top is root.
func readNoticers(root string) (noticers, error) {
	text, err := os.ReadFile(filepath.Join(root, "verify/mutants", noticedFile))
	if err != nil {
		return nil, err
	}
	return parseNoticers(string(text))
}

func parseNoticers(text string) (noticers, error) {
	known := noticers{}
	var n noticer
	for number, line := range strings.Split(text, "\n") {
		name, indented := strings.CutPrefix(line, "\t")
		dir, test, two := strings.Cut(line, " ")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case indented && n.test != "":
			known[name] = n
		case !indented && two:
			n = noticer{dir: dir, test: test}
		default:
			return nil, fmt.Errorf("%s:%d: neither a package with a test nor a rule below one; write the file with -record", noticedFile, number+1)
		}
	}
	return known, nil
}

func (known noticers) text() string {
	rulesOf := map[noticer][]string{}
	for rule, n := range known {
		rulesOf[n] = append(rulesOf[n], rule)
	}
	var out strings.Builder
	out.WriteString(noticedHead)
	for _, n := range slices.SortedFunc(maps.Keys(rulesOf), func(a, b noticer) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.test, b.test))
	}) {
		fmt.Fprintf(&out, "%s %s\n", n.dir, n.test)
		slices.Sort(rulesOf[n])
		for _, rule := range rulesOf[n] {
			fmt.Fprintf(&out, "\t%s\n", rule)
		}
	}
	return out.String()
}

// take notes what has noticed rules' mutants, keeps what is known of other rules, and forgets the
// rules that have left.
func (known noticers) take(rs []rule, verdicts []verdict) {
	for name := range known {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.name == name }) {
			delete(known, name)
		}
	}
	for i, r := range rs {
		if n := verdicts[i].noticed; n.test != "" {
			known[r.name] = n
		}
	}
}

// write writes the file.
func (known noticers) write() error {
	return os.WriteFile(filepath.Join("verify/mutants", noticedFile), []byte(known.text()), 0o644)
}
