package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/bench/scale"
	"github.com/rocast/rocast/internal/testlab"
)

// played runs some experiments in their short form.
func played(t *testing.T, seed uint64, run ...func(*session) error) *session {
	t.Helper()
	s := newSession(true, seed)
	for _, f := range run {
		if err := f(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// The same seed gives the same tables and curves, and another seed others.
func TestTablesAreTheSameEveryTime(t *testing.T) {
	testlab.Long(t)
	first, again := played(t, 1, (*session).share), played(t, 1, (*session).share)
	if !reflect.DeepEqual(first.sections, again.sections) || first.events != again.events {
		t.Errorf("%v\n%v", first.sections, again.sections)
	}
	if reflect.DeepEqual(first.sections, played(t, 2, (*session).share).sections) {
		t.Error("another seed changes nothing")
	}
}

// What a reader of the report relies on: every section names the command, every plot is there, and
// the JSON has each table.
func TestReportNamesItsCommandAndHasItsPlots(t *testing.T) {
	s := played(t, 1, (*session).copies, func(s *session) error { return s.sizesOf([]int64{64, 4 * kilo}) })
	dir := t.TempDir()
	if err := s.report().write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n### ")
	if len(parts) != 1+2+1 {
		t.Fatalf("the report has %d parts", len(parts))
	}
	for _, part := range parts {
		if !strings.Contains(part, "`make sim-scale SHORT=1`") {
			t.Errorf("a part does not name its command: %s", part)
		}
	}
	for i := range s.sections {
		x := &s.sections[i]
		for _, row := range x.rows {
			if len(row) != len(x.columns) {
				t.Errorf("%s: %d columns, and a row with %d cells", x.name, len(x.columns), len(row))
			}
		}
		if x.plot != nil {
			if svg, err := os.ReadFile(filepath.Join(dir, x.plot.File)); err != nil || !strings.Contains(string(svg), "<svg") {
				t.Errorf("%s: %v", x.plot.File, err)
			}
		}
	}
	var d document
	b, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil || len(d.Experiments) != 2 || len(d.Experiments[0].Rows) != 16 || d.Simulator.Events == 0 {
		t.Errorf("%v, %+v", err, d)
	}
}

// A packet crosses each link of the group's tree once, and fewer links than with any other method.
func TestAGroupCrossesEachLinkOnce(t *testing.T) {
	s := played(t, 1, (*session).copies)
	fewest := 0.0
	for _, row := range s.sections[0].rows {
		crossed, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		if row[2] == "group" {
			if fewest = crossed; row[5] != "1.0" || row[4]+".0" != row[3] {
				t.Errorf("%v", row)
			}
		} else if crossed < 1.8*fewest {
			t.Errorf("%v: a group needs %.0f", row, fewest)
		}
	}
}

// The plots show what the papers state beside what the tables have, relative to the same thing.
func TestPlotsHaveWhatThePapersState(t *testing.T) {
	s := played(t, 1, func(s *session) error { return s.sizesOf([]int64{64, 4 * kilo}) }, (*session).panels)
	wants := [][]string{
		{"chain 64:1945 4096:1942", "binomial tree 64:60 4096:61", "Cepheus, chain, short flows: at most 164 - 64:1640 4096:1640", "Cepheus, chain, long flows: at most 2.1 - 64:21 4096:21",
			"Cepheus, tree, short flows: at most 4.5 - 64:45 4096:45", "Cepheus, tree, long flows: at most 8.9 - 64:89 4096:89"},
		{"rows 8:100 16:100 32:100", "columns 8:100 16:100 32:100", "Gleam, as stated + 8:100 128:100", "ring and long, as Gleam states + 8:100 128:142"},
	}
	for i, want := range wants {
		scale := []float64{10, 100}[i]
		var got []string
		for _, l := range s.sections[i].plot.Lines {
			text := l.Name
			if l.Quoted {
				text += map[bool]string{true: " -", false: " +"}[l.Level]
			}
			for _, p := range l.Points {
				text += fmt.Sprintf(" %.0f:%.0f", p.X, p.Y*scale)
			}
			got = append(got, text)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", s.sections[i].name, got, want)
		}
	}
}

// The report shows a part of a long table, and the whole one is in a file. Of the sections about
// loss the first one explains, and one shows the losses that cost something.
func TestReportShowsAPartOfLongTables(t *testing.T) {
	s := &session{events: 1, took: time.Second}
	for i := range 4 {
		x := section{name: fmt.Sprintf("loss-%d", i), title: fmt.Sprintf("Loss %d", i), text: "8 MiB.",
			columns: []string{"lost", "", "FCT, ms", "goodput", "timeouts", "resent by hosts", "resent by boxes"},
			rows:    [][]string{{"0", "group", "9.1", "1.0", "0", "0.0", "0.0"}, {"10^-4", "group", "9.2", "0.9", "1", "0.1", "0.2"}}}
		x.inPart(i)
		s.sections = append(s.sections, x)
	}
	dir := t.TempDir()
	if err := s.report().write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n### ")
	for i, part := range parts[1:5] {
		if shows := strings.Contains(part, "| 10^-4 | group | 0.9 | 1 | 0.1 | 0.2 |\n"); shows != (i == 1) || strings.Contains(part, "9.2") || strings.Contains(part, "| 0 |") {
			t.Errorf("section %d shows: %s", i, part)
		}
		if explains := strings.Contains(part, lossFirst) && strings.Contains(part, lossDifferences); explains != (i == 0) {
			t.Errorf("section %d explains: %s", i, part)
		}
		if file := fmt.Sprintf("scale-loss-%d.csv", i); !strings.Contains(part, "The whole table, 2 rows: ["+file+"]("+file+")") {
			t.Errorf("section %d names no file: %s", i, part)
		} else if table, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.Count(string(table), "\n") != 3 || !strings.Contains(string(table), "10^-4,group,9.2,") {
			t.Errorf("%s: %q, %v", file, table, err)
		}
	}
}

// The page says of each network with losses how many packets a link carries in a timeout.
func TestTimeoutsInPackets(t *testing.T) {
	page, err := os.ReadFile("../../../docs/evaluation.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(false, 1)
	if text := lossTextOf(s.cepheus(), 32*mega); text != "32 MiB. In a timeout of 67 ms a link carries 201940 packets, and in one of 1 ms 3155." {
		t.Error(text)
	}
	for _, c := range []scale.Config{s.cepheus(), s.gleam()} {
		for _, bytes := range []int64{32 * mega, 128 * mega} {
			if text := lossTextOf(c, bytes); strings.Count(string(page), text) != 1 {
				t.Errorf("the page does not say once: %s", text)
			}
		}
	}
}

// The report states what a broadcast over three hops in a row takes, beside one of a group. All
// ways to train and to store have the same work: where nothing is shared, reads take equally long.
func TestGroupsSpareWhatOthersSend(t *testing.T) {
	s := played(t, 1, (*session).hpl, (*session).training)
	for _, row := range s.sections[0].rows {
		if row[3] != "67 %" {
			t.Errorf("%v", row)
		}
	}
	row := s.sections[1].rows[0]
	var took []float64
	for _, cell := range row[1:5] {
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, v)
	}
	// Six messages of 1 MiB have to come over one link of 100 Gb/s.
	const gather, share = 6 * mega * 8 / 100e6, mega * 8 / 100e6
	if took[0] < gather+share || took[1]-took[0] < 4*share || took[2]-took[0] < 4*share || took[3] > took[1] {
		t.Errorf("%v: ms by group, fan-out, chain, chain of slices", took)
	}
}

func TestReadsWaitForReplicationOnly(t *testing.T) {
	s := newSession(true, 1)
	web := workloads[1]
	idle, busy := [4]means{}, [2]means{}
	for i := range replicated {
		var err error
		if idle[i], err = s.stored(&workloads[0], &replicated[i], 0.001); err != nil {
			t.Fatal(err)
		}
		if i < len(busy) {
			if busy[i], err = s.stored(&web, &replicated[i], 0.3); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range idle {
		if idle[i].read != idle[0].read || i > 0 && idle[i].write <= idle[0].write {
			t.Errorf("%s: %+v; a group %+v", replicated[i].name, idle[i], idle[0])
		}
	}
	if busy[1].read < 1.1*busy[0].read || busy[1].write < busy[0].write {
		t.Errorf("fan-out %+v, group %+v", busy[1], busy[0])
	}
}

func TestWorkloadsAreAsStated(t *testing.T) {
	for i, want := range []float64{40_870, 1_711_250} {
		w := &workloads[i]
		if mean := w.mean(); mean < 0.999*want || mean > 1.001*want {
			t.Errorf("%s: mean %.0f", w.name, mean)
		}
		sum, before := 0.0, int64(0)
		const draws = 100_000
		for k := range draws {
			b := w.at(float64(k) / draws)
			if sum += float64(b); b < before || b < 1 {
				t.Fatalf("%s: %d bytes behind %d", w.name, b, before)
			}
			before = b
		}
		if got := sum / draws; got < 0.999*w.mean() || got > 1.001*w.mean() {
			t.Errorf("%s: draws have %.0f bytes on average, stated are %.0f", w.name, got, w.mean())
		}
		for j, p := range w.parts[:len(w.parts)-1] {
			if got := w.at(p); got != int64(w.bytes[j]) {
				t.Errorf("%s: %v have %d bytes at most", w.name, p, got)
			}
		}
		if got := w.at(1); got != int64(w.bytes[len(w.bytes)-1]) {
			t.Errorf("%s: the longest has %d bytes", w.name, got)
		}
	}
}
