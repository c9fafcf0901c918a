package report

import (
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/rocast/rocast/bench/plots"
)

const perCPULabel = "thousand copies for each CPU-second of the switch"

// drawing is a plot and the file it goes to.
type drawing struct {
	file string
	draw func() (*plot.Plot, error)
}

func (d drawing) save(dir string) error {
	p, err := d.draw()
	if err != nil {
		return err
	}
	return plots.Save(p, dir, d.file)
}

// plots returns the plots for which there are figures.
func (r *Report) plots() (all []drawing) {
	if rows := r.section(SectionMain); len(rows) > 0 {
		all = append(all, drawing{"throughput.svg", func() (*plot.Plot, error) { return r.bars(rows) }})
	}
	for _, w := range sweeps {
		if r.drawable(w) {
			all = append(all, drawing{w.file, func() (*plot.Plot, error) { return linePlot(w.label, r.series(w)) }})
		}
	}
	if rows := r.usualLatencies(); len(rows) > 0 {
		all = append(all, drawing{"latency.svg", func() (*plot.Plot, error) { return r.latencyPlot(rows) }})
	}
	return all
}

// bars draws one bar for each contestant and row.
func (r *Report) bars(rows []*Row) (*plot.Plot, error) {
	names := r.peerNames()
	slices.Reverse(names) // the first one on top
	var sets []barSet
	for _, row := range rows {
		set := barSet{name: row.Setting.String(), values: make(plotter.Values, len(names))}
		for k, name := range names {
			if c := row.Find(name); c != nil {
				set.values[k] = c.PerCPU.Median
			}
		}
		sets = append(sets, set)
	}
	return barPlot(perCPULabel, names, sets)
}

// barSet is the bars of one colour: one for each name of the plot.
type barSet struct {
	name   string
	values plotter.Values
}

// barPlot draws bars beside names, the last name on top.
func barPlot(label string, names []string, sets []barSet) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.X.Min = label, 0
	p.Legend.Top = true
	thick := min(9, 36/float64(len(sets)))
	for i, set := range sets {
		bars, err := plotter.NewBarChart(set.values, vg.Points(thick))
		if err != nil {
			return nil, err
		}
		bars.Horizontal, bars.LineStyle.Width, bars.Color = true, 0, plotutil.Color(i)
		bars.Offset = vg.Points(thick * (float64(len(sets)-1)/2 - float64(i)))
		p.Add(bars)
		p.Legend.Add(set.name, bars)
	}
	nominalY(p, names)
	p.X.Max *= 1.35 // room for the legend
	return p, nil
}

func nominalY(p *plot.Plot, names []string) {
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
}

func (r *Report) peerNames() (names []string) {
	for _, p := range r.Peers {
		names = append(names, p.Name)
	}
	return names
}

// series is one line of a plot.
type series struct {
	name   string
	points plotter.XYs // by X
}

// series collects the medians of each contestant and pattern over the number in which the settings
// differ.
func (r *Report) series(w sweep) (all []series) {
	for _, name := range r.peerNames() {
		for _, pattern := range []string{"", "hot", "random"} {
			s := series{name: name}
			if pattern != "" {
				s.name += ", " + pattern
			}
			for _, row := range r.rowsOf(w) {
				if c := row.Find(name); c != nil && len(c.Samples) > 0 && row.Pattern == pattern {
					s.points = append(s.points, plotter.XY{X: float64(w.varies(row.Setting)), Y: c.PerCPU.Median})
				}
			}
			if len(s.points) > 0 {
				all = append(all, s)
			}
		}
	}
	return all
}

// linePlot draws lines over a logarithmic axis, with a mark at each figure.
func linePlot(label string, all []series) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = label, perCPULabel, 0
	p.X.Scale = plot.LogScale{}
	p.Legend.Top, p.Legend.Left = true, false
	var ticks []plot.Tick
	for i, s := range all {
		line, points, err := plotter.NewLinePoints(s.points)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color = plotutil.Color(i), plotutil.Color(i)
		line.Dashes, points.Shape = plotutil.Dashes(i/7), plotutil.Shape(i)
		p.Add(line, points)
		p.Legend.Add(s.name, line, points)
		for _, xy := range s.points {
			if t := (plot.Tick{Value: xy.X, Label: strconv.Itoa(int(xy.X))}); !slices.Contains(ticks, t) {
				ticks = append(ticks, t)
			}
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Max *= 4 // room for the legend
	return p, nil
}

// usualLatencies returns the latencies of the usual payload with the shortest pause, which is
// first.
func (r *Report) usualLatencies() []*Latency {
	for i := range r.Latency {
		if l := &r.Latency[i]; l.Payload == usualPayload {
			return r.latencies(usualPayload, l.Pause)
		}
	}
	return nil
}

func (r *Report) latencies(payload, pause int) (rows []*Latency) {
	for i := range r.Latency {
		if l := &r.Latency[i]; l.Payload == payload && l.Pause == pause && len(l.Rounds) > 0 {
			rows = append(rows, l)
		}
	}
	return rows
}

// latencyPlot draws the quantiles of each contestant as points on one line.
func (r *Report) latencyPlot(rows []*Latency) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text = "microseconds from the source to the last receiver"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top = true
	rows = slices.Clone(rows)
	slices.Reverse(rows)
	var names []string
	for _, l := range rows {
		names = append(names, l.Peer)
	}
	for i, q := range []struct {
		name string
		of   func(LatencyQuantile) float64
	}{
		{"p50", func(q LatencyQuantile) float64 { return q.P50 }},
		{"p90", func(q LatencyQuantile) float64 { return q.P90 }},
		{"p99", func(q LatencyQuantile) float64 { return q.P99 }},
		{"p99.9", func(q LatencyQuantile) float64 { return q.P999 }},
	} {
		var points plotter.XYs
		for y, l := range rows {
			points = append(points, plotter.XY{X: q.of(l.Medians), Y: float64(y)})
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		scatter.Color, scatter.Shape, scatter.Radius = plotutil.Color(i), plotutil.Shape(i), vg.Points(4)
		p.Add(scatter)
		p.Legend.Add(q.name, scatter)
	}
	nominalY(p, names)
	p.X.Max *= 3
	return p, nil
}
