package main

import (
	"errors"
	"fmt"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/scale"
	"github.com/rocast/rocast/feedback"
)

// endless is more than a run brings.
const endless = 1 << 40

// errIdle says that a run ended in which something always has to be sent.
var errIdle = errors.New("nothing happens any more")

// until plays a network up to a simulated time.
func (s *session) until(n *scale.Net, at scale.Time) error {
	over, err := s.play(n, at)
	if over {
		return errIdle
	}
	return err
}

// drawnGroup makes a group of drawn hosts.
func (s *session) drawnGroup(n *scale.Net, c *scale.Config, receivers int) (*scale.Group, error) {
	source, others := s.members(c, receivers)
	return n.NewGroup(source, others, feedback.Policy{})
}

// goodputs returns the rates at which things get on, in bits per second.
func goodputs(c *scale.Config, before, after []int, span scale.Time) (rates []float64) {
	for i := range after {
		rates = append(rates, float64(after[i]-before[i])*float64(c.MTUBytes)*8/span.Seconds())
	}
	return rates
}

const (
	shareText  = "Cepheus, figure 14: f1 is a group of 15 receivers; f2 and f3 are flows on links of f1. Gb/s of payload, and Jain's index over the active flows."
	shareAfter = "As in the paper, the group gives way at once, and the two move towards equal shares. Here that takes tens of milliseconds, and so does the " +
		"return: the pace is DCQCN's step, 100 Mb/s for each 55 us. Cepheus shows a quicker return, without its parameters."
)

// share is figure 14 of Cepheus: a group of 15 receivers, then a flow to one of them, and later,
// when that has ended, a flow to another one.
func (s *session) share() error {
	c := s.cepheus()
	n, err := scale.New(c)
	if err != nil {
		return err
	}
	g, err := s.drawnGroup(n, &c, 15)
	if err != nil {
		return err
	}
	_, others := s.members(&c, 15)
	g.Send(n, endless)
	period := scale.Millisecond
	part := pick[scale.Time](s, 4, 20) * scale.Millisecond
	x := section{
		name: "share", title: "A group beside unicast flows that come and go",
		text: shareText, after: shareAfter,
		columns: []string{"ms", "f1 (group)", "f2", "f3", "Jain"},
		brief:   &brief{cells: []string{"20", "24", "36", "40", "60", "64", "80"}}, // around a change
		plot:    &plots.Curves{File: "scale-share.svg", X: "ms", Y: "Gb/s", Lines: []plots.Curve{{Name: "f1 (group)"}, {Name: "f2"}, {Name: "f3"}}},
	}
	var flows [2]scale.Flow
	delivered := func() []int {
		all := []int{g.Delivered(), 0, 0}
		for i := range flows {
			if !flows[i].IsZero() {
				all[1+i] = flows[i].Delivered()
			}
		}
		return all
	}
	var failed error
	for i, from := range []int{0, 2} { // N1 to N2, N3 to N4
		n.At(scale.Time(1+2*i)*part, func() {
			bytes := int64(float64(c.Rate/8) * part.Seconds() / 2)
			flows[i], err = n.Send(others[from], others[from+1], bytes)
			failed = errors.Join(failed, err)
		})
	}
	before := delivered()
	for at := period; at <= 4*part; at += period {
		if err := errors.Join(s.until(n, at), failed); err != nil {
			return err
		}
		after := delivered()
		rates := goodputs(&c, before, after, period)
		before = after
		active := []float64{rates[0]}
		for i := range flows {
			if after[1+i] > 0 && rates[1+i] > 0 {
				active = append(active, rates[1+i])
			}
			x.plot.Lines[1+i].Points = append(x.plot.Lines[1+i].Points, plotter.XY{X: at.Seconds() * 1e3, Y: rates[1+i] / giga})
		}
		x.plot.Lines[0].Points = append(x.plot.Lines[0].Points, plotter.XY{X: at.Seconds() * 1e3, Y: rates[0] / giga})
		if ms := int(at / scale.Millisecond); ms%pick(s, 1, 4) == 0 {
			x.rows = append(x.rows, []string{fmt.Sprint(ms), gigabits(rates[0]), gigabits(rates[1]), gigabits(rates[2]), fmt.Sprintf("%.3f", scale.Fairness(active))})
		}
	}
	s.sections = append(s.sections, x)
	return nil
}

func gigabits(rate float64) string { return fmt.Sprintf("%.1f", rate/giga) }

const (
	legsText = "MC-RDMA, figure 6, in the network of Cepheus: some receivers of a group share their links with a unicast flow each. " +
		"Each of three boxes on the way filters the notifications (`cnp: filter`), or lets all pass (`cnp: all`). Gb/s of payload."
	legsAfter = "MC-RDMA passes all notifications, and its group gets less with every congested leg (section IV-D, figure 6). With the filter it gets less too, " +
		"but far less so. *one switch* has the same hosts at a single switch: where it agrees, filters in a row cost nothing more."
)

// legs is figure 6 of MC-RDMA at the size of Cepheus: a group some of whose receivers share their
// links with flows.
func (s *session) legs() error {
	c := s.cepheus()
	x := section{
		name: "legs", title: "Congested legs",
		text: legsText, after: legsAfter,
		columns: []string{"receivers", "congested", "filter: group", "flows", "Jain", "all: group", "flows", "Jain", "filter, one switch: group", "flows", "Jain"},
		brief:   &brief{in: 0, cells: []string{"511"}},
		plot:    &plots.Curves{File: "scale-legs.svg", X: "congested legs", Y: "Gb/s of the group", LogX: true},
	}
	warmUp := pick[scale.Time](s, 3, 8) * scale.Millisecond
	counts := pick(s, []int{1, 8}, []int{1, 4, 32})
	single := s.config(scale.OneSwitch(c.Hosts()), c.Rate)
	for _, receivers := range pick(s, []int{63}, []int{63, 511}) {
		rows := map[int][]string{}
		for _, m := range []struct {
			name   string
			config scale.Config
			policy feedback.CNPPolicy
		}{{"cnp: filter", c, feedback.CNPFilter}, {"cnp: all", c, feedback.CNPAll}, {"cnp: filter, one switch", single, feedback.CNPFilter}} {
			line := plots.Curve{Name: fmt.Sprintf("%d receivers, %s", receivers, m.name)}
			for _, legs := range counts {
				rates, err := s.congested(m.config, receivers, legs, m.policy, warmUp)
				if err != nil {
					return err
				}
				mean := 0.0
				for _, r := range rates[1:] {
					mean += r / float64(legs)
				}
				rows[legs] = append(rows[legs], gigabits(rates[0]), gigabits(mean), fmt.Sprintf("%.3f", scale.Fairness(rates)))
				line.Points = append(line.Points, plotter.XY{X: float64(legs), Y: rates[0] / giga})
			}
			x.plot.Lines = append(x.plot.Lines, line)
		}
		for _, legs := range counts {
			x.rows = append(x.rows, append([]string{fmt.Sprint(receivers), fmt.Sprint(legs)}, rows[legs]...))
		}
	}
	s.sections = append(s.sections, x)
	return nil
}

// congested returns the rates of a group and of flows that share the links of its first receivers.
func (s *session) congested(c scale.Config, receivers, legs int, p feedback.CNPPolicy, warmUp scale.Time) ([]float64, error) {
	n, err := scale.New(c)
	if err != nil {
		return nil, err
	}
	source, others := s.members(&c, receivers+legs)
	g, err := n.NewGroup(source, others[:receivers], feedback.Policy{CNP: p})
	if err != nil {
		return nil, err
	}
	g.Send(n, endless)
	var flows []scale.Flow
	for i := range legs {
		f, err := n.Send(others[receivers+i], others[i], endless)
		if err != nil {
			return nil, err
		}
		flows = append(flows, f)
	}
	delivered := func() []int {
		all := []int{g.Delivered()}
		for _, f := range flows {
			all = append(all, f.Delivered())
		}
		return all
	}
	if err := s.until(n, warmUp); err != nil {
		return nil, err
	}
	before := delivered()
	if err := s.until(n, 2*warmUp); err != nil {
		return nil, err
	}
	return goodputs(&c, before, delivered(), warmUp), nil
}
