package plots

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Curves is a plot of lines.
type Curves struct {
	File, X, Y string
	LogX, LogY bool
	Lines      []Curve
}

// Curve is one line of a plot, by X.
type Curve struct {
	Name   string
	Quoted bool // from elsewhere: dashed
	Level  bool // a value without an X: a line without points
	Points plotter.XYs
}

// Save draws the plot into a directory.
func (c *Curves) Save(dir string) error {
	p, err := c.draw()
	if err != nil {
		return err
	}
	return Save(p, dir, c.File)
}

func (c *Curves) draw() (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	p.Legend.Top = true
	if c.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min = 0
	}
	drawn := false
	for i, l := range c.Lines {
		at := slices.DeleteFunc(slices.Clone(l.Points), c.nowhere)
		if len(at) == 0 {
			continue
		}
		drawn = true
		line, points, err := plotter.NewLinePoints(at)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		if l.Quoted {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		if l.Level {
			p.Add(line)
			p.Legend.Add(l.Name, line)
			continue
		}
		p.Add(line, points)
		p.Legend.Add(l.Name, line, points)
	}
	if !drawn {
		return nil, fmt.Errorf("%s: no line has points", c.File)
	}
	if !c.LogY {
		p.Y.Max *= 1.3 // room for the legend
	} else {
		p.Y.Max *= 10
	}
	return p, nil
}

// nowhere reports whether a point has no place on the axes: a logarithmic one has no zero.
func (c *Curves) nowhere(xy plotter.XY) bool { return c.LogX && xy.X <= 0 || c.LogY && xy.Y <= 0 }
