package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Names of the page and of the folder with its plots, beside the page.
const (
	pageFile  = "evaluation.md"
	plotsPath = "evaluation"
)

// Headings of the lists before the part.
const (
	promisesHeading = "## What has to hold"
	behindHeading   = "## Where ours is behind"
)

const pageHead = `# Evaluation

What the papers behind rocast measure: MC-RDMA, Cepheus (HPCA 2024), Gleam (2023), Khooi et al. (ANCS 2021) and P4CE (ICDCS 2024).
` + "`make bench-apps UPDATE=1` writes the page from its own run and from the latest `make sim-scale`; its end is written by hand. With `ONLY=iops,loss`" + `
the command writes only these sections again. The papers have hardware of 100 and 200 Gb/s, and here all is software: compare the ways with each
other, and not with the papers' figures.

`

// byHand begins what a new page keeps of the one before.
const byHand = "<!-- Written by hand from here on: what other commands have measured. -->\n"

// WritePage writes the page about a part, and about the simulation whose report is in the directory
// scale, their plots, and the tables that the page does not show whole.
func WritePage(dir string, p *Part, scale string) error {
	page, plots := filepath.Join(dir, pageFile), filepath.Join(dir, plotsPath)
	before, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.RemoveAll(plots), os.MkdirAll(plots, 0o755)); err != nil {
		return err
	}
	simulation, err := takeScale(scale, plots)
	if err != nil {
		return err
	}
	text := pageHead + promises(p) + p.page(plotsPath) + simulation
	if _, kept, found := strings.Cut(string(before), "\n"+byHand); found {
		text = strings.TrimRight(text, "\n") + "\n\n" + byHand + kept
	}
	return errors.Join(os.WriteFile(page, []byte(text), 0o644), p.Draw(plots), p.writeTables(plots))
}

// promises lists what has to hold, whether it does, and where ours is behind.
func promises(p *Part) string {
	var b strings.Builder
	b.WriteString(promisesHeading + "\n\n")
	for i := range p.Sections {
		b.WriteString(p.Sections[i].promises())
	}
	b.WriteString("\n" + behindHeading + "\n\n")
	for i := range p.Sections {
		b.WriteString(p.Sections[i].behind())
	}
	b.WriteString("\n")
	return b.String()
}

// promises are the section's lines of what has to hold.
func (s *Section) promises() string {
	var b strings.Builder
	held, failed := 0, 0
	for _, h := range s.Holds {
		if h.OK {
			held++
			continue
		}
		failed++
		fmt.Fprintf(&b, "- **%s: %s: does not hold.**\n", s.Title, h.What)
	}
	if held > 0 && failed == 0 {
		fmt.Fprintf(&b, "- %s: everything holds, %d of %d. The first: %s.\n", s.Title, held, held, s.Holds[0].What)
	}
	return b.String()
}

// behind are the section's lines of where ours is behind.
func (s *Section) behind() string {
	var b strings.Builder
	for _, text := range s.Behind {
		fmt.Fprintf(&b, "- %s: %s\n", s.Title, text)
	}
	return b.String()
}

// takeScale returns the report of the simulation, and copies its plots and whole tables.
func takeScale(from, plots string) (string, error) {
	text, err := os.ReadFile(filepath.Join(from, "report.md"))
	if errors.Is(err, fs.ErrNotExist) {
		return "## In simulation\n\n`make sim-scale` was not run before this page was made, so it has no figures of the simulation.\n", nil
	}
	if err != nil {
		return "", err
	}
	drawn, err := filepath.Glob(filepath.Join(from, "*.svg"))
	tables, errTables := filepath.Glob(filepath.Join(from, "*.csv"))
	err = errors.Join(err, errTables)
	for _, file := range append(drawn, tables...) {
		content, errRead := os.ReadFile(file)
		err = errors.Join(err, errRead, os.WriteFile(filepath.Join(plots, filepath.Base(file)), content, 0o644))
	}
	return strings.ReplaceAll(string(text), "](scale-", "]("+plotsPath+"/scale-"), err
}
