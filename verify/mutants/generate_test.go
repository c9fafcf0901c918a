package main

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

import "fmt"

const bound = 1 << 3

var on = true

func f(a, b int) int {
	if a < b && b != 3 {
		a += b
		a++
	}
	for a > -b {
		g()
		break
	}
	switch {
	case a == b, a >= 7:
		a = 0
	case on && ok(), on || ok() || a == 9:
	}
	fmt.Println("a", a+b)
	if a < 0 {
		panic("a" + "b")
	}
	return a
}

func h(a int) (int, error) {
	if a < 0 {
		return 0, v.Errorf("%d", a+1)
	}
	if a < 1 {
		return 2, err
	}
	return 0, nil
}

func (t *T[int]) g() { defer g(); t.log.Warn("text", zap.Int("a", 1)) }
`

// Each kind of change is made once in each place, and nowhere else.
func TestGenerate(t *testing.T) {
	edits, err := generate("p/p.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range edits {
		text := strings.TrimPrefix(e.entry, "p/p.go: ")
		got = append(got, e.function+": "+text)
		broken := sample[:e.from] + e.broken + sample[e.to:]
		if _, err := parser.ParseFile(token.NewFileSet(), "", broken, 0); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if want := strings.Count(sample[:e.from], "\n") + 1; e.line != want {
			t.Errorf("%s: line %d, want %d", text, e.line, want)
		}
	}
	want := strings.Split(strings.TrimSpace(`
: const bound = 1 << 3  =>  const bound = 1 >> 3
: const bound = 1 << 3  =>  const bound = 2 << 3
: const bound = 1 << 3  =>  const bound = 1 << 4
: var on = true  =>  var on = false
f: if a < b && b != 3 {  =>  if true || (a < b && b != 3) {
f: if a < b && b != 3 {  =>  if false && (a < b && b != 3) {
f: if a < b && b != 3 {  =>  if (a < b || b != 3) {
f: if a < b && b != 3 {  =>  if a <= b && b != 3 {
f: if a < b && b != 3 {  =>  if a < b && b == 3 {
f: if a < b && b != 3 {  =>  if a < b && b != 4 {
f: a += b  =>  
f: a += b  =>  a -= b
f: a++  =>  
f: a++  =>  a--
f: for a > -b {  =>  for true || (a > -b) {
f: for a > -b {  =>  for false && (a > -b) {
f: for a > -b {  =>  for a >= -b {
f: for a > -b {  =>  for a > b {
f: g()  =>  
f: break  =>  
f: case a == b, a >= 7:  =>  case true || (a == b), a >= 7:
f: case a == b, a >= 7:  =>  case false && (a == b), a >= 7:
f: case a == b, a >= 7:  =>  case a == b, true || (a >= 7):
f: case a == b, a >= 7:  =>  case a == b, false && (a >= 7):
f: case a == b, a >= 7:  =>  case a == b, a > 7:
f: case a == b, a >= 7:  =>  case a == b, a >= 8:
f: a = 0  =>  
f: a = 0  =>  a = 1
f: case on && ok(), on || ok() || a == 9:  =>  case (on || ok()), on || ok() || a == 9:
f: case on && ok(), on || ok() || a == 9:  =>  case false && (on && ok()), on || ok() || a == 9:
f: case on && ok(), on || ok() || a == 9:  =>  case on && ok(), (on || ok()) && a == 9:
f: case on && ok(), on || ok() || a == 9:  =>  case on && ok(), false && (on || ok() || a == 9):
f: case on && ok(), on || ok() || a == 9:  =>  case on && ok(), on && ok() || a == 9:
f: case on && ok(), on || ok() || a == 9:  =>  case on && ok(), on || ok() || a != 9:
f: case on && ok(), on || ok() || a == 9:  =>  case on && ok(), on || ok() || a == 10:
f: case on && ok(), on || ok() || a == 9:  =>  case on && ok(), true || (on || ok() || a == 9):
f: case on && ok(), on || ok() || a == 9:  =>  case true || (on && ok()), on || ok() || a == 9:
f: if a < 0 {  =>  if true || (a < 0) {
f: if a < 0 {  =>  if false && (a < 0) {
f: if a < 0 {  =>  if a <= 0 {
f: if a < 0 {  =>  if a < 1 {
h: if a < 0 {  =>  if true || (a < 0) {
h: if a < 0 {  =>  if false && (a < 0) {
h: if a < 0 {  =>  if a <= 0 {
h: if a < 0 {  =>  if a < 1 {
h: if a < 1 {  =>  if true || (a < 1) {
h: if a < 1 {  =>  if false && (a < 1) {
h: if a < 1 {  =>  if a <= 1 {
h: if a < 1 {  =>  if a < 2 {
h: return 2, err  =>  return 3, err
h: return 0, nil  =>  return 1, nil
T.g: func (t *T[int]) g() { defer g(); t.log.Warn("text", zap.Int("a", 1)) }  =>  func (t *T[int]) g() { ; t.log.Warn("text", zap.Int("a", 1)) }
`), "\n")
	slices.Sort(got)
	slices.Sort(want)
	for _, line := range got {
		if i, ok := slices.BinarySearch(want, line); ok {
			want = slices.Delete(want, i, i+1)
		} else {
			t.Errorf("also %q", line)
		}
	}
	for _, line := range want {
		t.Errorf("not %q", line)
	}
}

// A statement of several lines is named by its first one.
func TestGenerateLongStatement(t *testing.T) {
	edits, err := generate("p.go", []byte("package p\n\nfunc f() {\n\tg(1,\n\t\t2)\n}\n"))
	if err != nil || len(edits) != 3 || edits[0].entry != "p.go: g(1,  =>  " {
		t.Errorf("%v, %+v", err, edits)
	}
}

// Rooms, files and the rooms that were swept are chosen by name.
func TestGenerateAll(t *testing.T) {
	t.Chdir(top(t))
	for _, c := range []struct {
		name string
		want func(g *generated) bool
	}{
		{"all", func(*generated) bool { return true }},
		{"swept", func(g *generated) bool { return g.swept }},
		{"roce", func(g *generated) bool { return g.dir == "roce" }},
		{"roce/psn.go", func(g *generated) bool { return g.file == "roce/psn.go" }},
	} {
		chosen, err := generateAll([]string{c.name})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		got := map[string]int{}
		for i := range chosen {
			if !c.want(&chosen[i]) {
				t.Errorf("%s chooses a mutant of %s", c.name, chosen[i].file)
			}
			got[chosen[i].file]++
		}
		all, err := generateAll([]string{"all"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if c.want(&all[i]) {
				got[all[i].file]--
			}
		}
		for file, n := range got {
			if n != 0 {
				t.Errorf("%s leaves out %d mutants of %s", c.name, -n, file)
			}
		}
	}
	if _, err := generateAll([]string{"roce/nothing.go"}); err == nil {
		t.Error("a file that does not exist is accepted")
	}
}

// What decides about nothing but memory has no mutants.
func TestGenerateLeavesOutCapacities(t *testing.T) {
	edits, err := generate("p.go", []byte(`package p

var (
	array [3 + 4]int
	slice = make([]int, 5, len(array)+2)
	count = make(map[int]int, 9)
	queue = make(chan int, 7)
)
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range edits {
		got = append(got, e.broken)
	}
	if want := []string{"6", "8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// An operator that stands at the end of a line is named by that line.
func TestGenerateLongCondition(t *testing.T) {
	edits, err := generate("p.go", []byte("package p\n\nvar x = a &&\n\tb &&\n\tc\n"))
	if err != nil || len(edits) != 2 {
		t.Fatalf("%v, %+v", err, edits)
	}
	if e := edits[0]; e.entry != "p.go: b &&  =>  b ||" || e.broken != "(a &&\n\tb || c)" || e.line != 4 {
		t.Errorf("%+v", e)
	}
	if e := edits[1]; e.entry != "p.go: var x = a &&  =>  var x = (a || b)" || e.broken != "(a || b)" {
		t.Errorf("%+v", e)
	}
}

// A mutant is tried without changing the tree, and the result names the test that noticed it.
func TestTry(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles tests")
	}
	t.Chdir(top(t))
	source, err := os.ReadFile("roce/rnr.go")
	if err != nil {
		t.Fatal(err)
	}
	try := func(broken string) (noticer, error) {
		return tryBroken("roce/rnr.go", broken, []suite{{dir: "roce", flags: []string{"-test.run=RNR|Syndrome"}}})
	}
	if noticed, err := try(string(source)); err != nil || noticed != (noticer{}) {
		t.Errorf("what is not broken: %q, %v", noticed, err)
	}
	if noticed, err := try(string(source) + "\nfunc init() { panic(1) }\n"); err != nil || noticed.String() != "roce: tests crash" {
		t.Errorf("what crashes: %q, %v", noticed, err)
	}
	if noticed, err := try("package broken"); err == nil {
		t.Errorf("what does not compile: %q", noticed)
	}
	if after, err := os.ReadFile("roce/rnr.go"); err != nil || string(after) != string(source) {
		t.Error("the tree has changed", err)
	}
}
