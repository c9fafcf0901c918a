package main

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/scale"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// lossy is a transfer over links that lose packets.
type lossy struct {
	network   string
	config    func(*session) scale.Config
	receivers int
	bytes     int64
}

// Exponents of the requesters' timeouts: 67 ms and 1 ms.
const (
	patient   = 14
	impatient = 8
)

// lossMethods are the ways that are compared. timeout is the exponent of the requester's.
var lossMethods = []lossMethod{
	{"group, `hold`, 67 ms", feedback.Policy{}, patient, nil},
	{"group, `hold`, 1 ms", feedback.Policy{}, impatient, nil},
	{"group, `repair: local`, 67 ms", feedback.Policy{Repair: feedback.RepairLocal}, patient, nil},
	{"chain, 1 ms", feedback.Policy{}, impatient, &chain},
}

type lossMethod struct {
	name    string
	policy  feedback.Policy
	timeout uint8
	relayed *relayed // nil: a group
}

// loss is figure 13 of Cepheus and figure 16 of Gleam: what random loss costs.
func (s *session) loss() error {
	for i, t := range []lossy{
		{"1,024 hosts, 100 Gb/s", (*session).cepheus, 63, pick[int64](s, 8, 128) * mega},
		{"1,024 hosts, 100 Gb/s", (*session).cepheus, 511, pick[int64](s, 4, 32) * mega},
		{"16,384 hosts, 200 Gb/s", (*session).gleam, 63, pick[int64](s, 8, 128) * mega},
		{"16,384 hosts, 200 Gb/s", (*session).gleam, 511, pick[int64](s, 4, 32) * mega},
	} {
		x, err := s.losses(&t)
		if err != nil {
			return err
		}
		x.inPart(i)
		s.sections = append(s.sections, x)
	}
	return nil
}

// Texts of the sections about loss.
const (
	lossText  = "%d MiB. In a timeout of 67 ms a link carries %d packets, and in one of 1 ms %d."
	lossFirst = "Cepheus, figure 13, and Gleam, figure 16: links between switches lose packets at random. *goodput* is relative to the same without loss; *resent* " +
		"is for each packet of the transfer. The time is the requesters' timeout; where nothing times out, 1 ms is as 67 ms and is left out. "
	lossDifferences = "Gleam states that goodput falls by 10 % at most up to 10^-4 and to 42 % at 10^-3, without sizes and trees. Here 10^-4 on each link means " +
		"that about one packet in a hundred misses some receiver of 512, and each time the source goes back. A receiver says once what it lacks, so a packet that is " +
		"lost twice costs a timeout. RNICs that repeat their NAKs would not show that."
)

// inPart explains the first of the sections about loss, and chooses what the report shows of the
// i-th one: the losses that cost something, of the large group in the smaller network. Of the
// others it shows the plot.
func (x *section) inPart(i int) {
	if i == 0 {
		x.text, x.after = lossFirst+x.text, lossDifferences
	}
	x.brief = &brief{columns: []string{"lost", "", "goodput", "timeouts", "resent by hosts", "resent by boxes"}}
	if i == 1 {
		x.brief.cells = []string{"10^-5", "10^-4", "10^-3"}
	}
}

// lossTextOf says how much is sent, and how long the timeouts are beside a packet.
func lossTextOf(c scale.Config, bytes int64) string {
	packets := func(timeout uint8) int { return rnic.PacketsIn(rnic.AckTimeout(timeout), c.MTUBytes, c.Rate) }
	return fmt.Sprintf(lossText, bytes/mega, packets(patient), packets(impatient))
}

func (s *session) losses(t *lossy) (x section, err error) {
	x = section{
		title:   fmt.Sprintf("Loss: group of %d, %s", t.receivers+1, t.network),
		columns: []string{"lost", "", "FCT, ms", "goodput", "timeouts", "resent by hosts", "resent by boxes"},
		plot:    &plots.Curves{X: "packets lost on each link between switches", Y: "goodput; 1 is without loss", LogX: true},
	}
	c := t.config(s)
	x.text = lossTextOf(c, t.bytes)
	x.name = fmt.Sprintf("loss-%d-%d", c.Hosts(), t.receivers+1)
	x.plot.File = "scale-" + x.name + ".svg"
	late := map[float64]bool{} // rates at which something times out
	for i := range lossMethods {
		m := &lossMethods[i]
		line, clean := plots.Curve{Name: strings.ReplaceAll(m.name, "`", "")}, lossResult{}
		for _, rate := range pick(s, []float64{0, 1e-5, 1e-4, 1e-3}, []float64{0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3}) {
			if m.relayed != nil && rate > 0 && rate < 1e-5 || m.impatient() && rate > 0 && !late[rate] {
				continue
			}
			c.Loss, c.Timeout = rate, m.timeout
			l, err := s.lossOf(c, m, t)
			if err != nil {
				return x, err
			}
			late[rate] = late[rate] || l.timeouts > 0
			if rate == 0 {
				clean = l
			} else {
				line.Points = append(line.Points, plotter.XY{X: rate, Y: clean.took / l.took})
			}
			if rate > 0 || !m.impatient() {
				x.rows = append(x.rows, l.row(rate, m, clean.took, float64(t.bytes)/float64(c.MTUBytes)))
			}
		}
		if len(line.Points) > 0 {
			x.plot.Lines = append(x.plot.Lines, line)
		}
	}
	x.plot.Lines = append(x.plot.Lines, plots.Curve{Name: "Gleam, as stated", Quoted: true, Points: plotter.XYs{{X: 1e-4, Y: 0.9}, {X: 1e-3, Y: 0.42}}})
	return x, nil
}

// impatient reports whether a method differs from the first one only by its timeout.
func (m *lossMethod) impatient() bool { return m.relayed == nil && m.timeout != lossMethods[0].timeout }

// lossResult is what one transfer cost.
type lossResult struct {
	took                   float64 // seconds
	timeouts, hosts, boxes uint64
}

func (l *lossResult) row(rate float64, m *lossMethod, clean, packets float64) []string {
	return []string{
		lossRate(rate), m.name, fmt.Sprintf("%.3f", l.took*1e3), fmt.Sprintf("%.3f", clean/l.took), fmt.Sprint(l.timeouts),
		fmt.Sprintf("%.4f", float64(l.hosts)/packets), fmt.Sprintf("%.4f", float64(l.boxes)/packets),
	}
}

func (s *session) lossOf(c scale.Config, m *lossMethod, t *lossy) (l lossResult, err error) {
	if m.relayed != nil {
		_, r, err := s.relay(c, m.relayed, t.receivers, t.bytes)
		if err != nil {
			return l, err
		}
		return lossResult{seconds(r), r.Timeouts(), r.Resent(), 0}, nil
	}
	_, g, err := s.multicast(c, m.policy, t.receivers, t.bytes)
	if err != nil {
		return l, err
	}
	l.took, l.timeouts = seconds(g), g.Timeouts()
	l.hosts, l.boxes = g.Resent()
	return l, nil
}

func lossRate(rate float64) string {
	if rate == 0 {
		return "0"
	}
	return fmt.Sprintf("10^%d", int(math.Round(math.Log10(rate))))
}
