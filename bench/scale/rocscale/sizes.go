package main

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/feedback"
)

// sizes is figure 12 of Cepheus: how long a transfer to 512 of 1,024 hosts takes, by size.
func (s *session) sizes() error {
	return s.sizesOf(pick(s, []int64{64, 4 * kilo, 64 * kilo, mega}, []int64{64, 4 * kilo, 64 * kilo, mega, 4 * mega, 16 * mega, 64 * mega}))
}

const (
	sizesText  = "Cepheus, figure 12. From the first host to the 511 next ones; the chain has slices of 64 KiB."
	sizesAfter = "With short flows Cepheus is at most 164 times as fast as the chain and 4.5 times as fast as the tree; with long ones 2.1 and 8.9 times. It " +
		"states no sizes, so these are levels in the plot. Most of a chain's 511 hops stay at one switch, and hosts pass messages on in no time. A tree sends " +
		"everything log2(512) = 9 times. Up to 256 hosts send at one time over random ways (ECMP), and DCQCN slows flows that meet."
)

func (s *session) sizesOf(all []int64) error {
	c := s.cepheus()
	var others []int
	for h := 1; h < 512; h++ {
		others = append(others, h)
	}
	x := section{
		name: "sizes", title: "Completion by size: 512 of 1,024 hosts",
		text: sizesText, after: sizesAfter,
		columns: []string{"bytes", "group, us", "chain, us", "tree, us", "chain / group", "tree / group"},
		plot: &plots.Curves{File: "scale-sizes.svg", X: "bytes", Y: "completion; 1 is the group", LogX: true, LogY: true,
			Lines: []plots.Curve{{Name: "chain"}, {Name: "binomial tree"}}},
	}
	for _, bytes := range all {
		_, g, err := s.multicastTo(c, feedback.Policy{}, 0, others, bytes)
		if err != nil {
			return err
		}
		took := []float64{seconds(g)}
		for _, m := range []*relayed{&chain, &binomial} {
			_, r, err := s.relayTo(c, m, 0, others, bytes)
			if err != nil {
				return err
			}
			took = append(took, seconds(r))
		}
		x.rows = append(x.rows, []string{
			fmt.Sprint(bytes), fmt.Sprintf("%.1f", micros(took[0])), fmt.Sprintf("%.1f", micros(took[1])), fmt.Sprintf("%.1f", micros(took[2])),
			fmt.Sprintf("%.1f", took[1]/took[0]), fmt.Sprintf("%.1f", took[2]/took[0]),
		})
		for i := range x.plot.Lines {
			l := &x.plot.Lines[i]
			l.Points = append(l.Points, plotter.XY{X: float64(bytes), Y: took[1+i] / took[0]})
		}
	}
	x.plot.Lines = append(x.plot.Lines, cepheusAtMost(all)...)
	s.sections = append(s.sections, x)
	return nil
}

// cepheusAtMost returns what Cepheus states for its figure 12. A maximum belongs to no size, so it
// is a level over all of them.
func cepheusAtMost(sizes []int64) (lines []plots.Curve) {
	for _, stated := range []struct {
		what  string
		ratio float64
	}{{"chain, short flows", 164}, {"chain, long flows", 2.1}, {"tree, short flows", 4.5}, {"tree, long flows", 8.9}} {
		lines = append(lines, plots.Curve{Name: fmt.Sprintf("Cepheus, %s: at most %v", stated.what, stated.ratio), Quoted: true, Level: true,
			Points: plotter.XYs{{X: float64(slices.Min(sizes)), Y: stated.ratio}, {X: float64(slices.Max(sizes)), Y: stated.ratio}}})
	}
	return lines
}
