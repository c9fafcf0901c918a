package main

import (
	"os"
	"testing"
	"time"
)

// top returns the root of the tree. go test keeps a result for as long as the files of the test's
// own module stay the same, and the code that mutants break is in another module. So a test that
// calls top has to run each time: it opens a file that TestMain makes new at the end, and go test
// keeps no result that depends on a file written less than 2 s before.
func top(t *testing.T) string {
	t.Helper()
	if _, err := os.ReadFile(noticedFile); err != nil {
		t.Fatal(err)
	}
	return "../.."
}

func TestMain(m *testing.M) {
	code := m.Run()
	now := time.Now()
	if err := os.Chtimes(noticedFile, now, now); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// The list matches the code: each entry is a mutant that is still generated, or a function that
// still exists.
func TestSurvivorsFollowTheCode(t *testing.T) {
	listed, err := readSurvivors(top(t))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for i := range rooms {
		edits, err := rooms[i].generate(top(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(edits) == 0 {
			t.Errorf("%s has no mutants", rooms[i].dir)
		}
		for k := range edits {
			known[edits[k].entry], known[edits[k].functionEntry()] = true, true
		}
	}
	for entry := range listed {
		if !known[entry] {
			t.Errorf("not in the code any more: %s", entry)
		}
	}
}

// Each rule's text stands in the code once.
func TestRulesFollowTheCode(t *testing.T) {
	t.Chdir(top(t))
	if err := checkRules(); err != nil {
		t.Error(err)
	}
}

func TestParseSurvivors(t *testing.T) {
	listed, err := parseSurvivors("# a list\n\na.go: x  =>  y\n\tbecause x is never\n\ty\n\nb.go: func T.f\n\troot\n")
	if err != nil {
		t.Fatal(err)
	}
	for entry, want := range map[string]string{"a.go: x  =>  y": "because x is never y", "b.go: func T.f": "root"} {
		if listed[entry] != want {
			t.Errorf("%s: %q, want %q", entry, listed[entry], want)
		}
	}
	for name, text := range map[string]string{
		"no reason":              "a.go: x  =>  y\n\nb.go: x  =>  z\n\tw\n",
		"no mutant":              "\tbecause\n",
		"a mutant that has left": "a.go: x  =>  y\n\tone\n\n\ttwo\n",
		"the same twice":         "a.go: x  =>  y\n\tone\na.go: x  =>  y\n\ttwo\n",
		"a reason of none":       "a.go: x  =>  y\n\t \n",
	} {
		if _, err := parseSurvivors(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A survivor counts as listed if it has an entry, or if its function has one. A survivor that is
// not listed fails the campaign.
func TestListed(t *testing.T) {
	e := edit{file: "p/p.go", function: "f", entry: "p/p.go: x  =>  y"}
	for entry, want := range map[string]bool{
		"p/p.go: x  =>  y": true, "p/p.go: func f": true, "p/p.go: x  =>  z": false, "p/p.go: func g": false, "q/p.go: func f": false,
	} {
		if got := (survivors{entry: "a reason"}).has(&e); got != want {
			t.Errorf("%s: %v", entry, got)
		}
	}
	c := campaign{listed: survivors{"p/p.go: func f": "a reason"}, noticers: map[string][]noticer{}}
	c.take(&generated{edit: e}, noticer{}, nil)
	c.take(&generated{edit: e}, noticer{test: "TestX"}, nil)
	c.take(&generated{edit: e}, noticer{}, errCompile)
	if err := c.report("", 3); err != nil || c.asListed != 1 || c.noticed != 1 || c.notViable != 1 {
		t.Errorf("%v, %+v", err, &c)
	}
	e.function = "g"
	c.take(&generated{edit: e}, noticer{}, nil)
	if c.report("", 4) == nil {
		t.Error("a survivor that is not listed is no error")
	}
}
