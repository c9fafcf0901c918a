package house

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A citation names a file or a folder in a comment or in a document. Three forms are checked:
//
//   - a path whose first part is a folder at the root of the tree;
//   - a name that ends as source code or a document does; it lies in the folder of the citing file,
//     at the root, or, if it belongs to another project, in the table of docs/wire.md#sources;
//   - either of them with a heading: docs/wire.md#icrc.
//
// Absolute paths and addresses of web pages are not looked at.
type citation struct {
	line    int
	name    string
	heading string // after #, or ""
}

var (
	pathLike    = regexp.MustCompile(`[\w.*~$/-]+(#[\w-]+)?`)
	sourceNames = regexp.MustCompile(`^[\w*-][\w.*/-]*\.(go|md|c|h|sh)$`)
)

// citations finds what may be a citation in one line; folders are those at the root of the tree.
func citations(text string, line int, folders []string) []citation {
	var found []citation
	for _, word := range pathLike.FindAllString(text, -1) {
		name, heading, _ := strings.Cut(word, "#")
		name = strings.TrimPrefix(strings.TrimRight(name, ".-/"), "./")
		first, _, slash := strings.Cut(name, "/")
		if slash && slices.Contains(folders, first) || sourceNames.MatchString(name) && !strings.HasPrefix(name, "_") {
			found = append(found, citation{line, name, heading})
		}
	}
	return found
}

// commentsOf returns the lines of a file that a reader takes for prose, each with its number.
func commentsOf(name, text string) map[int]string {
	all := strings.Split(text, "\n")
	prose := map[int]string{}
	block := false // inside /* */
	for i, l := range all {
		trimmed := strings.TrimSpace(l)
		switch path.Ext(name) {
		case ".md":
			prose[i+1] = l
		case ".c", ".h":
			block = block || strings.Contains(l, "/*")
			if _, after, ok := strings.Cut(l, "//"); ok || block {
				prose[i+1] = after
				if block {
					prose[i+1] = l
				}
			}
			block = block && !strings.Contains(l, "*/")
		default:
			if strings.HasPrefix(trimmed, "#") {
				prose[i+1] = l
			}
		}
	}
	return prose
}

// foreign returns the files of other projects that comments may name: the first column of
// docs/wire.md#sources.
func foreign(t *testing.T) []string {
	_, section, found := strings.Cut(read(t, "docs/wire.md"), "\n## Sources\n")
	if !found {
		t.Fatal("docs/wire.md has no section Sources")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, l := range strings.Split(section, "\n") {
		if m := quoted.FindStringSubmatch(l); m != nil && strings.HasPrefix(l, "| `") {
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		t.Fatal("docs/wire.md#sources names no file")
	}
	return names
}

// resolve returns the file or folder that a citation in a file of folder names, from the root of
// the tree; "" if there is none. outside says that it is a file of another project.
func resolve(folder, name string, foreign []string) (found string, outside bool) {
	candidates := []string{name, path.Join(folder, name)}
	if dir, base := path.Split(name); strings.Contains(base, ".") { // a package and one of its names: internal/rnic.QP
		candidates = append(candidates, dir+base[:strings.Index(base, ".")])
	}
	for _, c := range candidates {
		if m, err := filepath.Glob(filepath.Join(root, c)); err == nil && len(m) > 0 {
			return c, false
		}
	}
	for _, f := range foreign {
		if f == name || strings.HasSuffix(f, "/"+name) {
			return name, true
		}
	}
	return "", false
}

// objection says what is wrong with a citation in a file of folder, or "".
func (c citation) objection(folder string, foreign []string) string {
	cited, outside := resolve(folder, c.name, foreign)
	switch {
	case cited == "":
		return "which does not exist; a file of another project belongs into docs/wire.md#sources"
	case c.heading == "":
		return ""
	case outside:
		return "whose headings are not here"
	}
	document, err := os.ReadFile(filepath.Join(root, cited))
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(headings(string(document)), c.heading) {
		return "which has no heading #" + c.heading
	}
	return ""
}

// headings returns the anchors of a document's headings as GitHub makes them.
func headings(document string) []string {
	var all []string
	for _, l := range strings.Split(document, "\n") {
		if title := strings.TrimLeft(l, "#"); title != l && strings.HasPrefix(title, " ") {
			all = append(all, anchor(title))
		}
	}
	return all
}

func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(strings.TrimSpace(title)))
}

// citing reports whether a file other than a Go file has prose that is checked.
func citing(name string) bool {
	switch path.Ext(name) {
	case ".md", ".c", ".h", ".sh", ".yaml", ".service":
		return !strings.Contains(name, "testdata/") || path.Ext(name) == ".md"
	}
	return name == "Makefile" || within(name, "scripts") || within(name, ".ci") || within(name, "feedback/testdata/stories")
}

// testName matches the name of a test, a benchmark or a fuzz target.
var testName = regexp.MustCompile(`\b(Test|Benchmark|Fuzz)[A-Z]\w*`)

// prose calls check with every line of comment and document in the tree.
func prose(t *testing.T, check func(file string, line int, text string)) {
	t.Helper()
	for _, s := range mustSources(t) {
		for _, group := range s.syntax.Comments {
			for _, comment := range group.List {
				for i, text := range strings.Split(comment.Text, "\n") {
					check(s.path, s.line(comment.Pos())+i, text)
				}
			}
		}
	}
	for _, f := range mustFiles(t) {
		if citing(f) {
			for line, text := range commentsOf(f, read(t, f)) {
				check(f, line, text)
			}
		}
	}
}

// A comment or a document that names a test names one that exists.
func TestNamedTestsExist(t *testing.T) {
	defined := map[string]bool{}
	for _, s := range mustSources(t) {
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.isTest() {
				defined[f.Name.Name] = true
			}
		}
	}
	prose(t, func(file string, line int, text string) {
		for _, name := range unknownTests(text, defined) {
			t.Errorf("%s:%d names %s, which does not exist", file, line, name)
		}
	})
}

// unknownTests returns the tests that text names and that are not defined.
func unknownTests(text string, defined map[string]bool) []string {
	return slices.DeleteFunc(testName.FindAllString(text, -1), func(name string) bool { return defined[name] })
}

func TestUnknownTests(t *testing.T) {
	text := "TestA, BenchmarkB and (FuzzC) are known, `Test`+`D` and Tests are no names, TestE and FuzzF are unknown"
	got := unknownTests(text, map[string]bool{"TestA": true, "BenchmarkB": true, "FuzzC": true})
	if strings.Join(got, " ") != "TestE FuzzF" {
		t.Errorf("got %q", got)
	}
}

func TestCitedFilesExist(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != ".git" && e.Name() != "build" {
			folders = append(folders, e.Name())
		}
	}
	known := foreign(t)
	checked := 0
	prose(t, func(file string, line int, text string) {
		for _, c := range citations(text, line, folders) {
			checked++
			if why := c.objection(path.Dir(file), known); why != "" {
				t.Errorf("%s:%d names %s, %s", file, c.line, c.name, why)
			}
		}
	})
	if checked < 100 {
		t.Errorf("found only %d citations", checked)
	}
}

func TestCitations(t *testing.T) {
	folders := []string{"docs", "bpf", ".ci", "internal"}
	for text, want := range map[string]string{
		"see docs/wire.md#icrc.": "docs/wire.md#icrc",
		"(copy.go: Apply)":       "copy.go",
		"`rxe_resp.c` answers":   "rxe_resp.c",
		"what .ci/run does":      ".ci/run",
		"internal/rnic.QP, then": "internal/rnic.QP",
		"bpf/*.c":                "bpf/*.c",
		"./bpf/x.h":              "bpf/x.h",
		"TX/RX and 10.0.0.0/24, /etc/x.sh, ~/y.go, $d/z.go": "",
		"https://example.org/docs/a.md":                     "",
		"github.com/docs/x, v1.2, e.g. a docs folder":       "",
		"files end in _test.go":                             "",
	} {
		got := ""
		for _, c := range citations(text, 1, folders) {
			got += c.name
			if c.heading != "" {
				got += "#" + c.heading
			}
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	known := []string{"drivers/rxe/rxe_resp.c"}
	for _, c := range []struct {
		folder, name, want string
		outside            bool
	}{
		{".", "README.md", "README.md", false},
		{"roce", "README.md", "README.md", false},
		{"roce", "doc.go", "roce/doc.go", false},
		{"docs", "roce/doc.go", "roce/doc.go", false},
		{".", "doc.go", "", false},
		{"roce", "internal/rnic.QP", "internal/rnic", false},
		{"roce", "internal/nobody.QP", "", false},
		{"roce", "d*c.go", "roce/d*c.go", false},
		{"roce", "x*c.go", "", false},
		{"roce", "rxe_resp.c", "rxe_resp.c", true},
		{"roce", "rxe/rxe_resp.c", "rxe/rxe_resp.c", true},
		{"roce", "resp.c", "", false},
	} {
		if got, outside := resolve(c.folder, c.name, known); got != c.want || outside != c.outside {
			t.Errorf("%s in %s: got %q, %v", c.name, c.folder, got, outside)
		}
	}
}

func TestObjectionsToCitations(t *testing.T) {
	known := []string{"drivers/rxe/rxe_resp.c"}
	for _, c := range []struct {
		name, heading string
		ok            bool
	}{
		{"docs/wire.md", "", true},
		{"docs/wire.md", "icrc", true},
		{"docs/wire.md", "no-such-heading", false},
		{"docs/nothing.md", "", false},
		{"docs", "icrc", false},
		{"rxe_resp.c", "", true},
		{"rxe_resp.c", "icrc", false},
	} {
		if why := (citation{1, c.name, c.heading}).objection("roce", known); (why == "") != c.ok {
			t.Errorf("%s#%s: objection %q", c.name, c.heading, why)
		}
	}
}

func TestCommentsOf(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a.md", "one\n\ttwo", "1:one 2:\ttwo "},
		{"a.c", "x; // one\ny;\n/* two\n three\n*/ z;\nw;", "1: one 3:/* two 4: three 5:*/ z; "},
		{"a.h", "/* one */\nx;", "1:/* one */ "},
		{"Makefile", "# one\nx: y # no\n\t# two", "1:# one 3:\t# two "},
	} {
		got := ""
		prose := commentsOf(c.name, c.text)
		for _, line := range slices.Sorted(maps.Keys(prose)) {
			if prose[line] != "" {
				got += fmt.Sprintf("%d:%s ", line, prose[line])
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAnchors(t *testing.T) {
	got := strings.Join(headings("# The wire\ntext # no\n## A group's address\n#no\n indented\n### 2. MSN and credits\n"), " ")
	if want := "the-wire a-groups-address 2-msn-and-credits"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
