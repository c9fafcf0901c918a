package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/bench/report"
)

const evaluation = "../../docs/evaluation"

// The page shows of each long table what is chosen from its file.
func TestThePageHasTheLongTablesBesideIt(t *testing.T) {
	page, err := os.ReadFile(evaluation + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for title, s := range shownOf {
		if !strings.Contains(string(page), "### "+title+"\n") || !strings.Contains(string(page), "](evaluation/"+s.file+")") {
			t.Errorf("the page lacks %q or the link to %s", title, s.file)
		}
		f, err := os.Open(filepath.Join(evaluation, s.file))
		if err != nil {
			t.Error(err)
			continue
		}
		rows, err := csv.NewReader(f).ReadAll()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || len(rows) < 2 {
			t.Errorf("%s: %d rows, %v", s.file, len(rows), err)
			continue
		}
		p := report.Part{Sections: []report.Section{{Title: title, Columns: rows[0], Rows: rows[1:]}, {Title: "short"}}}
		shorten(&p)
		if b := p.Sections[0].Brief; b == nil || b.File != s.file || len(b.Rows) == 0 || len(b.Columns) > len(rows[0]) {
			t.Errorf("%s: the page shows %+v", title, b)
			continue
		}
		var whole strings.Builder
		p.Sections[0].Brief.Write(&whole, "evaluation", len(rows)-1)
		if !strings.Contains(string(page), "\n\n"+whole.String()) {
			t.Errorf("%s: the page does not show exactly\n%s", title, whole.String())
		}
		if p.Sections[1].Brief != nil {
			t.Error("a short table is shortened")
		}
	}
}

// A row is shown by its first cell; of consensus the loads of four replicas are.
func TestRowsThatThePageShows(t *testing.T) {
	rows := [][]string{{"2", "group", "362/s", "362"}, {"4", "group", "362/s", "361"}, {"4", "group", "bursts of 1", ""}}
	for name, c := range map[string]struct {
		keep func([]string) bool
		want []int
	}{"all": {all, []int{0, 1, 2}}, "first": {first("2", "3"), []int{0}}, "consensus": {ofFourReplicas, []int{1}}} {
		var got []int
		for i, row := range rows {
			if c.keep(row) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s keeps %v, want %v", name, got, c.want)
		}
	}
}
