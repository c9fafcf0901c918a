package house

import (
	"go/ast"
	"testing"
)

// methodsMost is how many methods a type may have. An object with more is a package that nobody has
// cut: some of its methods work on a few of its fields, which can be a type, a file and a test of
// their own.
const methodsMost = 60

// uncut are the types that have more, with how many they have. These numbers only fall: whoever
// takes methods away lowers the number, at the latest when it is slack too high.
var uncut = map[string]int{
	"ctl.Controller": 83,
}

const slack = 10

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

// objectionToMethods says what is wrong with a type of so many methods, which is listed with so
// many (0: it is not), or "".
func objectionToMethods(has, listed int) string {
	switch {
	case listed == 0 && has > methodsMost:
		return "more than any type may have: find the part of it that owns a few fields, and give that a type of its own"
	case listed != 0 && has <= methodsMost:
		return "as few as any type may have: take it from the list of the uncut"
	case listed != 0 && has > listed:
		return "more than it had before: what is added is to be a method of another type"
	case listed != 0 && has <= listed-slack:
		return "fewer than the list of the uncut says: lower the number there"
	}
	return ""
}

func TestNoTypeHasManyMethods(t *testing.T) {
	counts := methods(mustSources(t), func(s source) bool { return !s.isTest() && ships(s.folder()) })
	for name := range uncut {
		counts[name] += 0 // one that has gone is to leave the list
	}
	for name, has := range counts {
		if why := objectionToMethods(has, uncut[name]); why != "" {
			t.Errorf("%s has %d methods, %s", name, has, why)
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

func TestObjectionsToMethods(t *testing.T) {
	for _, c := range []struct {
		has, listed int
		ok          bool
	}{
		{methodsMost, 0, true},
		{methodsMost + 1, 0, false},
		{80, 80, true},
		{81, 80, false},
		{80 - slack + 1, 80, true},
		{80 - slack, 80, false},
		{methodsMost, methodsMost + 5, false},
		{methodsMost + 1, methodsMost + 5, true},
	} {
		if why := objectionToMethods(c.has, c.listed); (why == "") != c.ok {
			t.Errorf("%d methods, listed with %d: %q", c.has, c.listed, why)
		}
	}
}
