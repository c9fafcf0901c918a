package testlab

import (
	"os"
	"strings"
	"testing"
)

// Table compares the table below a heading of a document with rows, the first of which has the
// names of the columns. A table that differs is written if update is true.
func Table(t testing.TB, file, heading string, update bool, rows ...[]string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := func(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
	want := line(rows[0]) + strings.Repeat("|---", len(rows[0])) + "|\n"
	for _, cells := range rows[1:] {
		want += line(cells)
	}
	before, section, found := strings.Cut(string(page), "\n"+heading+"\n")
	begin := strings.Index(section, "| "+strings.Join(rows[0], " | ")+" |\n")
	if !found || begin < 0 {
		t.Fatalf("%s has no table with the columns %q below %s", file, rows[0], heading)
	}
	got := ""
	for l := range strings.Lines(section[begin:]) {
		if !strings.HasPrefix(l, "|") {
			break
		}
		got += l
	}
	switch after := section[begin+len(got):]; {
	case got == want:
	case update:
		if err := os.WriteFile(file, []byte(before+"\n"+heading+"\n"+section[:begin]+want+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the table below %s differs from the code; go test with -update writes it\ngot\n%s\nwant\n%s", file, heading, got, want)
	}
}
