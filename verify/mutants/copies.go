package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Most rules break one function. Such rules need no compilation of their own either: the file gets
// a broken copy of the function for each rule, and an environment variable says which copy runs:
//
//	                         func f(a int) int {
//	                         	switch rocastMutant {
//	                         	case 7:
//	func f(a int) int {      		return fMutant7(a)
//	        return a    →    	}
//	}                        	return a
//	                         }
//	                         func fMutant7(a int) int {
//	                         	return -a
//	                         }

// copied is a file with copies of its functions.
type copied struct {
	source []byte
	tree   *ast.File
	first  map[*ast.FuncDecl]*strings.Builder // what a function begins with
	copies strings.Builder
}

func newCopied(source []byte) (*copied, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &copied{source: source, tree: tree, first: map[*ast.FuncDecl]*strings.Builder{}}, nil
}

// at is the place of a position in the source: the file is the only one of its set.
func at(p token.Pos) int { return int(p) - 1 }

// add adds the copy of a function in which old, which stands in the source once, is replaced. It
// returns false if old is not inside of a function, or if a parameter of the function has no name.
func (c *copied) add(number int, old, broken string) bool {
	from := strings.Index(string(c.source), old)
	to := from + len(old)
	for _, d := range c.tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || from <= at(f.Body.Lbrace) || to > at(f.Body.Rbrace) {
			continue
		}
		call, ok := callOf(f, number)
		if !ok {
			return false
		}
		if c.first[f] == nil {
			c.first[f] = &strings.Builder{}
		}
		fmt.Fprintf(c.first[f], "\ncase %d:\n%s", number, call)
		fmt.Fprintf(&c.copies, "\n%s%s%s%s%s\n", c.source[at(f.Pos()):at(f.Name.Pos())], copyOf(f, number), c.source[at(f.Name.End()):from], broken, c.source[to:at(f.End())])
		return true
	}
	return false
}

// copyOf is the name of a copy. It is not exported: a test may list what a type exports.
func copyOf(f *ast.FuncDecl, number int) string {
	return fmt.Sprintf("mutant%d%s", number, f.Name.Name)
}

// callOf is the statement with which a function calls its copy instead of running itself.
func callOf(f *ast.FuncDecl, number int) (call string, ok bool) {
	callee := copyOf(f, number)
	if f.Recv != nil {
		names := f.Recv.List[0].Names
		if len(names) == 0 {
			return "", false
		}
		callee = names[0].Name + "." + callee
	}
	if f.Type.TypeParams != nil || f.Name.Name == "init" {
		return "", false
	}
	var arguments []string
	for _, p := range f.Type.Params.List {
		if len(p.Names) == 0 {
			return "", false
		}
		for _, n := range p.Names {
			if n.Name == "_" {
				return "", false
			}
			name := n.Name
			if _, variadic := p.Type.(*ast.Ellipsis); variadic {
				name += "..."
			}
			arguments = append(arguments, name)
		}
	}
	call = callee + "(" + strings.Join(arguments, ", ") + ")"
	if f.Type.Results == nil {
		return call + "\nreturn", true
	}
	return "return " + call, true
}

// text is the file with all copies.
func (c *copied) text() string {
	var out strings.Builder
	from := 0
	for _, d := range c.tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && c.first[f] != nil {
			body := at(f.Body.Lbrace) + 1
			fmt.Fprintf(&out, "%s\nswitch %s {%s\n}\n", c.source[from:body], guardVariable, c.first[f])
			from = body
		}
	}
	out.Write(c.source[from:])
	out.WriteString(c.copies.String())
	return out.String()
}

// copyRules compiles the tests of rules into dir, with copies of the functions that the rules
// break. It returns the numbers of the rules that have a copy. Without a mutant the tests have to
// pass: tests that fail anyway would seem to notice everything.
func copyRules(dir string, chosen []rule) (numbers map[string]int, err error) {
	texts, numbers, err := copiesOf(chosen)
	if err != nil {
		return nil, err
	}
	// The tests of one room run while those of another are compiled.
	var compiling errgroup.Group
	for tests, files := range texts {
		compiling.Go(func() error { return tests.compile(filepath.Join(dir, tests.dir), files) })
	}
	return numbers, compiling.Wait()
}

// copiesOf returns the files with copies, by the tests that have to notice and by their paths, and
// the numbers of the rules that have a copy, by their names.
func copiesOf(chosen []rule) (texts map[*room]map[string]string, numbers map[string]int, err error) {
	texts, numbers = map[*room]map[string]string{}, map[string]int{}
	files := map[*room]map[string]*copied{}
	for i, r := range chosen {
		if r.inKernel() { // each is compiled by itself
			continue
		}
		of := files[r.tests()]
		if of == nil {
			of = map[string]*copied{}
			files[r.tests()] = of
		}
		c := of[r.path()]
		if c == nil {
			source, err := os.ReadFile(r.path())
			if err != nil {
				return nil, nil, err
			}
			if c, err = newCopied(source); err != nil {
				return nil, nil, err
			}
			of[r.path()] = c
		}
		if number := i + 1; c.add(number, r.old, r.broken) {
			numbers[r.name] = number
		}
	}
	for tests, of := range files {
		texts[tests] = map[string]string{}
		for path, c := range of {
			texts[tests][path] = c.text()
			texts[tests][filepath.Join(filepath.Dir(path), guardFile)] = fmt.Sprintf(guardSource, c.tree.Name.Name)
		}
	}
	return texts, numbers, nil
}
