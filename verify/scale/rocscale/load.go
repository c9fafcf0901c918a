package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/plots"
	"github.com/rocast/rocast/verify/scale"
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

// load is unicast beside multicast: flows between random hosts, with a group of 512 and without.
func (s *session) load() error {
	bytes := pick[int64](s, 1, 16) * mega
	x := section{
		name: "load", title: "Unicast beside multicast",
		text: fmt.Sprintf("All 1,024 hosts send flows to random hosts, at random times (Poisson), of 8 KiB (half of them), 64 KiB (30 %%) and 1 MiB (20 %%), packet by packet. "+
			"A group brings %d MiB to 511 receivers meanwhile; *load* is the part of the hosts' links that the flows take. "+
			"A flow counts if it begins before the group has ended; FCTs in us.", bytes/mega),
		columns: []string{"load", "group's FCT", "8 KiB: p50", "p99", "without the group", "1 MiB: p50", "p99", "without the group", "dropped"},
		after: "*without the group* is the p99 of the same flows when no group sends. MC-RDMA's figure 8 has the same rise with the load; " +
			"it does not state its flows' latencies without multicast traffic.",
		plot: &plots.Curves{File: "scale-load.svg", X: "load of the unicast flows", Y: "us", LogY: true,
			Lines: []plots.Curve{{Name: "group, FCT"}, {Name: "8 KiB, p99"}, {Name: "1 MiB, p99"}, {Name: "8 KiB, p99, no group"}, {Name: "1 MiB, p99, no group"}}},
	}
	for _, load := range pick(s, []float64{0.3}, []float64{0.1, 0.2, 0.4, 0.6}) {
		with, err := s.loaded(load, bytes, true, 0)
		if err != nil {
			return err
		}
		without, err := s.loaded(load, bytes, false, with.until)
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

// loadedRun is what came of flows beside a group. Times are in microseconds.
type loadedRun struct {
	group   float64
	flows   map[int64][]float64 // by size
	dropped uint64
	until   scale.Time // when the last flow began
}

func (l *loadedRun) at(bytes int64, q float64) float64 {
	all := l.flows[bytes]
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
}

// loaded runs flows at a load, with a group or until a time.
func (s *session) loaded(load float64, bytes int64, grouped bool, until scale.Time) (l loadedRun, err error) {
	c := s.cepheus()
	c.Timeout = 10
	n, err := scale.New(c)
	if err != nil {
		return l, err
	}
	var g *scale.Group
	if grouped {
		source, others := s.members(&c, 511)
		if g, err = n.NewGroup(source, others, feedback.Policy{}); err != nil {
			return l, err
		}
		g.Send(n, bytes)
	}
	random := rand.New(rand.NewPCG(s.seed, 99))
	mean := meanFlow() * 8 / (load * float64(c.Rate) * float64(c.Hosts())) // seconds between two flows
	var flows []scale.Flow
	var failed error
	var next func()
	next = func() {
		if grouped && g.Arrived() > 0 || !grouped && n.Now() > until {
			return
		}
		l.until = n.Now()
		from, to := random.IntN(c.Hosts()), random.IntN(c.Hosts()-1)
		if to >= from {
			to++
		}
		f, err := n.Send(from, to, drawFlow(random))
		failed = errors.Join(failed, err)
		flows = append(flows, f)
		n.At(n.Now()+scale.Time(random.ExpFloat64()*mean*float64(scale.Second)), next)
	}
	next()
	if err := errors.Join(s.finish(n), failed); err != nil {
		return l, err
	}
	l.flows = map[int64][]float64{}
	for _, f := range flows {
		l.flows[f.Bytes()] = append(l.flows[f.Bytes()], micros(seconds(f)))
	}
	if grouped {
		l.group = micros(seconds(g))
	}
	l.dropped = n.Use().Dropped
	return l, nil
}
