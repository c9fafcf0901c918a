package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure packages do no I/O, read no clock, start no goroutine and log nothing: the same calls with
// the same arguments have the same effect, so the simulation replays a run from its seed and the
// search compares states.
var pure = []string{"roce", "mft", "feedback"}

// allowed is what a pure package may import besides its own kind, and the names it may use of it;
// nil means all.
var allowed = map[string][]string{
	"cmp": nil, "encoding/binary": nil, "errors": nil, "hash/crc32": nil, "maps": nil, "math": nil, "math/bits": nil, "net/netip": nil,
	"slices": nil, "sort": nil, "strconv": nil, "strings": nil,
	"fmt":  {"Append", "Appendf", "Appendln", "Errorf", "Sprint", "Sprintf", "Sprintln", "Stringer"},
	"time": {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "ParseDuration"},
}

// impurities lists what a file does that a pure package must not, each with its position.
func impurities(fset *token.FileSet, f *ast.File) []string {
	var found []string
	object := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%d: %s", fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...)))
	}
	names := map[string]string{} // local name to import path
	for _, spec := range f.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		names[local] = imported
		_, ok := allowed[imported]
		switch ours, isOurs := strings.CutPrefix(imported, module); {
		case local == "." || local == "_":
			object(spec, "imports %s as %s, so its use does not show", imported, local)
		case !ok && !(isOurs && slices.Contains(pure, ours)):
			object(spec, "imports %s", imported)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			object(n, "starts a goroutine")
		case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			object(n, "uses a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				object(n, "uses a channel")
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			if may := allowed[names[x.Name]]; may != nil && !slices.Contains(may, n.Sel.Name) {
				object(n, "uses %s.%s", names[x.Name], n.Sel.Name)
			}
		case *ast.CallExpr:
			if x, ok := n.Fun.(*ast.Ident); ok && (x.Name == "print" || x.Name == "println") {
				object(n, "prints")
			}
		}
		return true
	})
	return found
}

func TestPurePackages(t *testing.T) {
	checked := map[string]bool{}
	for _, s := range mustSources(t) {
		if s.isTest() || !slices.Contains(pure, s.folder()) {
			continue
		}
		checked[s.folder()] = true
		for _, what := range impurities(s.fset, s.syntax) {
			t.Errorf("%s:%s, which a pure package never does", s.path, what)
		}
	}
	if len(checked) != len(pure) {
		t.Errorf("found only %v of %v", checked, pure)
	}
}

func TestImpurities(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`import "slices"; var f = slices.Max[[]int]`, ""},
		{`import "github.com/rocast/rocast/roce"; var f = roce.PSN(1)`, ""},
		{`import "time"; const d = 2 * time.Second; func f(t time.Duration) {}`, ""},
		{`import "fmt"; var f = fmt.Sprintf`, ""},
		{`type c struct{ Now int }; func f(time c) int { return time.Now }`, ""},
		{`import "time"; func f() { _ = time.Now() }`, "uses time.Now"},
		{`import clock "time"; var f = clock.Since`, "uses time.Since"},
		{`import "time"; type g struct{ t *time.Timer }`, "uses time.Timer"},
		{`import "time"; func f() { time.Sleep(1) }`, "uses time.Sleep"},
		{`import . "time"; var f = Now`, "imports time as ."},
		{`import "fmt"; func f() { fmt.Println() }`, "uses fmt.Println"},
		{`import "os"`, "imports os"},
		{`import _ "sort"`, "imports sort as _"},
		{`import "sync"`, "imports sync"},
		{`import "github.com/rocast/rocast/dataplane"`, "imports github.com/rocast/rocast/dataplane"},
		{`func f() { go f() }`, "starts a goroutine"},
		{`var c chan int`, "uses a channel"},
		{`func f() { c <- 1 }`, "uses a channel"},
		{`func f() { <-c }`, "uses a channel"},
		{`func f() { select {} }`, "uses a channel"},
		{`func f() { println(1) }`, "prints"},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package x; "+c.body, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(impurities(fset, f), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.body, got, c.want)
		}
	}
}
