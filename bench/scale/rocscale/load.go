package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/scale"
)

// The sizes of the flows beside a group, each with its part of all flows: many short ones, and most
// bytes in a few long ones, as in the workloads of MC-RDMA.
var flowSizes = []struct {
	part  float64
	bytes int64
}{{0.5, 8 * kilo}, {0.3, 64 * kilo}, {0.2, mega}}

func meanFlow() (bytes float64) {
	for _, f := range flowSizes {
		bytes += f.part * float64(f.bytes)
	}
	return bytes
}

func drawFlow(r *rand.Rand) int64 {
	x := r.Float64()
	for _, f := range flowSizes {
		if x -= f.part; x < 0 {
			return f.bytes
		}
	}
	return flowSizes[len(flowSizes)-1].bytes
}

const loadAfter = "A group has the rate of its most congested receiver, and of 511 links one is always shared with several flows. No filter of notifications " +
	"removes that. The papers show no group of hundreds under load."

// load is unicast beside multicast: flows between random hosts, with a group of 512 and without.
func (s *session) load() error {
	span := pick[scale.Time](s, 500, 2000) * scale.Microsecond
	x := section{
		name: "load", title: "Unicast beside multicast",
		text: fmt.Sprintf("For %.1f ms all 1,024 hosts begin flows to random hosts at random times (Poisson): half have 8 KiB, 30 %% have 64 KiB and 20 %% have 1 MiB. "+
			"A group sends to 511 receivers; its goodput is of the last three quarters. *load* is the flows' part of the hosts' links. "+
			"Times until a flow has arrived, in us.", span.Seconds()*1e3),
		columns: []string{"load", "group, Gb/s", "8 KiB: p50", "p99", "p99 without the group", "1 MiB: p50", "p99", "p99 without the group", "dropped"},
		after:   loadAfter,
		plot: &plots.Curves{File: "scale-load.svg", X: "load of the unicast flows", Y: "us; group: Gb/s", LogY: true,
			Lines: []plots.Curve{{Name: "group, Gb/s"}, {Name: "8 KiB, p99"}, {Name: "1 MiB, p99"}, {Name: "8 KiB, p99, no group"}, {Name: "1 MiB, p99, no group"}}},
	}
	for _, load := range pick(s, []float64{0.1, 0.3}, []float64{0.05, 0.1, 0.2, 0.4, 0.6}) {
		with, err := s.loaded(load, span, true)
		if err != nil {
			return err
		}
		without, err := s.loaded(load, span, false)
		if err != nil {
			return err
		}
		values := []float64{with.group, with.at(8*kilo, 0.99), with.at(mega, 0.99), without.at(8*kilo, 0.99), without.at(mega, 0.99)}
		for i, v := range values {
			x.plot.Lines[i].Points = append(x.plot.Lines[i].Points, plotter.XY{X: load, Y: v})
		}
		us := func(v float64) string { return fmt.Sprintf("%.1f", v) }
		x.rows = append(x.rows, []string{
			fmt.Sprint(load), us(with.group), us(with.at(8*kilo, 0.5)), us(values[1]), us(values[3]),
			us(with.at(mega, 0.5)), us(values[2]), us(values[4]), fmt.Sprint(with.dropped),
		})
	}
	s.sections = append(s.sections, x)
	return nil
}

// loadedRun is what came of flows beside a group.
type loadedRun struct {
	group   float64             // Gb/s
	flows   map[int64][]float64 // microseconds, by size
	dropped uint64
}

func (l *loadedRun) at(bytes int64, q float64) float64 {
	all := l.flows[bytes]
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
}

// loaded begins flows at a load for a time, with a group or without, and waits for the flows.
func (s *session) loaded(load float64, span scale.Time, grouped bool) (l loadedRun, err error) {
	c := s.cepheus()
	c.Timeout = 10
	n, err := scale.New(c)
	if err != nil {
		return l, err
	}
	g, err := s.drawnGroup(n, &c, 511)
	if err != nil {
		return l, err
	}
	if grouped {
		g.Send(n, endless)
	}
	random := rand.New(rand.NewPCG(s.seed, 99))
	mean := meanFlow() * 8 / (load * float64(c.Rate) * float64(c.Hosts())) // seconds between two flows
	var flows []scale.Flow
	var failed error
	var next func()
	next = func() {
		if n.Now() >= span {
			return
		}
		from, to := random.IntN(c.Hosts()), random.IntN(c.Hosts()-1)
		if to >= from {
			to++
		}
		f, err := n.Send(from, to, drawFlow(random))
		failed = errors.Join(failed, err)
		flows = append(flows, f)
		n.At(n.Now()+scale.Time(random.ExpFloat64()*mean*float64(scale.Second)), next)
	}
	n.At(0, next)
	if _, err := s.play(n, span/4); err != nil {
		return l, err
	}
	before := g.Delivered()
	if _, err := s.play(n, span); err != nil {
		return l, err
	}
	l.group = goodputs(&c, []int{before}, []int{g.Delivered()}, span-span/4)[0] / giga
	missing := func(f scale.Flow) bool { return f.Arrived() == 0 }
	for at := span; slices.ContainsFunc(flows, missing) && at < patience; at += 100 * scale.Microsecond {
		if _, err := s.play(n, at); err != nil {
			return l, err
		}
	}
	l.flows = map[int64][]float64{}
	for _, f := range flows {
		l.flows[f.Bytes()] = append(l.flows[f.Bytes()], micros(seconds(f)))
	}
	l.dropped = n.Use().Dropped
	return l, failed
}
