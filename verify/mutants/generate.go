package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// edit is one generated mutant: a piece of a file and what it is replaced by.
type edit struct {
	file     string // from the top of the tree
	from, to int    // bytes
	broken   string
	line     int
	function string // that it is in, as Name or Type.Name; "": none
	entry    string // names it in survivors.txt
	number   int    // in its room, from 1
	guarded  bool   // a guard can switch it on (guard.go)
}

// generate returns the mutants of a file, in the order of its text:
//
//	conditions       if, for, case c:      →  true || (c), false && (c)
//	comparisons      < <= > >= == !=       →  the next one: a < b becomes a <= b
//	operators        + - * / % << >> & |   →  the opposite one, also in assignments; ++ and --
//	logic            && ||                 →  each other
//	signs            -x                    →  x
//	numbers          n                     →  n + 1
//	truth            true, false           →  each other
//	statements       calls, assignments, defer, break, continue  →  nothing
//
// Some do not compile, because a variable is not used any more or a constant does not fit: these
// count for nothing. Messages and what only they need are left alone, and so are a 0 or a false
// beside an error, the length of an array's type, and the capacity of a slice or of a map.
func generate(file string, source []byte) ([]edit, error) {
	g, err := newGenerator(file, source)
	if err != nil {
		return nil, err
	}
	return g.edits, nil
}

func newGenerator(file string, source []byte) (*generator, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &generator{
		file: file, source: source, set: set, pkg: tree.Name.Name,
		whole: map[ast.Expr]bool{}, unused: map[ast.Expr]bool{},
	}
	for _, d := range tree.Decls {
		g.function, g.constant = "", false
		if f, ok := d.(*ast.FuncDecl); ok {
			g.function = functionName(f)
		} else if kind := d.(*ast.GenDecl).Tok; kind == token.IMPORT {
			continue
		} else {
			g.constant = kind == token.CONST
		}
		ast.Inspect(d, g.visit)
	}
	return g, nil
}

type generator struct {
	file     string
	source   []byte
	set      *token.FileSet
	pkg      string
	function string
	constant bool              // inside the declaration of a constant
	whole    map[ast.Expr]bool // conditions
	unused   map[ast.Expr]bool // expressions that are left out
	edits    []edit
	sites    []site
	guarded  int // the mutants before this one have a guard, as far as the last site goes
}

func (g *generator) offset(p token.Pos) int { return g.set.Position(p).Offset }

func (g *generator) text(n ast.Node) string {
	return string(g.source[g.offset(n.Pos()):g.offset(n.End())])
}

// replace adds the mutant in which broken stands from one place to another.
func (g *generator) replace(from, to token.Pos, broken string) {
	e := edit{
		file: g.file, from: g.offset(from), to: g.offset(to), broken: broken,
		line: g.set.Position(from).Line, function: g.function, guarded: g.isGuarded(len(g.edits)),
	}
	lineFrom := strings.LastIndexByte(string(g.source[:e.from]), '\n') + 1
	rest, _, _ := strings.Cut(string(g.source[lineFrom:]), "\n")
	changed := string(g.source[lineFrom:e.from]) + broken
	if after := e.to - lineFrom; after < len(rest) {
		changed += rest[after:]
	}
	changed, _, _ = strings.Cut(changed, "\n")
	e.entry = fmt.Sprintf("%s: %s  =>  %s", g.file, strings.TrimSpace(rest), strings.TrimSpace(changed))
	g.edits = append(g.edits, e)
}

// token adds the mutant in which another operator stands at a place.
func (g *generator) token(at token.Pos, was token.Token, broken string) {
	if broken != "" {
		g.replace(at, at+token.Pos(len(was.String())), broken)
	}
}

// condition adds the mutants in which a condition is always true, and never. A test that notices
// one of these notices the contrary of the condition too.
func (g *generator) condition(c ast.Expr) {
	g.whole[c] = true
	g.guard(c, 2, guardCondition)
	g.replace(c.Pos(), c.End(), "true || ("+g.text(c)+")")
	g.replace(c.Pos(), c.End(), "false && ("+g.text(c)+")")
}

var opposite = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*",
	token.SHL: ">>", token.SHR: "<<", token.AND: "|", token.OR: "&", token.XOR: "&", token.AND_NOT: "&",
	token.LAND: "||", token.LOR: "&&",
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.MUL_ASSIGN: "/=", token.QUO_ASSIGN: "*=", token.REM_ASSIGN: "*=",
	token.SHL_ASSIGN: ">>=", token.SHR_ASSIGN: "<<=", token.AND_ASSIGN: "|=", token.OR_ASSIGN: "&=", token.XOR_ASSIGN: "&=",
	token.AND_NOT_ASSIGN: "&=", token.INC: "--", token.DEC: "++",
}

// visit adds the mutants of one node, and reports whether those inside are wanted.
func (g *generator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		g.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			g.condition(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			g.cases(n)
		}
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	case *ast.CommClause:
		g.statements(n.Body)
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.ReturnStmt:
		g.besideAnError(n.Results)
	case *ast.AssignStmt:
		g.token(n.TokPos, n.Tok, opposite[n.Tok])
	case *ast.IncDecStmt:
		g.token(n.TokPos, n.Tok, opposite[n.Tok])
	case *ast.UnaryExpr:
		if n.Op == token.SUB {
			g.replace(n.OpPos, n.OpPos+1, "")
		}
	case *ast.BasicLit:
		g.number(n)
	case *ast.Ident:
		g.truth(n)
	case *ast.CallExpr:
		g.capacity(n)
		return !isMessage(n)
	case *ast.ArrayType:
		g.markUnused(n.Len)
	case *ast.Field: // a type, or a tag
		return false
	}
	return true
}

// binary adds the mutant in which an operator is another one. A condition that is an equality has
// its contrary already (condition).
func (g *generator) binary(n *ast.BinaryExpr) {
	equality := n.Op == token.EQL || n.Op == token.NEQ
	if equality && g.whole[n] || g.unused[n] {
		return
	}
	if equality || n.Op.Precedence() < token.ADD.Precedence() { // it makes a bool, whatever its operands are
		g.guard(n, 1, guardOperator)
	}
	broken := ""
	switch n.Op { // the operands stay the same, although || binds less than &&
	case token.LAND:
		broken = "(" + g.text(n.X) + " || " + g.text(n.Y) + ")"
	case token.LOR:
		broken = g.operand(n.X) + " && " + g.operand(n.Y)
	default:
		g.token(n.OpPos, n.Op, opposite[n.Op])
		return
	}
	if !strings.Contains(broken, "\n") {
		g.replace(n.Pos(), n.End(), broken)
		return
	}
	g.token(n.OpPos, n.Op, opposite[n.Op]) // so that its entry is the line with the operator
	e := &g.edits[len(g.edits)-1]
	e.from, e.to, e.broken = g.offset(n.Pos()), g.offset(n.End()), broken
}

// operand returns an operand of || as one of &&.
func (g *generator) operand(x ast.Expr) string {
	if n, ok := x.(*ast.BinaryExpr); ok && n.Op == token.LOR {
		return "(" + g.text(x) + ")"
	}
	return g.text(x)
}

// cases adds the mutants of the conditions of a switch without a tag.
func (g *generator) cases(s *ast.SwitchStmt) {
	for _, c := range s.Body.List {
		for _, condition := range c.(*ast.CaseClause).List {
			g.condition(condition)
		}
	}
}

// statements adds the mutants in which one statement is missing.
func (g *generator) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && !isMessage(call) {
				g.remove(s)
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.remove(s)
			}
		case *ast.DeferStmt, *ast.IncDecStmt, *ast.BranchStmt:
			g.remove(s)
		}
	}
}

func (g *generator) remove(s ast.Stmt) {
	if branch, ok := s.(*ast.BranchStmt); !ok || branch.Tok != token.FALLTHROUGH {
		g.guard(s, 1, guardStatement)
	}
	g.replace(s.Pos(), s.End(), "")
}

func (g *generator) number(n *ast.BasicLit) {
	if n.Kind == token.INT && !g.unused[n] {
		if value, err := strconv.ParseUint(n.Value, 0, 64); err == nil && value+1 != 0 {
			g.replace(n.Pos(), n.End(), strconv.FormatUint(value+1, 10))
		}
	}
}

// besideAnError leaves out each 0 and false that is returned together with an error: no caller uses
// it, so nothing can notice the mutant.
func (g *generator) besideAnError(results []ast.Expr) {
	if len(results) < 2 || !isError(results[len(results)-1]) {
		return
	}
	for _, r := range results {
		switch r := r.(type) {
		case *ast.BasicLit:
			g.unused[r] = r.Value == "0"
		case *ast.Ident:
			g.unused[r] = r.Name == "false"
		}
	}
}

// capacity leaves out the capacity that a slice is made with, and the number of entries that a map
// is made for: they decide about nothing but memory.
func (g *generator) capacity(call *ast.CallExpr) {
	if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "make" {
		return
	}
	if _, isMap := call.Args[0].(*ast.MapType); isMap && len(call.Args) == 2 {
		g.markUnused(call.Args[1])
	} else if len(call.Args) == 3 {
		g.markUnused(call.Args[2])
	}
}

// markUnused leaves out the numbers and operators of an expression.
func (g *generator) markUnused(e ast.Expr) {
	if e == nil {
		return
	}
	ast.Inspect(e, func(n ast.Node) bool {
		if x, ok := n.(ast.Expr); ok {
			g.unused[x] = true
		}
		return true
	})
}

// isError reports whether an expression is an error, by the names that errors have in this tree.
func isError(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "err" || strings.HasPrefix(e.Name, "Err")
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.SelectorExpr)
		return ok && f.Sel.Name == "Errorf"
	}
	return false
}

func (g *generator) truth(n *ast.Ident) {
	contrary := map[string]string{"true": "false", "false": "true"}[n.Name]
	if contrary != "" && !g.unused[n] {
		g.guard(n, 1, guardTruth)
		g.replace(n.Pos(), n.End(), contrary)
	}
}

// isMessage reports whether a call only makes or writes text: nothing relies on its arguments, or a
// program has gone wrong that the tests cannot make go wrong.
func isMessage(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name == "panic"
	case *ast.SelectorExpr:
		if pkg, ok := f.X.(*ast.Ident); ok && (pkg.Name == "fmt" || pkg.Name == "errors" || pkg.Name == "zap") {
			return true
		}
		switch f.Sel.Name {
		case "Debug", "Info", "Warn", "Error", "Errorf":
			return true
		}
	}
	return false
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	return fmt.Sprintf("%s.%s", receiver, f.Name.Name)
}
