package main

import (
	"strconv"
	"strings"
	"testing"
)

// Each guard switches on one mutant by its number. Guards may be nested. A change that needs the
// type of an expression has no guard.
func TestGuards(t *testing.T) {
	const text = `package p

const c = true || false

func f(a, b int) bool {
	for a = 0; a < b && ok(a+1); a++ {
		a += b
		defer g(true)
	}
	return a != b // why
}
`
	g, err := newGenerator("p.go", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := g.guardAll(10)
	guarded := map[string]int{}
	for i, e := range g.edits {
		if _, broken, _ := strings.Cut(e.entry, "  =>  "); e.guarded {
			guarded[broken] = 10 + i
		}
	}
	for broken, guard := range map[string]string{
		"for a = 0; true || (a < b && ok(a+1)); a++ {":  "for a = 0; (rocastMutant == N || ",
		"for a = 0; false && (a < b && ok(a+1)); a++ {": "|| rocastMutant != N && ((rocastMutant",
		"for a = 0; (a < b || ok(a+1)); a++ {":          "&& ((rocastMutant == N && ((rocastMutant",
		"for a = 0; a <= b && ok(a+1); a++ {":           "(rocastMutant == N && (a <= b) || rocastMutant != N && (a < b))",
		"":                                              "{\n\t\tif rocastMutant != N { a += b }\n",
		"defer g(false)":                                "{ defer g((rocastMutant != N)) }\n",
		"return a == b // why":                          "return (rocastMutant == N && (a == b) || rocastMutant != N && (a != b)) // why\n",
	} {
		number := guarded[broken]
		if broken == "" { // the first of two statements that are removed
			number--
		}
		if guard = strings.ReplaceAll(guard, "N", strconv.Itoa(number)); !strings.Contains(got, guard) {
			t.Errorf("%q: no %q in\n%s", broken, guard, got)
		}
		delete(guarded, broken)
	}
	for broken := range guarded {
		t.Errorf("also guarded: %q", broken)
	}
}
