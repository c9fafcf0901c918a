package house

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms are the rows of ARCHITECTURE.md's table of rooms from top to bottom; each row names one
// folder or several.
type rooms [][]string

var quoted = regexp.MustCompile("`([^`]+)`")

// parseRooms reads the table whose first column is headed "room".
func parseRooms(document string) (rooms, error) {
	_, table, found := strings.Cut(document, "\n| room |")
	if !found {
		return nil, fmt.Errorf("no table is headed `| room |`")
	}
	var all rooms
	for _, line := range strings.Split(table, "\n")[2:] {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		var row []string
		for _, m := range quoted.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			row = append(row, m[1])
		}
		if len(row) == 0 {
			return nil, fmt.Errorf("the row %q names no folder", line)
		}
		all = append(all, row)
	}
	return all, nil
}

func within(folder, room string) bool { return folder == room || strings.HasPrefix(folder, room+"/") }

// find returns the row and the folder of it to which a package belongs: the longest name that
// contains the package.
func (r rooms) find(pkg string) (row int, room string) {
	row = -1
	for i, names := range r {
		for _, name := range names {
			if within(pkg, name) && len(name) > len(room) {
				row, room = i, name
			}
		}
	}
	return row, room
}

// edge is one import of one package of the tree by another.
type edge struct {
	from, to string
	test     bool // a test file imports it
	command  bool // the importing package is a command
}

// tops are rooms for which others write nothing: no package outside imports them.
var tops = []string{"cmd", "demo", "examples", "bench", "test", "verify"}

// labs are packages for tests and measurements; what ships does not import them.
var labs = []string{"internal", "ctl/ctltest", "dataplane/porttest"}

// twins are packages that imitate an interface of the folder above for that folder's own tests.
var twins = []edge{{from: "dataplane", to: "dataplane/porttest", test: true}}

// compared are tests that play the same on something of another room.
var compared = []edge{{from: "bench/scale", to: "verify/sim", test: true}}

func belongs(pkg string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(pkg, f) })
}

// ships reports whether a package ends in rocastd or rocast.
func ships(pkg string) bool {
	return within(pkg, "cmd") || !belongs(pkg, tops) && !belongs(pkg, labs)
}

// objection says why the import must not be, or "".
func (r rooms) objection(e edge) string {
	from, room := r.find(e.from)
	to, _ := r.find(e.to)
	top := strings.Split(e.to, "/")[0]
	switch {
	case e.from == e.to:
		return ""
	case from < 0 || to < 0:
		return "one of them belongs to no row of the table of rooms in ARCHITECTURE.md"
	case slices.Contains(tops, top) && !within(e.from, top) && !slices.Contains(compared, edge{from: e.from, to: e.to, test: e.test}):
		return "no other room imports `" + top + "`"
	case within(e.to, "bpf") && e.from != "dataplane/afxdp" && !within(e.from, "cmd"):
		return "only the code that opens ports knows the classifier"
	case belongs(e.to, labs) && ships(e.from) && !e.test:
		return "what ships does not import what is for tests"
	case from < to || slices.Contains(twins, edge{from: e.from, to: e.to, test: e.test}):
		return ""
	case from > to:
		return "the table of rooms in ARCHITECTURE.md has it higher"
	case within(e.to, e.from) || e.command && within(e.to, room):
		return ""
	}
	return "both belong to `" + room + "`; give the imported one a lower row of its own in ARCHITECTURE.md"
}

func TestImportsPointDown(t *testing.T) {
	table := houseTable(t)
	seen := map[edge]bool{}
	for _, s := range mustSources(t) {
		for _, spec := range s.syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			to, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			e := edge{s.folder(), to, s.isTest(), s.syntax.Name.Name == "main"}
			seen[e] = true
			if why := table.objection(e); why != "" {
				t.Errorf("%s:%d imports %s: %s", s.path, s.line(spec.Pos()), to, why)
			}
		}
	}
	for _, e := range slices.Concat(twins, compared) {
		if !seen[e] {
			t.Errorf("%s no longer uses %s: take it from the list", e.from, e.to)
		}
	}
}

// The table of rooms is the tree: every package has its row, and every row has a package.
func TestTableOfRoomsIsTheTree(t *testing.T) {
	table := houseTable(t)
	folders := map[string]bool{}
	for _, s := range mustSources(t) {
		folders[s.folder()] = true
		if row, _ := table.find(s.folder()); row < 0 {
			t.Errorf("package %s belongs to no row of the table of rooms in ARCHITECTURE.md", s.folder())
		}
	}
	for _, row := range table {
		for _, room := range row {
			inhabited := false
			for f := range folders {
				inhabited = inhabited || within(f, room)
			}
			if !inhabited {
				t.Errorf("the table of rooms in ARCHITECTURE.md names %s, where no package is", room)
			}
		}
	}
}

func houseTable(t *testing.T) rooms {
	t.Helper()
	table, err := parseRooms(read(t, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal("ARCHITECTURE.md: ", err)
	}
	return table
}

func TestParseRooms(t *testing.T) {
	got, err := parseRooms("# x\n\n| room | what |\n|---|---|\n| `a/b`, `c` | uses `d` |\n| `e` | |\n\n| `f` | |\n")
	if err != nil || fmt.Sprint(got) != "[[a/b c] [e]]" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"nothing", "\n| room |\n|---|\n| a | |\n"} {
		if got, err := parseRooms(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestObjections(t *testing.T) {
	table := rooms{{"cmd"}, {"test"}, {"bench"}, {"verify"}, {"ctl"}, {"ctl/store", "ctl/ctltest"}, {"dataplane/afxdp"},
		{"dataplane/porttest"}, {"dataplane"}, {"bpf"}, {"roce"}, {"dataplane/xsk"}, {"internal/lab"}}
	for _, c := range []struct {
		edge
		ok bool
	}{
		{edge{"ctl", "dataplane", false, false}, true},
		{edge{"dataplane", "ctl", false, false}, false},
		{edge{"dataplane", "ctl", true, false}, false}, // a test too
		{edge{"dataplane", "dataplane", true, false}, true},
		{edge{"dataplane/afxdp", "dataplane", false, false}, true},
		{edge{"dataplane", "dataplane/afxdp", false, false}, false},
		{edge{"dataplane/xsk", "dataplane", false, false}, false},
		{edge{"dataplane/xsk", "roce", false, false}, false},
		{edge{"dataplane/xsk", "internal/lab", true, false}, true},
		{edge{"dataplane/xsk", "internal/lab", false, false}, false},
		{edge{"dataplane", "dataplane/porttest", true, false}, true},
		{edge{"dataplane", "dataplane/porttest", false, false}, false},
		{edge{"ctl", "dataplane/porttest", true, false}, true},
		{edge{"ctl", "dataplane/porttest", false, false}, false},
		{edge{"ctl", "ctl/store", false, false}, true},
		{edge{"ctl/store", "ctl", true, false}, false},
		{edge{"ctl/store", "ctl/ctltest", true, false}, false}, // one row
		{edge{"ctl", "ctl/new", false, false}, true},
		{edge{"ctl/new", "ctl", false, false}, false},
		{edge{"ctl/new", "ctl/other", false, false}, false},
		{edge{"test/one", "test/two", false, false}, false},
		{edge{"test/one", "test/two", false, true}, true}, // commands stand at the top of their room
		{edge{"test", "bench", false, true}, false},
		{edge{"bench", "test", false, true}, false},
		{edge{"bench/scale", "verify/sim", true, false}, true},
		{edge{"bench/scale", "verify/sim", false, false}, false},
		{edge{"bench/scale", "verify/model", true, false}, false},
		{edge{"cmd/a", "cmd/b", false, true}, true},
		{edge{"ctl", "cmd", true, false}, false},
		{edge{"cmd", "bpf", false, true}, true},
		{edge{"ctl", "bpf", false, false}, false},
		{edge{"cmd", "internal/lab", false, true}, false},
		{edge{"cmd", "internal/lab", true, true}, true},
		{edge{"test", "internal/lab", false, false}, true},
		{edge{"stray", "roce", false, false}, false},
		{edge{"ctl", "stray", false, false}, false},
	} {
		if why := table.objection(c.edge); (why == "") != c.ok {
			t.Errorf("%+v: objection %q", c.edge, why)
		}
	}
	if row, room := table.find("dataplane/xsk/deeper"); table[row][0] != "dataplane/xsk" || room != "dataplane/xsk" {
		t.Errorf("found row %d, %q", row, room)
	}
	if row, _ := table.find("dataplanes"); row >= 0 {
		t.Error("dataplanes is taken for dataplane")
	}
}
