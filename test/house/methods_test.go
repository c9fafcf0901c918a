package house

import (
	"go/ast"
	"testing"
)

// methodsMost is how many methods a type may have. An object with more is a package that nobody has
// cut: some of its methods work on a few of its fields, which can be a type, a file and a test of
// their own.
const methodsMost = 60

// receiverOf returns the name of the type of which a function is a method, or "".
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	e := f.Recv.List[0].Type
	for {
		switch is := e.(type) {
		case *ast.StarExpr:
			e = is.X
		case *ast.ParenExpr:
			e = is.X
		case *ast.IndexExpr:
			e = is.X
		case *ast.IndexListExpr:
			e = is.X
		case *ast.Ident:
			return is.Name
		default:
			return ""
		}
	}
}

// methods counts the methods of each type in the files that keep, by folder and name of the type.
func methods(all []source, keep func(source) bool) map[string]int {
	counts := map[string]int{}
	for _, s := range all {
		if !keep(s) {
			continue
		}
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && receiverOf(f) != "" {
				counts[s.folder()+"."+receiverOf(f)]++
			}
		}
	}
	return counts
}

func TestNoTypeHasManyMethods(t *testing.T) {
	counts := methods(mustSources(t), func(s source) bool { return !s.isTest() && ships(s.folder()) })
	for name, has := range counts {
		if has > methodsMost {
			t.Errorf("%s has %d methods, of %d at most: find the part of it that owns a few fields, and give that a type of its own",
				name, has, methodsMost)
		}
	}
}

func TestMethodsAreCounted(t *testing.T) {
	tests := methods(mustSources(t), func(s source) bool { return s.path == "test/house/tree_test.go" })
	if len(tests) != 1 || tests["test/house.source"] != 3 {
		t.Errorf("the methods of this package's source are %v", tests)
	}
	if n := methods(mustSources(t), func(s source) bool { return !s.isTest() })["dataplane.Core"]; n < 20 {
		t.Errorf("found %d methods of dataplane.Core", n)
	}
}
