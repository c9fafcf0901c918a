package report

import (
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// lossTable is one table for all rates, the methods one below the other.
func (r *Report) lossTable(b *strings.Builder) {
	if len(r.Loss) == 0 {
		return
	}
	b.WriteString("## What loss costs\n\n![goodput by loss](loss.svg)\n\n" +
		"Soft RDMA hosts in namespaces of their own send messages of 64 KiB to three receivers, 16 posted at a time, through rocastd with " +
		"`engine: auto`: over a group, and as programs do without multicast, on the same links. The receivers' links lose packets at random in both " +
		"directions; the source's timeout is 67 ms. *goodput* is relative to a group without loss. *p50* and *p99* are the times from the post of a message until " +
		"all receivers have it. *resent* is what the source sent again, for each packet of the messages. The hosts share CPUs with the box, " +
		"so what many sends cost them counts too. `docs/merging.md` has the same comparison in simulation, over links of 25 Gb/s.\n\n" +
		"| lost | | goodput | messages/s | p50, us | p99, us | resent |\n|---|---|---|---|---|---|---|\n")
	for i := range r.Loss {
		l := &r.Loss[i]
		fmt.Fprintf(b, "| %s | %s | %.3f | %.0f | %.0f | %.0f | %.4f |\n", lossRate(l.PerMillion), l.Method, l.Goodput,
			over(float64(l.Messages), l.Seconds), l.P50, l.P99, over(float64(l.Resent), float64(l.Packets)))
	}
	b.WriteString("\n")
}

// lossRate writes a rate in the way of docs/merging.md.
func lossRate(perMillion int) string {
	for n, text := range map[int]string{0: "0", 10: "10^-5", 100: "10^-4", 1000: "10^-3", 10_000: "10^-2"} {
		if n == perMillion {
			return text
		}
	}
	return fmt.Sprintf("%d of a million", perMillion)
}

// lossPlot draws one bar for each method and rate.
func (r *Report) lossPlot() (*plot.Plot, error) {
	var methods []string
	var rates []int
	for i := range r.Loss {
		if l := &r.Loss[i]; !slices.Contains(methods, l.Method) {
			methods = append(methods, l.Method)
		}
		if l := &r.Loss[i]; !slices.Contains(rates, l.PerMillion) {
			rates = append(rates, l.PerMillion)
		}
	}
	slices.Reverse(methods) // the first one on top
	var sets []barSet
	for _, rate := range rates {
		set := barSet{name: "lost: " + lossRate(rate), values: make(plotter.Values, len(methods))}
		for i := range r.Loss {
			if l := &r.Loss[i]; l.PerMillion == rate {
				set.values[slices.Index(methods, l.Method)] = l.Goodput
			}
		}
		sets = append(sets, set)
	}
	return barPlot("goodput; 1 is a group without loss", methods, sets)
}
