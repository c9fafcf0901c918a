package plots

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// A reader finds the names of axes and lines in the file, and a quoted line is dashed.
func TestCurvesNameTheirAxesAndLines(t *testing.T) {
	dir := t.TempDir()
	c := Curves{File: "c.svg", X: "size", Y: "time", LogX: true, LogY: true, Lines: []Curve{
		{Name: "ours", Points: plotter.XYs{{X: 1, Y: 2}, {X: 10, Y: 0}, {X: 100, Y: 30}, {X: 0, Y: 1}}},
	}}
	draw := func() string {
		t.Helper()
		if err := c.Save(dir); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "c.svg"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	solid := draw()
	for _, word := range []string{"<svg", "size", "time", "ours", "Times New Roman"} {
		if !strings.Contains(solid, word) {
			t.Errorf("the plot does not have %q", word)
		}
	}
	c.Lines[0].Quoted = true
	if dashed := draw(); strings.Contains(solid, "stroke-dasharray") || !strings.Contains(dashed, "stroke-dasharray") {
		t.Error("a quoted line is not told from a measured one")
	}
	marks := strings.Count(draw(), "<path")
	c.Lines[0].Level = true
	// Of the points that have a place two are left, and the legend has one more mark.
	if level := draw(); strings.Count(level, "<path") != marks-3 || !strings.Contains(level, "ours") {
		t.Errorf("a level has marks: %d paths, %d with points", strings.Count(level, "<path"), marks)
	}
	c.Lines = append(c.Lines, Curve{Name: "nothing"})
	if strings.Contains(draw(), "nothing") {
		t.Error("a line without points is in the legend")
	}
	c.Lines = c.Lines[1:]
	if err := c.Save(dir); err == nil || err.Error() != "c.svg: no line has points" {
		t.Errorf("a plot without points: %v", err)
	}
}
