package main

import (
	"slices"
	"strings"
	"testing"
)

// The tests that may notice a mutant run first, each with the flags of its suite, and every suite
// of the room runs behind them.
func TestSuitesFrom(t *testing.T) {
	r := room{suites: []suite{{dir: "a", flags: []string{"-x", "-test.skip=Slow"}}, {dir: "b"}}}
	got := r.suitesFrom(noticer{dir: "b", test: "TestB"}, noticer{dir: "a", test: "TestA/one+two"},
		noticer{dir: "c", test: "TestC"}, noticer{dir: "a", all: "tests crash"}, noticer{})
	want := []string{
		`b -test.skip= -test.run=^TestB$`,
		`a -x -test.skip=Slow -test.skip= -test.run=^TestA$/^one\+two$`,
		`a -x -test.skip=Slow`,
		`b`,
	}
	for i, s := range got {
		if text := strings.Join(append([]string{s.dir}, s.flags...), " "); i >= len(want) || text != want[i] {
			t.Errorf("%d: %s", i, text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d suites", len(got))
	}
	if !slices.Equal(r.suites[0].flags, []string{"-x", "-test.skip=Slow"}) {
		t.Errorf("the room's suite has become %q", r.suites[0].flags)
	}
}

// Each mutant of the list is in the file at most once, and no other is.
func TestNoticersFollowTheRules(t *testing.T) {
	known, err := readNoticers(top(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if n, ok := known[r.name]; ok && len(r.tests().suitesFrom(n)) == len(r.tests().suites) {
			t.Errorf("%s: no suite that tries it has the tests of %s; run -record", r.name, n.dir)
		}
		delete(known, r.name)
	}
	for name := range known {
		t.Errorf("no rule any more: %s; run -record", name)
	}
}

func TestParseNoticers(t *testing.T) {
	const text = noticedHead + "a TestA/x y\n\tone\n\ttwo\na TestB\n\tthree\n"
	known, err := parseNoticers(text)
	if err != nil {
		t.Fatal(err)
	}
	if n := known["two"]; len(known) != 3 || n != (noticer{dir: "a", test: "TestA/x y"}) {
		t.Errorf("%v", known)
	}
	if got := known.text(); got != text {
		t.Errorf("it becomes\n%s", got)
	}
	for name, text := range map[string]string{"no test": "a\n\tone\n", "no rule": "\tone\n", "no package": "a TestA\none\n"} {
		if _, err := parseNoticers(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// What noticed a rule's mutant replaces what did before. Rules that were not tried stay, those that
// have left go, and no test is known of a mutant with which all tests crash.
func TestRecord(t *testing.T) {
	first, second, third := rules[0], rules[1], rules[2]
	before := noticer{dir: "feedback", test: "TestBefore"}
	known := noticers{first.name: before, second.name: before, "no rule": before}
	known.take([]rule{first, third}, []verdict{
		{noticed: noticer{dir: "feedback", test: "TestNow"}},
		{noticed: noticer{dir: "feedback", all: "tests crash"}},
	})
	if len(known) != 2 || known[first.name].test != "TestNow" || known[second.name] != before {
		t.Errorf("%v", known)
	}
}

// A generated mutant meets first the tests that noticed the last ones of its function.
func TestLikely(t *testing.T) {
	c := campaign{noticers: map[string][]noticer{}}
	g := &generated{edit: edit{file: "p/p.go", function: "f"}}
	for _, name := range []string{"TestA", "TestB", "TestA", "TestC", "TestD"} {
		c.take(g, noticer{dir: "p", test: name}, nil)
	}
	var got []string
	for _, n := range c.likely(g) {
		got = append(got, n.test)
	}
	if want := []string{"TestD", "TestC", "TestA"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := c.likely(&generated{edit: edit{file: "p/p.go", function: "g"}}); len(n) > 0 {
		t.Errorf("of another function: %v", n)
	}
}
