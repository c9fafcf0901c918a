package house

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// circleMost is how many files of a package may be in one circle: each of them has a function that
// uses, by others, what another one declares. Who reads one of them has to read all.
const circleMost = 12

// layered are the folders whose packages, and those below, are held to that.
var layered = []string{"feedback", "ctl"}

// built is a package as the go command has built it.
type built struct {
	ImportPath, Dir string
	GoFiles         []string
	Export          string // the file that says what it exports
}

// mustBuild returns the packages of the layered folders, and those that they import.
func mustBuild(t *testing.T) map[string]built {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export"}
	for _, folder := range layered {
		args = append(args, "./"+folder+"/...")
	}
	list := exec.Command("go", args...)
	list.Dir = root
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]built{}
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var b built
		if err := decoder.Decode(&b); err != nil {
			t.Fatal(err)
		}
		all[b.ImportPath] = b
	}
	return all
}

// uses returns, for each file of a package, the files whose functions, variables and constants its
// functions use. Types count for nothing: a type is known everywhere, and what matters is who calls
// whom.
func uses(pkg string, fset *token.FileSet, files []*ast.File, imported types.Importer) (map[string][]string, error) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imported}
	checked, err := config.Check(pkg, fset, files, info)
	if err != nil {
		return nil, err
	}
	at := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	edges := map[string][]string{}
	for _, f := range files {
		from := at(f.Package)
		edges[from] = nil
		for _, d := range f.Decls {
			body, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(body, func(n ast.Node) bool {
				name, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				is := info.Uses[name]
				if is == nil || is.Pkg() != checked {
					return true
				}
				_, isFunc := is.(*types.Func)
				if to := at(is.Pos()); to != from && (isFunc || is.Parent() == checked.Scope() && !isType(is)) && !slices.Contains(edges[from], to) {
					edges[from] = append(edges[from], to)
				}
				return true
			})
		}
	}
	return edges, nil
}

func isType(o types.Object) bool {
	_, is := o.(*types.TypeName)
	return is
}

// circle returns the largest set of files of which each reaches every other one, in order.
func circle(edges map[string][]string) (most []string) {
	reach := map[string]map[string]bool{}
	for from := range edges {
		reached := map[string]bool{}
		for next := []string{from}; len(next) > 0; next = next[1:] {
			for _, to := range edges[next[0]] {
				if !reached[to] {
					reached[to] = true
					next = append(next, to)
				}
			}
		}
		reach[from] = reached
	}
	for from := range edges {
		var same []string
		for to := range reach[from] {
			if reach[to][from] {
				same = append(same, to)
			}
		}
		if len(same) > len(most) {
			most = same
		}
	}
	slices.Sort(most)
	return most
}

func TestNoCircleOfFilesIsLarge(t *testing.T) {
	all, looked := mustBuild(t), 0
	for path, pkg := range all {
		folder, ours := strings.CutPrefix(path, module)
		if !ours || !belongs(folder, layered) || len(pkg.GoFiles) <= circleMost {
			continue
		}
		fset := token.NewFileSet()
		var parsed []*ast.File
		for _, name := range pkg.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		edges, err := uses(path, fset, parsed, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(all[path].Export) }))
		if err != nil {
			t.Fatal(err)
		}
		looked++
		if in := circle(edges); len(in) > circleMost {
			t.Errorf("%d files of %s use each other in a circle, of %d at most: %s; let one of them know less",
				len(in), folder, circleMost, strings.Join(in, " "))
		}
	}
	if looked < 3 {
		t.Errorf("only %d packages have enough files for a large circle", looked)
	}
}

func TestCirclesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"one way":         {[]string{"func f() { g() }", "func g() {}"}, ""},
		"there and back":  {[]string{"func f() { g() }", "func g() { f() }", "func h() { f() }"}, "a.go b.go"},
		"by a third one":  {[]string{"func f() { g() }", "func g() { h() }", "func h() { f() }"}, "a.go b.go c.go"},
		"by a method":     {[]string{"type t int; func (t) m() { f() }", "func f() { t(1).m() }"}, "a.go b.go"},
		"by a variable":   {[]string{"var v int; func f() { g() }", "func g() { v++ }"}, "a.go b.go"},
		"by types only":   {[]string{"type t int; func f() { g(1) }", "func g(x t) {}"}, ""},
		"by another name": {[]string{"func f() { g() }", "func g() { f := 1; _ = f }"}, ""},
		"inside one file": {[]string{"func f() { g() }; func g() { f() }"}, ""},
	} {
		fset := token.NewFileSet()
		var parsed []*ast.File
		for i, text := range c.files {
			f, err := parser.ParseFile(fset, string(rune('a'+i))+".go", "package p; "+text, 0)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		edges, err := uses("p", fset, parsed, nil)
		if got := strings.Join(circle(edges), " "); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}
