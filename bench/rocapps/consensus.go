package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/report"
)

// consensusFigures is what bench/consensus writes with -figures.
type consensusFigures struct {
	LinkBitsPerSecond        float64
	Rounds                   int
	Throughput, Load, Bursts []consensusRow
	Ratio                    []struct {
		Replicas int
		Ratio    float64
	}
	Links    []consensusLink
	Failover []struct {
		What           string
		P50ms, WorstMs float64
		Of             int
		P4ceMs         float64
	}
}

type consensusRow struct {
	Replicas         int
	Way              string
	Burst            int
	Offered          float64
	EntriesPerSecond float64
	Saturated        bool
	P50us, P99us     float64
	LinkShare        float64
	CPUHosts, CPUBox float64
}

// consensusLink is the throughput over links of a rate, by a group and by a connection to each.
type consensusLink struct {
	Replicas, LinkBitsPerSecond int
	Group, Each, Ratio          float64
}

// storageRow is what bench/storage writes with -figures, for each size and way.
type storageRow struct {
	Replicas, BlockBytes            int
	Way                             string
	BlocksPerSecond, P50us, P99us   float64
	SourceBytesPerBlock, FsyncP50us float64
	LinkShare, CPUHosts, CPUBox     float64
}

// storage is the table of bench/storage.
func (b *bench) storage(ctx context.Context) error {
	var rows []storageRow
	if err := b.example(ctx, "storage", &rows); err != nil {
		return err
	}
	b.part.Sections = append(b.part.Sections, storageTable(rows))
	return nil
}

const (
	titleStorage = "Storage replication"
	textStorage  = "Blocks are put to the logs of replicas (bench/storage), and are stored when all disks have them. *blocks/s* is with several on " +
		"their way, the times with one. Three replicas are at ports of the box, and eight behind its one port, with shared copies or with their own."
	noteStorage = "In the storage system of Cepheus and Gleam the NICs acknowledge, here the disks do."
)

func storageTable(rows []storageRow) report.Section {
	sec := report.Section{
		Title: titleStorage, Command: "make storage", Text: textStorage,
		Columns: []string{"bytes", "", "blocks/s", "p50, us", "p99, us", "fsync p50, us", "bytes on the source's link for each block", "source's link", "hosts' CPUs", "box CPU"},
	}
	for _, r := range rows {
		sec.Rows = append(sec.Rows, []string{size(r.BlockBytes), fmt.Sprintf("%s to %d", r.Way, r.Replicas), fmt.Sprintf("%.1f", r.BlocksPerSecond), fmt.Sprintf("%.0f", r.P50us), fmt.Sprintf("%.0f", r.P99us),
			fmt.Sprintf("%.0f", r.FsyncP50us), fmt.Sprintf("%.0f", r.SourceBytesPerBlock), percent(r.LinkShare), percent(r.CPUHosts), percent(r.CPUBox)})
	}
	sec.Notes = []string{noteStorage}
	return sec
}

// ofEach is how many times the entries of a leader that writes to each replica a group decides at
// least, by the number of replicas: what P4CE does.
var ofEach = map[int]float64{2: 1.9, 4: 3.8}

// consensus is tables (d) and (g), which the example measures in a lab of its own.
func (b *bench) consensus(ctx context.Context) error {
	var f consensusFigures
	if err := b.example(ctx, "consensus", &f); err != nil {
		return err
	}
	b.part.Sections = append(b.part.Sections, f.throughput(), f.overLinks(), f.load(), f.failover())
	return nil
}

// example runs an example, which measures in a lab of its own, and takes its figures.
func (b *bench) example(ctx context.Context, name string, figures any) error {
	dir, err := os.MkdirTemp("", "rocapps-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "figures.json")
	args := []string{"-bin", b.bin, "-figures", file}
	if b.part.Short {
		args = append(args, "-short")
	}
	command := exec.CommandContext(ctx, filepath.Join(b.bin, name), args...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("run examples/%s: %w", name, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, figures)
}

const consensusCommand = "make consensus"

const (
	textConsensus = "A leader appends entries of 64 bytes to its replicas' logs by WRITE (bench/consensus), as fast as it can. An entry is decided when a majority has it. " +
		"With a group (`repair: local`) one ACK of the box says so; with a connection to *each* replica, as in Mu, the leader counts. " +
		"The links carry %.0f Mb/s: with more, the CPU would be the limit."
	noteConsensus = "P4CE decides 2.3 M entries a second: 1.9 times as many as Mu with 2 replicas, and 3.8 times with 4. There the leader's CPU limits Mu, here " +
		"its link does."
	titleLoad = "(d) Latency of consensus"
	textLoad  = "Entries come at a rate, or in bursts, of which the last entry's decision counts."
)

func (f *consensusFigures) throughput() report.Section {
	sec := report.Section{
		Title: "(d) Consensus", Command: consensusCommand, Text: fmt.Sprintf(textConsensus, f.LinkBitsPerSecond/1e6),
		Columns: []string{"replicas", "", "entries/s", "p50, us", "p99, us", "leader's link", "hosts' CPUs", "box CPU"},
	}
	for _, r := range f.Throughput {
		sec.Rows = append(sec.Rows, []string{strconv.Itoa(r.Replicas), r.Way, fmt.Sprintf("%.0f", r.EntriesPerSecond), fmt.Sprintf("%.0f", r.P50us),
			fmt.Sprintf("%.0f", r.P99us), percent(r.LinkShare), percent(r.CPUHosts), percent(r.CPUBox)})
	}
	for _, r := range f.Ratio {
		least := ofEach[r.Replicas]
		sec.Holds = append(sec.Holds, report.Bound{
			What: fmt.Sprintf("%d replicas: a group decides at least %.1f times as many entries (%.2f times)", r.Replicas, least, r.Ratio), OK: r.Ratio >= least,
		})
	}
	sec.Notes = []string{noteConsensus}
	return sec
}

func (f *consensusFigures) overLinks() report.Section {
	var rates, replicas []int
	for _, l := range f.Links {
		if !slices.Contains(rates, l.LinkBitsPerSecond) {
			rates = append(rates, l.LinkBitsPerSecond)
		}
		if !slices.Contains(replicas, l.Replicas) {
			replicas = append(replicas, l.Replicas)
		}
	}
	sec := report.Section{
		Title: titleConsensusLinks, Command: consensusCommand,
		Text:    fmt.Sprintf(textLinks, "(d)", f.Rounds),
		Columns: linkColumns([]string{"replicas", ""}, "entries/s", "of each", rates),
	}
	for _, n := range replicas {
		group, each := []string{strconv.Itoa(n), "group"}, []string{strconv.Itoa(n), "each"}
		for _, rate := range rates {
			i := slices.IndexFunc(f.Links, func(l consensusLink) bool { return l.Replicas == n && l.LinkBitsPerSecond == rate })
			l := f.Links[i]
			group = append(group, fmt.Sprintf("%.0f", l.Group), fmt.Sprintf("%.2f", l.Ratio))
			each = append(each, fmt.Sprintf("%.0f", l.Each), "1.00")
			if l.Ratio < ofEach[n] {
				sec.Behind = append(sec.Behind, fmt.Sprintf("%s, %d replicas: a group decides %.2f times as many entries, with P4CE %.1f.", linkName(rate), n, l.Ratio, ofEach[n]))
			}
		}
		sec.Rows = append(sec.Rows, group, each)
	}
	return sec
}

func (f *consensusFigures) load() report.Section {
	sec := report.Section{
		Title: titleLoad, Command: consensusCommand, Text: textLoad,
		Columns: []string{"replicas", "", "load", "decided/s", "p50, us", "p99, us", "leader's link"},
	}
	lines := map[string]plotter.XYs{}
	var order []string
	for _, r := range append(append([]consensusRow{}, f.Load...), f.Bursts...) {
		load, decided, link := fmt.Sprintf("%.0f/s", r.Offered), fmt.Sprintf("%.0f", r.EntriesPerSecond), percent(r.LinkShare)
		switch {
		case r.Burst > 0: // in which the link is busy at times
			load, decided, link = fmt.Sprintf("bursts of %d", r.Burst), "", ""
		case r.Saturated:
			decided += ", saturated"
		}
		if name := fmt.Sprintf("%d replicas, %s", r.Replicas, r.Way); r.Burst == 0 {
			if lines[name] == nil {
				order = append(order, name)
			}
			lines[name] = append(lines[name], plotter.XY{X: r.Offered, Y: r.P50us})
		}
		sec.Rows = append(sec.Rows, []string{strconv.Itoa(r.Replicas), r.Way, load, decided, fmt.Sprintf("%.0f", r.P50us), fmt.Sprintf("%.0f", r.P99us), link})
	}
	curves := plots.Curves{LogX: true, File: "apps-consensus.svg", X: "entries offered per second", Y: "us, p50", LogY: true}
	for _, name := range order {
		curves.Lines = append(curves.Lines, plots.Curve{Name: name, Points: lines[name]})
	}
	sec.Plots = []plots.Curves{curves}
	return sec
}

func (f *consensusFigures) failover() report.Section {
	sec := report.Section{
		Title: "(g) Set-up and fail-over", Command: consensusCommand,
		Text: "How long a group's set-up takes, and how long no entry is decided when a replica is lost, the leader changes, or rocastd is killed. The leader then writes to each " +
			"replica by itself, as P4CE's does. The last row is the time until rocastd has started again and the group has everything.",
		Columns: []string{"", "p50, ms", "worst, ms", "of", "P4CE, ms"},
	}
	for _, r := range f.Failover {
		row := []string{r.What, fmt.Sprintf("%.1f", r.P50ms), fmt.Sprintf("%.1f", r.WorstMs), strconv.Itoa(r.Of), ""}
		if r.P4ceMs > 0 {
			row[4] = fmt.Sprintf("%.1f", r.P4ceMs)
		}
		sec.Rows = append(sec.Rows, row)
		if r.P4ceMs > 0 && r.P50ms > r.P4ceMs {
			sec.Behind = append(sec.Behind, fmt.Sprintf("%s: %.0f ms where P4CE has %.0f.", r.What, r.P50ms, r.P4ceMs))
		}
	}
	return sec
}
