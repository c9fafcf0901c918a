package main

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// narrow is the number of columns that a table may have on any screen.
	narrow = 100
	gap    = 2 // between two cells
	// lastCell is the room that the last cell of a table has at least, if it needs that much: one
	// word of its text.
	lastCell = 12
	// A text that goes on in the next line goes on where its cell begins, if that leaves so much
	// room for it, or else at the indent from where the line begins.
	room   = 40
	indent = 4
)

// width is the number of columns of what is written: those of a terminal, but at least narrow.
func (a *app) width() int {
	if f, ok := a.screen.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			return max(narrow, int(size.Col))
		}
	}
	return narrow
}

// layout aligns the cells of tables and breaks lines, so that none is longer than width. The cells
// of a line end with a tab, except the last one; an empty line ends a table.
func layout(text string, width int) string {
	var out strings.Builder
	var table []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			table = append(table, line)
			continue
		}
		layoutTable(&out, table, width)
		out.WriteByte('\n')
		table = table[:0]
	}
	layoutTable(&out, table, width)
	return trailing.ReplaceAllString(out.String(), "\n")
}

// trailing are the spaces behind the last cell of a line.
var trailing = regexp.MustCompile(" +\n")

// layoutTable aligns lines that belong together. A line without a tab is a sentence among them.
func layoutTable(out *strings.Builder, lines []string, width int) {
	var rows [][]string
	for _, line := range lines {
		rows = append(rows, strings.Split(line, "\t"))
	}
	starts := columns(rows, width)
	for _, cells := range rows {
		at, last := 0, len(cells)-1
		for i, cell := range cells[:last] {
			n := utf8.RuneCountInString(cell)
			at = moveTo(out, at, min(starts[i], max(0, width-n))) + n
			out.WriteString(cell)
		}
		text := cells[last]
		hang := indent + min(len(cells[0])-len(strings.TrimLeft(cells[0], " ")), width/2)
		if at = moveTo(out, at, starts[last]); at > 0 && width-at >= max(room, longestWord(text)) {
			hang = at
		}
		fold(out, text, width-at, hang, width)
	}
}

// moveTo moves from a column to that where a cell begins: in the next line, if the cell before has
// too little room.
func moveTo(out *strings.Builder, at, start int) int {
	if at > 0 && at+gap > start {
		out.WriteByte('\n')
		at = 0
	}
	out.WriteString(strings.Repeat(" ", start-at))
	return start
}

// columns returns where the cells of a table begin. If the table is too wide, its widest columns
// become as narrow as their headings: a cell with less room than it needs ends its line.
func columns(rows [][]string, width int) (starts []int) {
	var widths []int // of all but the last cells
	heading, text := []string(nil), 0
	for _, cells := range rows {
		last := len(cells) - 1
		if last == 0 {
			continue
		}
		if heading == nil {
			heading = cells
		}
		for len(widths) < last {
			widths = append(widths, 0)
		}
		for i, cell := range cells[:last] {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
		text = max(text, utf8.RuneCountInString(cells[last]))
	}
	excess := min(text, lastCell) - width
	for _, w := range widths {
		excess += w + gap
	}
	widest := make([]int, len(widths))
	for i := range widest {
		widest[i] = i
	}
	slices.SortStableFunc(widest, func(a, b int) int { return cmp.Compare(widths[b], widths[a]) })
	for _, i := range widest {
		if spare := widths[i] - len(heading[min(i, len(heading)-1)]); excess > 0 && spare > 0 {
			widths[i] -= min(spare, excess)
			excess -= min(spare, excess)
		}
	}
	starts = []int{0}
	for i, w := range widths {
		starts = append(starts, starts[i]+w+gap)
	}
	return starts
}

// fold writes a text that has first columns in its first line, and all behind hang in the others.
// It breaks the text at a space or behind a comma, or anywhere if a word alone is too long.
func fold(out *strings.Builder, text string, first, hang, width int) {
	for have := first; ; have = width - hang {
		runes := []rune(text)
		if len(runes) <= have {
			out.WriteString(text + "\n")
			return
		}
		cut := 0
		for i := 1; i <= have; i++ {
			if runes[i] == ' ' && runes[i-1] != ' ' || runes[i-1] == ',' {
				cut = i
			}
		}
		if cut == 0 && have >= width-hang {
			cut = have
		}
		out.WriteString(strings.TrimRight(string(runes[:cut]), " ") + "\n" + strings.Repeat(" ", hang))
		text = strings.TrimLeft(string(runes[cut:]), " ")
	}
}

func longestWord(text string) (most int) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		most = max(most, utf8.RuneCountInString(word)+1) // with its comma
	}
	return most
}
