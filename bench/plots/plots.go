// Package plots writes plots as SVG files that look alike.
package plots

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width  = 18 * vg.Centimeter
	height = 12 * vg.Centimeter
	margin = 0.3 * vg.Centimeter
)

// Save writes a plot into a directory.
func Save(p *plot.Plot, dir, file string) error {
	canvas := vgsvg.New(width, height)
	frame(p, draw.New(canvas))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Where the font is missing, others of the same widths come next, so that labels stay beside
	// bars.
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Serif;"),
		[]byte("font-family:Liberation Serif,Times New Roman,Times,serif;"))
	return os.WriteFile(filepath.Join(dir, file), text, 0o644)
}

// frame draws a plot with a margin: gonum lets labels stand out of the canvas a little.
func frame(p *plot.Plot, c draw.Canvas) {
	p.BackgroundColor = color.White
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(9), vg.Points(2)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	p.Draw(draw.Crop(c, margin, -margin, margin, -margin))
}
