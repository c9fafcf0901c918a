package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// Every kind of events that the package declares has its sentence, once.
func TestEveryKindOfEventsHasAMeaning(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[EventKind]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if name, ok := v.Type.(*ast.Ident); ok && name.Name == "EventKind" {
				kind, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared[EventKind(kind)] = true
			}
		}
		return true
	})
	if len(declared) < 20 {
		t.Fatalf("%v", declared)
	}
	for _, m := range EventMeanings() {
		if !declared[m.Kind] {
			t.Errorf("%s is not declared, or has two sentences", m.Kind)
		}
		delete(declared, m.Kind)
		if !strings.HasSuffix(m.Meaning, ".") || len(m.Meaning) > 80 { // a line of the table has 100 columns
			t.Errorf("%s: %q is no sentence, or too long", m.Kind, m.Meaning)
		}
	}
	for kind := range declared {
		t.Errorf("%s has no sentence", kind)
	}
}
