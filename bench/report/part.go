package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/tables"
)

// Part is a run of a command whose tables go into docs/evaluation.md. A report of its own is made
// of it, too.
type Part struct {
	Title    string    `json:"title"`
	Command  string    `json:"command"` // that makes all of it again, from a fresh clone
	Text     string    `json:"text"`    // how it is measured
	Short    bool      `json:"short"`
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`
	Machine  Machine   `json:"machine"`
	Sections []Section `json:"sections"`
	Left     []Left    `json:"left"`
}

// Section is one table, with its plots.
type Section struct {
	Title   string         `json:"title"`
	Command string         `json:"command"` // that makes this table alone
	Text    string         `json:"text"`
	Columns []string       `json:"columns"`
	Rows    [][]string     `json:"rows"`
	Brief   *tables.Brief  `json:"brief,omitempty"` // nil: the page shows the whole table
	Plots   []plots.Curves `json:"plots,omitempty"`
	Holds   []Bound        `json:"holds,omitempty"`
	Notes   []string       `json:"notes,omitempty"`  // what the papers have
	Behind  []string       `json:"behind,omitempty"` // where ours is behind, and why
}

// Shorten sets the section's Brief: these columns of the rows that keep wants. Every column must
// exist.
func (s *Section) Shorten(file string, columns []string, keep func(row []string) bool) {
	s.Brief = tables.Shorten(file, s.Columns, s.Rows, columns, keep)
}

// Bound is a promise about the figures.
type Bound struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
}

// Write writes the report of a part, as JSON and as Markdown, and its plots into a directory, which
// it makes.
func (p *Part) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(p.Markdown()), 0o644),
		p.Draw(dir))
}

// Draw writes the plots into a directory.
func (p *Part) Draw(dir string) error {
	var errs []error
	for i := range p.Sections {
		for k := range p.Sections[i].Plots {
			c := &p.Sections[i].Plots[k]
			if err := c.Save(dir); err != nil {
				errs = append(errs, fmt.Errorf("draw %s: %w", c.File, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Failed returns what was promised and does not hold.
func (p *Part) Failed() (all []string) {
	for i := range p.Sections {
		for _, b := range p.Sections[i].Holds {
			if !b.OK {
				all = append(all, b.What)
			}
		}
	}
	return all
}

// writeTables writes the whole table of each section that has a Brief into a directory.
func (p *Part) writeTables(dir string) error {
	var errs []error
	for i := range p.Sections {
		if s := &p.Sections[i]; s.Brief != nil {
			errs = append(errs, tables.WriteCSV(filepath.Join(dir, s.Brief.File), s.Columns, s.Rows))
		}
	}
	return errors.Join(errs...)
}

// Markdown renders the whole part. Its plots are beside the text.
func (p *Part) Markdown() string {
	b := p.head()
	for i := range p.Sections {
		s := &p.Sections[i]
		s.begin(b, "")
		tables.Write(b, s.Columns, s.Rows)
		for _, h := range s.Holds {
			fmt.Fprintf(b, "- %s: %s.\n", h.What, map[bool]string{true: "holds", false: "**does not hold**"}[h.OK])
		}
		list(b, append(slices.Clone(s.Notes), s.Behind...))
		if len(s.Holds)+len(s.Notes)+len(s.Behind) > 0 {
			b.WriteString("\n")
		}
	}
	return p.end(b)
}

// page renders the part for docs/evaluation.md, which lists the bounds and what is behind at its
// top. Plots and whole tables are in a folder beside the page.
func (p *Part) page(folder string) string {
	b := p.head()
	for i := range p.Sections {
		p.Sections[i].write(b, folder, "")
	}
	return p.end(b)
}

// write renders the section for the page. run is empty, or says of which run it is.
func (s *Section) write(b *strings.Builder, folder, run string) {
	s.begin(b, folder)
	if run != "" {
		b.WriteString(run + "\n\n")
	}
	if s.Brief == nil {
		tables.Write(b, s.Columns, s.Rows)
	} else {
		s.Brief.Write(b, folder, len(s.Rows))
	}
	if list(b, s.Notes); len(s.Notes) > 0 {
		b.WriteString("\n")
	}
}

// What a page says of figures that are not to be trusted.
const (
	busyWarning  = "**The machine was busy before the run began: do not trust these figures.**"
	shortWarning = "**This is the short form, which measures each row for less than a second: do not trust its second digit.**"
)

func (p *Part) head() *strings.Builder {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", p.Title)
	fmt.Fprintf(&b, "`%s`, %s, %.0f minutes, on this machine: %s.\n\n", p.Command, p.Began.UTC().Format("2006-01-02 15:04 UTC"), p.Seconds/60, p.Machine.line())
	if p.Machine.Busy > busyCPUs {
		b.WriteString(busyWarning + "\n\n")
	}
	if p.Short {
		b.WriteString(shortWarning + "\n\n")
	}
	b.WriteString(p.Text + "\n\n")
	return &b
}

func (p *Part) end(b *strings.Builder) string {
	leftList(b, "###", p.Left)
	if len(p.Left) > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// begin writes what stands before the table.
func (s *Section) begin(b *strings.Builder, folder string) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n", s.Title, s.Text)
	for _, c := range s.Plots {
		fmt.Fprintf(b, "![%s by %s](%s)\n\n", c.Y, c.X, filepath.Join(folder, c.File))
	}
	fmt.Fprintf(b, "Command: `%s`\n\n", s.Command)
}

func list(b *strings.Builder, items []string) {
	for _, n := range items {
		fmt.Fprintf(b, "- %s\n", n)
	}
}
