package main

import (
	"go/format"
	"maps"
	"os/exec"
	"path/filepath"
	"testing"
)

// Each copy is broken in one place, and runs when its number is asked for. What stands outside of
// functions, and a function whose parameters have no names, have no copies.
func TestCopies(t *testing.T) {
	const text = `package p

var limit = 3

func (g *T) f(a int, rest ...int) (int, error) {
	if a < limit {
		g.more(rest...)
	}
	return a + 1, nil
}

func (g *T) more(list ...int) { g.list = append(g.list, list...) }

func unnamed(int) int { return 7 }

func (T) nameless() int { return 8 }

func generic[E any](e E) E { e = e; return e }

func ignores(_ int) int { return 9 }
`
	c, err := newCopied([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for number, r := range []struct {
		old, broken string
		copied      bool
	}{
		1: {"a < limit", "true", true},
		2: {"a + 1", "a", true},
		3: {"g.list, list...", "g.list[:0], list...", true},
		4: {"limit = 3", "limit = 4", false},
		5: {"return 7", "return 6", false},
		6: {"return 8", "return 6", false},
		7: {"e = e", "", false},
		8: {"return 9", "return 6", false},
		9: {"func (g *T) more", "func (g *T) less", false},
	} {
		if number > 0 && c.add(number, r.old, r.broken) != r.copied {
			t.Errorf("%q has a copy: %v", r.old, !r.copied)
		}
	}
	const want = `package p

var limit = 3

func (g *T) f(a int, rest ...int) (int, error) {
	switch rocastMutant {
	case 1:
		return g.mutant1f(a, rest...)
	case 2:
		return g.mutant2f(a, rest...)
	}

	if a < limit {
		g.more(rest...)
	}
	return a + 1, nil
}

func (g *T) more(list ...int) {
	switch rocastMutant {
	case 3:
		g.mutant3more(list...)
		return
	}
	g.list = append(g.list, list...)
}

func unnamed(int) int { return 7 }

func (T) nameless() int { return 8 }

func generic[E any](e E) E { e = e; return e }

func ignores(_ int) int { return 9 }

func (g *T) mutant1f(a int, rest ...int) (int, error) {
	if true {
		g.more(rest...)
	}
	return a + 1, nil
}

func (g *T) mutant2f(a int, rest ...int) (int, error) {
	if a < limit {
		g.more(rest...)
	}
	return a, nil
}

func (g *T) mutant3more(list ...int) { g.list = append(g.list[:0], list...) }
`
	got, err := format.Source([]byte(c.text()))
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// One rule that does not compile keeps all rules of its tests from being tried.
func TestRulesCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles what the rules break")
	}
	t.Chdir(top(t))
	texts, _, err := copiesOf(rules)
	if err != nil {
		t.Fatal(err)
	}
	files, folders := map[string]string{}, map[string]bool{}
	for _, of := range texts {
		maps.Copy(files, of)
		for path := range of {
			folders["./"+filepath.Dir(path)] = true
		}
	}
	overlay, err := writeOverlay(t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	build := []string{"build", "-overlay", overlay}
	for folder := range folders {
		build = append(build, folder)
	}
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
