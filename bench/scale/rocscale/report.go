package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/tables"
)

// section is one part of the report: what was asked, the answer, and how it differs from the paper.
type section struct {
	name, title string
	text        string
	columns     []string
	rows        [][]string
	after       string // behind the table
	plot        *plots.Curves

	brief *brief // nil: the report shows the whole table
}

// brief says what the report shows of a long table: the rows that have one of the cells in column
// number in, and of these some columns (nil: all).
type brief struct {
	in      int
	cells   []string
	columns []string
}

func (b *brief) keeps(row []string) bool { return slices.Contains(b.cells, row[b.in]) }

// document is what the JSON file has.
type document struct {
	Command     string       `json:"command"`
	Seed        uint64       `json:"seed"`
	Short       bool         `json:"short"`
	Machine     machine      `json:"machine"`
	Simulator   simulator    `json:"simulator"`
	Experiments []tabulation `json:"experiments"`

	sections []section
}

type machine struct {
	System string `json:"system"`
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
}

type simulator struct {
	Events          uint64  `json:"events"`
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"eventsPerSecond"`
	PeakMiB         float64 `json:"peakMiB"`
}

type tabulation struct {
	Name    string     `json:"name"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

func (s *session) command() string {
	if s.short {
		return "make sim-scale SHORT=1"
	}
	return "make sim-scale"
}

func (s *session) report() *document {
	d := &document{
		Command: s.command(), Seed: s.seed, Short: s.short,
		Machine:   machine{System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()},
		Simulator: simulator{Events: s.events, Seconds: s.took.Seconds(), EventsPerSecond: float64(s.events) / s.took.Seconds(), PeakMiB: float64(s.peakBytes) / mega},
		sections:  s.sections,
	}
	for i := range s.sections {
		x := &s.sections[i]
		d.Experiments = append(d.Experiments, tabulation{x.name, x.columns, x.rows})
	}
	return d
}

const introduction = `## At the size of the papers, in simulation

Fat trees with a box at every switch, simulated packet by packet (package ` + "`bench/scale`" + `). The boxes merge and plan
their trees with the code that runs on the wire; requesters behave as rdma_rxe does, with DCQCN. Cepheus' 1,024 hosts at 100 Gb/s are a fat tree
of switches with 16 ports; Gleam's 16,384 hosts at 200 Gb/s, with switches of 64 ports, are 16 pods of 1,024 hosts. MTU 4096; a link has 0.5
us; queues mark from 50 KB (none) to 500 KB (1 %%), as MC-RDMA states for 100 Gb/s. A box forwards at line rate: these figures say what the
method costs, not what a box with a few CPUs can carry. *FCT* is the time until all receivers have everything. Made by ` + "`%s`" + `.

`

func (d *document) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, introduction, d.Command)
	for i := range d.sections {
		d.sections[i].markdown(&b, d.Command)
	}
	fmt.Fprintf(&b, "### The simulator\n\nMade by `%s` on %s with %d CPUs, %s; one thread.\n\n| events | CPU seconds | events per CPU second | most memory, MiB |\n|---|---|---|---|\n"+
		"| %.1f million | %.0f | %.2f million | %.0f |\n", d.Command, d.Machine.System, d.Machine.CPUs, d.Machine.Go,
		float64(d.Simulator.Events)/1e6, d.Simulator.Seconds, d.Simulator.EventsPerSecond/1e6, d.Simulator.PeakMiB)
	return b.String()
}

func (x *section) markdown(b *strings.Builder, command string) {
	fmt.Fprintf(b, "### %s\n\n%s Made by `%s`.\n\n", x.title, x.text, command)
	if x.plot != nil {
		fmt.Fprintf(b, "![%s](%s)\n\n", x.title, x.plot.File)
	}
	if x.brief == nil {
		tables.Write(b, x.columns, x.rows)
	} else {
		tables.Shorten(x.table(), x.columns, x.rows, x.brief.columns, x.brief.keeps).Write(b, "", len(x.rows))
	}
	if x.after != "" {
		fmt.Fprintf(b, "%s\n\n", x.after)
	}
}

// table is the name of the file with the whole table.
func (x *section) table() string { return "scale-" + x.name + ".csv" }

// write writes the report, the plots and the whole tables into a directory, which it makes.
func (d *document) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		return err
	}
	errs := []error{
		os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(d.markdown()), 0o644),
	}
	for i := range d.sections {
		x := &d.sections[i]
		if x.plot != nil {
			errs = append(errs, x.plot.Save(dir))
		}
		if x.brief != nil {
			errs = append(errs, tables.WriteCSV(filepath.Join(dir, x.table()), x.columns, x.rows))
		}
	}
	return errors.Join(errs...)
}
