package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/rocast/rocast/"
)

// source is one Go file of the tree, parsed, whatever its build tags are.
type source struct {
	path   string // from the root of the tree
	syntax *ast.File
	fset   *token.FileSet
}

// folder is the package's folder from the root of the tree.
func (s source) folder() string { return path.Dir(s.path) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

// files lists the paths of the tree, slashes between, without what git, make and rocsim put there.
var files = sync.OnceValues(func() ([]string, error) {
	var all []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() && (rel == ".git" || d.Name() == "build") {
			return fs.SkipDir
		}
		if !d.IsDir() && rel != ".git" {
			all = append(all, filepath.ToSlash(rel))
		}
		return nil
	})
	return all, err
})

var sources = sync.OnceValues(func() ([]source, error) {
	all, err := files()
	if err != nil {
		return nil, err
	}
	var parsed []source
	for _, p := range all {
		if !strings.HasSuffix(p, ".go") || strings.Contains(p, "testdata/") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(root, p), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, source{p, f, fset})
	}
	return parsed, nil
})

func mustFiles(t *testing.T) []string {
	t.Helper()
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mustSources(t *testing.T) []source {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("found only %d Go files below %s", len(all), root)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
