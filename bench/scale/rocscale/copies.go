package main

import (
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/scale"
	"github.com/rocast/rocast/feedback"
)

const copiesAfter = "A group crosses each link of its tree once, and no tree has fewer links. A chain needs twice as many."

// copies is how often a packet crosses links.
func (s *session) copies() error {
	x := section{
		name: "copies", title: "Copies per link",
		text:    "How often a packet crosses links until all receivers have it, without loss: in all, and on the busiest link.",
		columns: []string{"network", "receivers", "", "links crossed by a packet", "links used", "copies on the busiest link"},
		after:   copiesAfter, brief: &brief{in: 1, cells: []string{"511"}},
	}
	const bytes = 64 * kilo
	for _, t := range []lossy{
		{"1,024", (*session).cepheus, 63, bytes}, {"1,024", (*session).cepheus, 511, bytes},
		{"16,384", (*session).gleam, 63, bytes}, {"16,384", (*session).gleam, 511, bytes},
	} {
		c := t.config(s)
		packets := float64(t.bytes) / float64(c.MTUBytes)
		row := func(name string, n *scale.Net) {
			u := n.Use()
			x.rows = append(x.rows, []string{t.network, fmt.Sprint(t.receivers), name, fmt.Sprintf("%.1f", float64(u.Traversals)/packets),
				fmt.Sprint(u.Links), fmt.Sprintf("%.1f", float64(u.Busiest)/packets)})
		}
		n, _, err := s.multicast(c, feedback.Policy{}, t.receivers, t.bytes)
		if err != nil {
			return err
		}
		row("group", n)
		for _, m := range []*relayed{&chain, &binomial, &unicasts} {
			n, _, err := s.relay(c, m, t.receivers, t.bytes)
			if err != nil {
				return err
			}
			row(m.name, n)
		}
	}
	s.sections = append(s.sections, x)
	return nil
}

const (
	panelsText = "Gleam, figure 14: N groups of N hosts each send at one time, in the network of 16,384 hosts, along the rows or columns of an N*N matrix, as HPL " +
		"does. %d MiB each; the hosts of a row are consecutive. Each box gives a new group to the neighbour with the fewest groups (Gleam, appendix A)."
	panelsAfter = "Gleam states 5.17 ms at 8*8 and at 128*128, and 13.7 and 19.4 ms for HPL's own algorithms, ring and long. It does not state how many bytes, so " +
		"the plot shows how the times grow. Here further switches add less than 1 %."
)

// panels is the broadcast of figure 14 of Gleam: N groups of N hosts send at one time, as the rows
// and then the columns of a matrix of processes do in HPL.
func (s *session) panels() error {
	bytes := pick[int64](s, 1, 4) * mega
	x := section{
		name: "panels", title: "Many groups at one time",
		text:    fmt.Sprintf(panelsText, bytes/mega),
		columns: []string{"N*N", "", "slowest group, us", "fastest, us", "groups on the busiest link between switches", "marked", "dropped"},
		after:   panelsAfter,
		brief:   &brief{in: 0, cells: []string{"8*8", "128*128"}},
		plot: &plots.Curves{File: "scale-panels.svg", X: "N", Y: "time until all have everything; 1 is 8*8", LogX: true,
			Lines: []plots.Curve{{Name: "rows"}, {Name: "columns"}}},
	}
	var smallest [2]float64
	for _, size := range pick(s, []int{8, 16, 32}, []int{8, 16, 32, 64, 128}) {
		for i, name := range []string{"rows", "columns"} {
			p, err := s.panel(size, i == 1, bytes)
			if err != nil {
				return err
			}
			x.rows = append(x.rows, []string{fmt.Sprintf("%d*%d", size, size), name, fmt.Sprintf("%.1f", micros(p.slowest)),
				fmt.Sprintf("%.1f", micros(p.fastest)), fmt.Sprint(p.shared), fmt.Sprint(p.use.Marked), fmt.Sprint(p.use.Dropped)})
			if smallest[i] == 0 {
				smallest[i] = p.slowest
			}
			x.plot.Lines[i].Points = append(x.plot.Lines[i].Points, plotter.XY{X: float64(size), Y: p.slowest / smallest[i]})
		}
	}
	x.plot.Lines = append(x.plot.Lines,
		plots.Curve{Name: "Gleam, as stated", Quoted: true, Points: plotter.XYs{{X: 8, Y: 1}, {X: 128, Y: 1}}},
		plots.Curve{Name: "ring and long, as Gleam states", Quoted: true, Points: plotter.XYs{{X: 8, Y: 1}, {X: 128, Y: 19.4 / 13.7}}})
	s.sections = append(s.sections, x)
	return nil
}

// panel is what came of the groups of all rows, or of all columns.
type panel struct {
	slowest, fastest float64 // seconds
	shared           int
	use              scale.Use
}

func (s *session) panel(size int, columns bool, bytes int64) (p panel, err error) {
	n, err := scale.New(s.gleam())
	if err != nil {
		return p, err
	}
	var groups []*scale.Group
	for row := range size {
		var hosts []int
		for k := range size {
			if columns {
				hosts = append(hosts, k*size+row)
			} else {
				hosts = append(hosts, row*size+k)
			}
		}
		g, err := n.NewGroup(hosts[0], hosts[1:], feedback.Policy{})
		if err != nil {
			return p, err
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		g.Send(n, bytes)
	}
	if err := s.finish(n); err != nil {
		return p, err
	}
	p.slowest, p.fastest = seconds(groups[0]), seconds(groups[0])
	for _, g := range groups {
		p.slowest, p.fastest = max(p.slowest, seconds(g)), min(p.fastest, seconds(g))
	}
	p.shared, p.use = n.BusiestGroups(), n.Use()
	return p, nil
}

// Bytes of a group, and of each of its paths, that a box needs to handle packets: the line through
// the measured figures of docs/evaluation.md#memory for 3 and 64 receivers.
const (
	pathBytes  = (22_609 - 2_728) / (64 - 3)
	groupBytes = 2_728 - 3*pathBytes
)

const stateAfter = "A box has state only of groups whose tree it is in, and at most one path for each of its ports."

// state is what the boxes have to know of many groups.
func (s *session) state() error {
	groups := pick(s, 50, 300)
	x := section{
		name: "state", title: "State of a box",
		text: fmt.Sprintf("%d groups of random hosts: how many of them the boxes of a layer know, and with how many paths, each a receiver or a box below. The groups shown have 511 receivers. "+
			"Memory follows from docs/evaluation.md#memory: %d bytes a group and %d a path.", groups, groupBytes, pathBytes),
		columns: []string{"network", "receivers", "layer", "boxes with groups", "groups: mean", "most", "paths: mean", "most", "most memory, MB"},
		after:   stateAfter,
		brief:   &brief{in: 1, cells: []string{"511"}, columns: []string{"network", "layer", "boxes with groups", "groups: mean", "paths: mean", "most memory, MB"}},
	}
	for _, t := range []lossy{
		{"1,024", (*session).cepheus, 63, 0}, {"1,024", (*session).cepheus, 511, 0}, {"16,384", (*session).gleam, 63, 0}, {"16,384", (*session).gleam, 511, 0},
	} {
		n, err := scale.New(t.config(s))
		if err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(s.seed, 5))
		for range groups {
			drawn := random.Perm(n.Hosts())
			if _, err := n.NewGroup(drawn[0], drawn[1:1+t.receivers], feedback.Policy{}); err != nil {
				return err
			}
		}
		all := n.State()
		for _, layer := range []string{"edge", "aggregation", "core"} {
			boxes, known, paths, mostGroups, mostPaths, memory := 0, 0, 0, 0, 0, 0
			for _, b := range all {
				if b.Layer == layer {
					boxes, known, paths = boxes+1, known+b.Groups, paths+b.Paths
					mostGroups, mostPaths = max(mostGroups, b.Groups), max(mostPaths, b.Paths)
					memory = max(memory, b.Groups*groupBytes+b.Paths*pathBytes)
				}
			}
			x.rows = append(x.rows, []string{t.network, fmt.Sprint(t.receivers), layer, fmt.Sprint(boxes), fmt.Sprintf("%.1f", float64(known)/float64(boxes)),
				fmt.Sprint(mostGroups), fmt.Sprintf("%.1f", float64(paths)/float64(boxes)), fmt.Sprint(mostPaths), fmt.Sprintf("%.2f", float64(memory)/1e6)})
		}
	}
	s.sections = append(s.sections, x)
	return nil
}
