// Package tables writes tables as Markdown and as CSV files, and shortens them for a page.
package tables

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Brief is what a page shows of a long table. The whole table is in a CSV file.
type Brief struct {
	File    string     `json:"file"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Shorten returns the rows of a table that keep wants, and of these the wanted columns, or all of
// them if wanted is nil. It panics if the table lacks a column.
func Shorten(file string, columns []string, rows [][]string, wanted []string, keep func(row []string) bool) *Brief {
	brief := &Brief{File: file, Columns: wanted}
	if wanted == nil {
		brief.Columns = columns
	}
	for _, row := range rows {
		switch {
		case !keep(row):
		case wanted == nil:
			brief.Rows = append(brief.Rows, row)
		default:
			brief.Rows = append(brief.Rows, pick(file, columns, row, wanted))
		}
	}
	return brief
}

func pick(file string, columns, row, wanted []string) (cells []string) {
	for _, name := range wanted {
		i := slices.Index(columns, name)
		if i < 0 {
			panic(fmt.Sprintf("tables: %s has no column %q", file, name))
		}
		cells = append(cells, row[i])
	}
	return cells
}

// Write writes the rows as Markdown, and where the whole table of so many rows is: in a folder
// beside the page.
func (t *Brief) Write(b *strings.Builder, folder string, rows int) {
	if len(t.Rows) > 0 {
		Write(b, t.Columns, t.Rows)
	}
	fmt.Fprintf(b, "The whole table, %d rows: [%s](%s)\n\n", rows, t.File, filepath.Join(folder, t.File))
}

// Write writes a table as Markdown, and an empty line.
func Write(b *strings.Builder, columns []string, rows [][]string) {
	row := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(columns)
	row(slices.Repeat([]string{"---"}, len(columns)))
	for _, cells := range rows {
		row(cells)
	}
	b.WriteString("\n")
}

// WriteCSV writes a table into a CSV file.
func WriteCSV(file string, columns []string, rows [][]string) error {
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(append([][]string{columns}, rows...)); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
