package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/tables"
)

func examplePart() *Part {
	return &Part{
		Title: "On shaped links", Command: "make bench-apps", Text: "How.", Began: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC), Seconds: 600,
		Machine: Machine{Version: "v1", Kernel: "6.18.0", CPU: "A CPU", CPUs: 2, Go: "go1.26", Busy: 0.1},
		Sections: []Section{
			{
				Title: "(a) WRITEs", Command: "make bench-apps ONLY=iops", Text: "What.", Columns: []string{"", "IOPS"},
				Rows: [][]string{{"1 unicast", "100"}, {"rocast", "99"}}, Holds: []Bound{{"rocast is as fast", true}}, Notes: []string{"The paper has 1.1 M."}, Behind: []string{"Ours has fewer."},
			},
			{
				Title: "(c) Broadcast", Command: "make bench-apps ONLY=broadcast", Text: "What.", Columns: []string{"bytes", "us"},
				Rows: [][]string{{"64", "5"}, {"4096", "50"}}, Holds: []Bound{{"rocast is faster", true}, {"and at 1 MiB", false}},
				Brief: &tables.Brief{File: "c.csv", Columns: []string{"us"}, Rows: [][]string{{"50"}}},
				Plots: []plots.Curves{{File: "c.svg", X: "bytes", Y: "us", LogX: true, LogY: true, Lines: []plots.Curve{{Name: "rocast", Points: plotter.XYs{{X: 64, Y: 5}, {X: 4096, Y: 50}}}}}},
			},
		},
		Left: []Left{{What: "loss", Why: "no\ntime", Failed: true}},
	}
}

// The report has every figure with its command, says what does not hold and what failed, and is
// the same after it was read from JSON.
func TestPart(t *testing.T) {
	p, dir := examplePart(), t.TempDir()
	if err := p.Write(dir); err != nil {
		t.Fatal(err)
	}
	var again Part
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if diff := cmp.Diff(p, &again); err != nil || diff != "" {
		t.Error(err, diff)
	}
	golden(t, filepath.Join(dir, "report.md"), "testdata/part.md")
	if svg, err := os.ReadFile(filepath.Join(dir, "c.svg")); err != nil || !strings.Contains(string(svg), "<svg") {
		t.Errorf("the plot: %v, %.40s", err, svg)
	}
	if got := p.Failed(); len(got) != 1 || got[0] != "and at 1 MiB" {
		t.Errorf("does not hold: %q", got)
	}
	busy := *p
	busy.Machine.Busy, busy.Short = 2, true
	if got := busy.Markdown(); !strings.Contains(got, "**The machine was busy") || !strings.Contains(got, "**This is the short form") {
		t.Error("a short run on a busy machine is not marked:\n" + got)
	}
}

// The page has the part and the simulation with their plots, and the whole tables beside it. What
// an earlier page had is gone.
func TestWritePage(t *testing.T) {
	dir, scale := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(scale, "report.md"):        "## In simulation\n\n`make sim-scale`\n\n![x](scale-x.svg)\n\n| a |\n|---|\n| 1 |\n",
		filepath.Join(scale, "scale-x.svg"):      "<svg/>",
		filepath.Join(scale, "scale-x.csv"):      "a\n1\n",
		filepath.Join(dir, plotsPath, "old.svg"): "<svg/>",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	byOthers := "# Evaluation\n\nold\n\n" + byHand + "\n## By hand\n\nA figure.\n"
	if err := os.WriteFile(filepath.Join(dir, pageFile), []byte(byOthers), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is kept is kept again, and nothing comes twice
		if err := WritePage(dir, examplePart(), scale); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join(dir, pageFile), "testdata/page.md")
	}
	files, err := filepath.Glob(filepath.Join(dir, plotsPath, "*"))
	var want []string
	for _, name := range []string{"c.csv", "c.svg", "scale-x.csv", "scale-x.svg"} {
		want = append(want, filepath.Join(dir, plotsPath, name))
	}
	if err != nil || !cmp.Equal(files, want) {
		t.Errorf("plots and tables: %v, %v", files, err)
	}
	if table, err := os.ReadFile(want[0]); err != nil || string(table) != "bytes,us\n64,5\n4096,50\n" {
		t.Errorf("the whole table: %q, %v", table, err)
	}
	if err := os.Remove(filepath.Join(dir, pageFile)); err != nil {
		t.Fatal(err)
	}
	if err := WritePage(dir, examplePart(), filepath.Join(scale, "nothing")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, pageFile))
	if err != nil || !strings.Contains(string(text), "`make sim-scale` was not run") {
		t.Errorf("the page does not say that the simulation is missing: %v", err)
	}
}

// A run of some sections writes these again, each with its run, and the new ones behind those
// before them; so it does with their lines at the top. Everything else stays. A page without the
// part, or a run in which something failed, changes nothing.
func TestSplicePage(t *testing.T) {
	dir := t.TempDir()
	whole := examplePart()
	whole.Left = nil
	whole.Sections = append(whole.Sections, Section{Title: "(e) Loss", Command: "make bench-apps ONLY=loss", Text: "As before.", Columns: []string{"lost"}, Rows: [][]string{{"1"}}, Behind: []string{"Stays."}})
	some := examplePart()
	some.Text, some.Left, some.Began, some.Short, some.Machine.Busy = "How it is now.", nil, some.Began.Add(time.Hour), true, 1
	writes, cast := some.Sections[0], some.Sections[1]
	writes.Rows, writes.Holds, writes.Behind = [][]string{{"rocast", "95"}}, []Bound{{"rocast is as fast", false}}, []string{"First.", "Second."}
	cast.Rows, cast.Holds, cast.Behind = [][]string{{"64", "6"}}, cast.Holds[:1], []string{"Third."}
	cast.Brief = &tables.Brief{File: "c.csv", Columns: []string{"us"}, Rows: [][]string{{"6"}}}
	other := Section{Title: "(a) WRITEs, over other links", Command: "make bench-apps ONLY=iops", Text: "New.", Columns: []string{"x"}, Rows: [][]string{{"1"}}, Behind: []string{"New."}}
	some.Sections = []Section{writes, other, cast}

	file := filepath.Join(dir, pageFile)
	if err := os.WriteFile(file, []byte("# Evaluation\n\n"+byHand+"\n## By hand\n\nA figure.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := SplicePage(dir, some); err == nil || !strings.Contains(err.Error(), "write the whole page first") {
		t.Errorf("a page without the part: %v", err)
	}
	if err := WritePage(dir, whole, filepath.Join(dir, "nothing")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is there is replaced, and nothing comes twice
		if err := SplicePage(dir, some); err != nil {
			t.Fatal(err)
		}
		golden(t, file, "testdata/spliced.md")
	}
	if table, err := os.ReadFile(filepath.Join(dir, plotsPath, "c.csv")); err != nil || string(table) != "bytes,us\n64,6\n" {
		t.Errorf("the whole table: %q, %v", table, err)
	}
	if svg, err := os.Stat(filepath.Join(dir, plotsPath, "c.svg")); err != nil || svg.Size() == 0 {
		t.Errorf("the plot: %v", err)
	}
	some.Left = []Left{{What: "loss", Why: "no time"}}
	some.Sections[0].Rows = nil
	if err := SplicePage(dir, some); err == nil || !strings.Contains(err.Error(), "loss failed") {
		t.Errorf("a run of which something failed: %v", err)
	}
	golden(t, file, "testdata/spliced.md")
}

func golden(t *testing.T, file, want string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(want, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expected, err := os.ReadFile(want)
	if diff := cmp.Diff(string(expected), string(got)); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// No table without its command: of the page, and of any page that this package writes.
func TestEveryTableNamesItsCommand(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", pageFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(page), examplePart().Markdown()} {
		n, nameless := tablesOf(text)
		if n == 0 || len(nameless) > 0 {
			t.Errorf("%d tables; these do not name their command: %q", n, nameless)
		}
	}
	for text, want := range map[string]int{
		"### A\n\nCommand: `make x`\n\n| a |\n|---|\n| 1 |\n":                            0,
		"### A\n\n`a` is not a command.\n\n| a |\n|---|\n| 1 |\n":                        1,
		"### A\n\nCommand: `make x`\n\n| a |\n| --- |\n| 1 |\n\n### B\n\n| a |\n|---|\n": 1,
	} {
		if _, nameless := tablesOf(text); len(nameless) != want {
			t.Errorf("%q: %q", text, nameless)
		}
	}
}

// tablesOf counts the tables of a page and returns those between whose heading and themselves no
// command stands.
func tablesOf(page string) (n int, nameless []string) {
	heading, named := "", false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			heading, named = line, false
		case strings.Contains(line, "`make ") || strings.Contains(line, "`build/") || strings.Contains(line, "`go run ") || strings.Contains(line, "`go test "):
			named = true
		case strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| --- "):
			if n++; !named {
				nameless = append(nameless, fmt.Sprintf("line %d, %s", i+1, heading))
			}
		}
	}
	return n, nameless
}
