package house

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Widths of a comment, in columns. A tab counts as four.
const (
	proseColumns   = 100
	drawingColumns = 120 // a drawing or a table, which is indented behind the comment mark
)

// isComment reports whether a line holds nothing but a comment or a part of one.
func isComment(line string) bool {
	line = strings.TrimSpace(line)
	for _, mark := range []string{"//", "/*", "*", "#"} {
		if strings.HasPrefix(line, mark) {
			return true
		}
	}
	return false
}

// isTooWide reports whether a comment line is wider than it may be. Directives of the Go tools
// cannot be broken.
func isTooWide(line string) bool {
	limit, trimmed := proseColumns, strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(trimmed, "//go:"):
		return false
	case strings.HasPrefix(trimmed, "//\t"), strings.HasPrefix(trimmed, "*\t"), strings.HasPrefix(trimmed, "*  "):
		limit = drawingColumns
	}
	return utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > limit
}

// Comments are read side by side with other files, in diffs and in reviews.
func TestCommentsAreNoWiderThanTheirLimit(t *testing.T) {
	lines := map[string][]string{}
	checked := 0
	prose(t, func(file string, number int, _ string) {
		if strings.HasSuffix(file, ".md") {
			return
		}
		if lines[file] == nil {
			lines[file] = strings.Split(read(t, file), "\n")
		}
		line := lines[file][number-1]
		if !isComment(line) {
			return // behind code
		}
		if checked++; isTooWide(line) {
			t.Errorf("%s:%d: the comment is wider than %d columns (a tab counts as 4)", file, number, proseColumns)
		}
	})
	if checked < 5000 {
		t.Errorf("only %d lines of comments were found", checked)
	}
}

func TestWidthOfAComment(t *testing.T) {
	for _, c := range []struct {
		line string
		want bool
	}{
		{"// " + strings.Repeat("x", 97), false},
		{"// " + strings.Repeat("x", 98), true},
		{"// " + strings.Repeat("é", 97), false},
		{"\t// " + strings.Repeat("x", 93), false},
		{"\t// " + strings.Repeat("x", 94), true},
		{" * " + strings.Repeat("x", 98), true},
		{"# " + strings.Repeat("x", 99), true},
		{"//go:generate " + strings.Repeat("x", 200), false},
		{"//\t" + strings.Repeat("x", 114), false},
		{"//\t" + strings.Repeat("x", 115), true},
		{" *\t" + strings.Repeat("x", 114), false},
		{" *\t" + strings.Repeat("x", 115), true},
	} {
		if got := isTooWide(c.line); got != c.want {
			t.Errorf("%d bytes that begin with %.6q: too wide %v, want %v", len(c.line), c.line, got, c.want)
		}
	}
}
