package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write testdata; a person must read the difference")

// example has every part of a report.
func example() *Report {
	r := &Report{
		Form: "full", Began: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Seconds: 1500,
		Machine: Machine{Version: "v1", Kernel: "6.18.0", CPU: "A CPU", CPUs: 2, Go: "go1.26", Busy: 0.1},
		Peers: []Peer{
			{Name: "rocast-busy", What: "rocast", Rewrites: "headers and ICRC", Merges: true},
			{Name: "c-inplace", What: "the bar", Rewrites: "headers and ICRC"},
			{Name: "xdp-broadcast", What: "the limit", Rewrites: "headers, no ICRC"},
		},
		Left: []Left{
			{What: "xdp-broadcast, 4096 bytes", Why: "the kernel does\nnot redirect them"},
			{What: "rocast-busy, 7 receivers", Why: "a receiver got nothing", Failed: true},
		},
		Changes: &Changes{
			Groups: 20, Create: LatencyQuantile{310_000, 320_000, 330_000, 340_000}, Remove: LatencyQuantile{2000, 3000, 4000, 5000},
			Undisturbed: Running{Seconds: 2, Copies: 2_000_000, Longest: 1.5}, Disturbed: Running{Seconds: 4, Copies: 4_000_000, Resent: 3, Longest: 2.25},
		},
		Restarts: []Restarts{
			{Groups: 1, Rounds: []Restart{{FirstCopy: 210, CPU: 80}, {FirstCopy: 190, CPU: 90}, {FirstCopy: 300, CPU: 85}}},
			{Groups: 40, Rounds: []Restart{{FirstCopy: 400, CPU: 110}}},
		},
	}
	cells := func(busy, c, xdp float64) []Cell {
		of := func(peer string, k float64) Cell {
			s := Sample{Seconds: 1, Copies: uint64(k * 500), ProcessCPU: 0.3, KernelCPU: 0.2, HostsCPU: 0.5, Sent: 1}
			return Cell{Peer: peer, Window: 256, Samples: []Sample{s, s, s}}
		}
		all := []Cell{of("rocast-busy", busy), of("c-inplace", c)}
		if xdp > 0 {
			all = append(all, of("xdp-broadcast", xdp))
			all[2].Samples[0].HostsCPU, all[2].Samples[1].HostsCPU, all[2].Samples[2].HostsCPU = 1, 1, 1
		}
		return all
	}
	row := func(section string, cells []Cell, change func(*Setting)) {
		s := Setting{Payload: 1024, Receivers: 3, Groups: 1, Workers: 1}
		change(&s)
		r.Throughput = append(r.Throughput, Row{Section: section, Setting: s, Cells: cells})
	}
	row(SectionMain, cells(950, 1000, 2500), func(*Setting) {})
	row(SectionMain, cells(900, 1000, 0), func(s *Setting) { s.Payload = 4096 })
	row(SectionPayload, cells(800, 1000, 2000), func(s *Setting) { s.Payload = 64 })
	row(SectionReceivers, cells(700, 1000, 2000), func(s *Setting) { s.Receivers = 7 })
	row(SectionReceivers, cells(600, 1000, 2000), func(s *Setting) { s.Receivers = 1 })
	row(SectionGroups, cells(600, 1000, 0), func(s *Setting) { s.Groups, s.Pattern = 100_000, "hot" })
	row(SectionWorkers, cells(600, 1000, 0), func(s *Setting) { s.Groups, s.Pattern, s.Workers = 16, "random", 2 })
	for _, payload := range []int{64, 1024} {
		for i, p := range r.Peers {
			q := LatencyQuantile{P50: float64(1 + i), P90: float64(2 + i), P99: float64(3 + i), P999: float64(4 + i)}
			r.Latency = append(r.Latency, Latency{Peer: p.Name, Payload: payload, Receivers: 3, Pause: 100, Rounds: []LatencyRound{{100, q}, {100, q}}})
		}
	}
	r.Latency[5].Rounds = nil // it failed
	slow := r.Latency[3]
	slow.Pause = 5000
	r.Latency = append(r.Latency, slow)
	r.Summarize()
	return r
}

func TestMarkdown(t *testing.T) {
	const golden = "testdata/report.md"
	got := example().Markdown()
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Every column of a table has a head, or Markdown shows no table.
func TestTablesAreWhole(t *testing.T) {
	columns := 0
	for line := range strings.Lines(example().Markdown()) {
		if !strings.HasPrefix(line, "|") {
			if columns != 0 && strings.TrimSpace(line) != "" {
				t.Errorf("no empty line between a table and %s", line)
			}
			columns = 0
			continue
		}
		n := strings.Count(line, "|")
		if columns != 0 && n != columns {
			t.Errorf("%d columns instead of %d: %s", n-1, columns-1, line)
		}
		columns = n
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	r := example()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	markdown := read(t, dir, "report.md")
	var back Report
	if err := json.Unmarshal([]byte(read(t, dir, "report.json")), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Errorf("report.json reads as something else:\n%s", diff)
	}
	svgs, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(svgs) == 0 {
		t.Fatalf("%d plots, %v", len(svgs), err)
	}
	for _, file := range svgs {
		name := filepath.Base(file)
		if !strings.Contains(markdown, "]("+name+")") {
			t.Errorf("report.md does not show %s", name)
		}
		text := read(t, dir, name)
		if !strings.Contains(text, "c-inplace") {
			t.Errorf("%s does not name a contestant", name)
		}
		wellFormed(t, name, text)
	}
	if n := strings.Count(markdown, ".svg)"); n != len(svgs) {
		t.Errorf("report.md shows %d plots, there are %d", n, len(svgs))
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wellFormed(t *testing.T, name, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

func TestWarnsOfABusyMachine(t *testing.T) {
	r := example()
	if strings.Contains(r.Markdown(), "busy before") {
		t.Error("warns of a quiet machine")
	}
	r.Machine.Busy = 3
	if !strings.Contains(r.Markdown(), "busy before") {
		t.Error("does not warn of a load of 3")
	}
}

// A run in which nothing could be measured still makes a report that says why.
func TestEmptyReport(t *testing.T) {
	r := &Report{Left: []Left{{What: "everything", Why: "one CPU"}}}
	r.Summarize()
	if err := r.Write(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if text := r.Markdown(); !strings.Contains(text, "one CPU") || strings.Contains(text, "NaN") {
		t.Errorf("got:\n%s", text)
	}
}
