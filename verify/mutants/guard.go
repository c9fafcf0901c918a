package main

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Most mutants need no compilation of their own: the package is compiled once with a guard at each
// place that can be broken, and an environment variable says which mutant the tests run with. For
// instance
//
//	if a < b {            if (mutant == 1 || mutant != 2 && ((mutant == 3 && (a <= b) || mutant != 3 && (a < b)))) {
//		n++          →            if mutant != 4 { n++ }
//	}                     }
//
// A guard is possible where it needs no types: for conditions, operators whose result is a bool,
// true and false, and statements that are removed.
const (
	guardVariable    = "rocastMutant"
	guardEnvironment = "ROCAST_MUTANT" // the number of a mutant, 0 or nothing for none
	guardFile        = "mutant_guard.go"
)

// guardSource is the file that a guarded package gets in addition.
const guardSource = `package %s

import (
	"os"
	"strconv"
)

var ` + guardVariable + `, _ = strconv.Atoi(os.Getenv("` + guardEnvironment + `"))
`

type guardKind uint8

const (
	guardCondition guardKind = iota
	guardOperator
	guardTruth
	guardStatement
)

// site is a piece of a file that has a guard.
type site struct {
	guardKind
	from, to int
	edit     int             // index of its first mutant in the file
	operator *ast.BinaryExpr // if it is one
}

// guard says that the next n mutants are those of a node, and that a guard can switch them
// on.
func (g *generator) guard(n ast.Node, mutants int, kind guardKind) {
	if g.constant {
		return
	}
	operator, _ := n.(*ast.BinaryExpr)
	g.sites = append(g.sites, site{kind, g.offset(n.Pos()), g.offset(n.End()), len(g.edits), operator})
	g.guarded = len(g.edits) + mutants
}

// isGuarded reports whether a mutant of the file has a guard.
func (g *generator) isGuarded(edit int) bool { return edit < g.guarded }

// guardAll returns the file with all guards. The number of the file's first mutant is given.
func (g *generator) guardAll(number int) string {
	slices.SortStableFunc(g.sites, func(a, b site) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to // outer ones first
	})
	return g.guardRange(g.sites, 0, len(g.source), number)
}

// guardRange returns a piece of the file with the guards of the sites that lie in it.
func (g *generator) guardRange(sites []site, from, to, number int) string {
	var out strings.Builder
	for i, s := range sites {
		if s.from < from || s.to > to {
			continue // outside the piece, or inside a site that was written
		}
		out.Write(g.source[from:s.from])
		from = s.to
		out.WriteString(g.guardSite(&s, sites[i+1:], number))
	}
	out.Write(g.source[from:to])
	return out.String()
}

// guardSite returns the text of a site with its guard. Other sites may lie in it.
func (g *generator) guardSite(s *site, others []site, number int) string {
	is := func(n int) string { return fmt.Sprintf("%s == %d", guardVariable, number+s.edit+n) }
	not := func(n int) string { return fmt.Sprintf("%s != %d", guardVariable, number+s.edit+n) }
	switch s.guardKind {
	case guardTruth:
		if string(g.source[s.from:s.to]) == "true" {
			return "(" + not(0) + ")"
		}
		return "(" + is(0) + ")"
	case guardOperator:
		n := s.operator
		x := g.guardRange(others, g.offset(n.X.Pos()), g.offset(n.X.End()), number)
		y := g.guardRange(others, g.offset(n.Y.Pos()), g.offset(n.Y.End()), number)
		return fmt.Sprintf("(%s && (%s %s %s) || %s && (%s %s %s))", is(0), x, opposite[n.Op], y, not(0), x, n.Op, y)
	}
	inner := g.guardRange(others, s.from, s.to, number)
	if s.guardKind == guardCondition {
		return fmt.Sprintf("(%s || %s && (%s))", is(0), not(1), inner)
	}
	return fmt.Sprintf("if %s { %s }", not(0), inner)
}

// buildGuarded compiles the room's tests with all guards into dir. They must pass without a mutant:
// a guard may make a function allocate.
func (r *room) buildGuarded(dir string) (err error) {
	generators, err := r.generators(".")
	if err != nil {
		return err
	}
	files, number := map[string]string{}, 1
	for _, g := range generators {
		files[g.file] = g.guardAll(number)
		files[filepath.Join(r.dir, guardFile)] = fmt.Sprintf(guardSource, g.pkg)
		number += len(g.edits)
	}
	return r.compile(filepath.Join(dir, r.dir), files)
}

// compile compiles the room's tests into dir, with files that take the place of others.
func (r *room) compile(dir string, files map[string]string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	overlay, err := writeOverlay(dir, files)
	if err != nil {
		return err
	}
	r.binaries = map[string]string{}
	defer func() {
		if err != nil {
			r.binaries = nil
		}
	}()
	for _, s := range r.suites {
		if r.binaries[s.dir] == "" {
			if r.binaries[s.dir], err = s.build(dir, overlay); err != nil {
				return err
			}
		}
	}
	noticed, err := r.runGuarded(0, r.suites)
	if err == nil && noticed != (noticer{}) {
		err = fmt.Errorf("with guards and without a mutant there fails %q", noticed)
	}
	return err
}

// runGuarded returns the test of some suites of the room that notices a mutant that has a guard.
func (r *room) runGuarded(number int, suites []suite) (noticed noticer, err error) {
	for _, s := range suites {
		noticed, err = s.test(r.binaries[s.dir], guardEnvironment+"="+strconv.Itoa(number))
		if noticed != (noticer{}) || err != nil {
			break
		}
	}
	return noticed, err
}
