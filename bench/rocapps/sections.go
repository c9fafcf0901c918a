package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/internal/rnic"
)

// plan is how much a form measures.
type plan struct {
	rounds        int           // of the IOPS
	span          time.Duration // of a way in a round
	latency       time.Duration // of a way and a size
	latencySizes  []int
	broadcast     time.Duration // of a way and a size
	broadcastSize []int
	linkSizes     []int // of broadcasts over links of several rates, ascending
	linkRounds    int   // of these
	rates         []int // packets lost of a million
	loss          time.Duration
	stickRate     int   // bits per second, for which nine soft NICs have the CPU
	stickSizes    []int // ascending
	copyLayouts   []copyLayout
	copyLosses    []int // packets lost of a million
	fileSets      []fileSet
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

func fullForm() plan {
	return plan{
		rounds: 5, span: 2 * time.Second,
		latency: 1500 * time.Millisecond, latencySizes: []int{64, 512, 4 * kib, 8 * kib, 64 * kib, 512 * kib},
		broadcast: 700 * time.Millisecond, broadcastSize: []int{64, kib, 4 * kib, 32 * kib, 256 * kib, 2 * mib, 16 * mib, 64 * mib},
		linkSizes: []int{4 * kib, 16 * mib}, linkRounds: 3,
		rates: []int{0, 61, 244, 977, 3906}, loss: 2 * time.Second,
		stickRate: 40_000_000, stickSizes: []int{4 * kib, 64 * kib, mib, 4 * mib},
		copyLayouts: []copyLayout{{1, 100_000_000, 1, 3}, {3, 100_000_000, 3, 3}, {8, 40_000_000, 1, 3}, {16, 20_000_000, 1, 1}},
		copyLosses:  []int{0, 100, 10_000}, fileSets: []fileSet{{"one of 16 MiB", 1, 16 * mib}, {"1000 of 4 KiB", 1000, smallFile}},
	}
}

func shortForm() plan {
	return plan{
		rounds: 3, span: 700 * time.Millisecond,
		latency: 300 * time.Millisecond, latencySizes: []int{64, 8 * kib, 512 * kib},
		broadcast: 300 * time.Millisecond, broadcastSize: []int{64, 4 * kib, 64 * kib, mib, 4 * mib},
		linkSizes: []int{4 * kib, mib}, linkRounds: 2,
		rates: []int{0, 977, 3906}, loss: 800 * time.Millisecond,
		stickRate: 40_000_000, stickSizes: []int{4 * kib, 64 * kib, mib},
		copyLayouts: []copyLayout{{3, 100_000_000, 1, 2}},
		copyLosses:  []int{0, 10_000}, fileSets: []fileSet{{"one of 4 MiB", 1, 4 * mib}, {"200 of 4 KiB", 200, smallFile}},
	}
}

// Limits of a figure that can be trusted, and of what is promised.
const (
	busyShare    = 0.8  // of a CPU: beyond it, the CPU and not the link may be the limit
	fullShare    = 0.95 // of a link: beyond it, the link is the limit, and not a box that spins
	latencyOfOne = 1.1  // of the latency of one unicast: beyond it, a group is behind the papers
	ofOneUnicast = 0.98 // what a group of 3 reaches at least
	byteRate     = 8    // bits
	drain        = 30 * time.Second
	iopsBytes    = 8 * kib
	iopsPosted   = 32
	lossBytes    = 64 * kib
	lossPosted   = 16
	fairFrom     = 4 * kib  // the size from which on a group has to be faster than all trees and chains
	enough       = 3        // repetitions of a broadcast or an IO, at least
	once         = 32 * mib // a broadcast of that size is not repeated
)

// Titles of sections.
const (
	titleIOPS      = "(a) 8 KiB WRITEs"
	titleCost      = "(f) What the source pays"
	titleLatency   = "(b) One IO at a time"
	titleBroadcast = "(c) Broadcast"
	titleLoss      = "(e) Loss"
	titleStick     = "(h) Broadcast behind one port"
)

var loadColumns = []string{"source CPU", "receivers' CPU", "box CPU", "busiest CPU", "source's link", "limit"}

// cells are the columns of loadColumns.
func (l *load) cells() []string {
	return []string{percent(l.source), percent(l.receivers), percent(l.box), percent(l.busiest), percent(l.link), l.mark()}
}

// mark says what the limit was, if it may not have been the link. How much of its time a thread
// that spins has worked cannot be seen: while the link is full it is not the limit.
func (l *load) mark() string {
	switch {
	case l.busiest > busyShare:
		return "**CPU**"
	case l.spinner > busyShare && l.link < fullShare:
		return "**box**"
	}
	return ""
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// rounds are the figures of a way over all rounds.
type rounds []sample

// median returns the median of a figure.
func (r rounds) median(figure func(*sample) float64) float64 {
	var all []float64
	for i := range r {
		all = append(all, figure(&r[i]))
	}
	return report.Median(all)
}

// load is the mean load.
func (r rounds) load() (sum load) {
	n := float64(len(r))
	for i := range r {
		l := &r[i].load
		sum.source += l.source / n
		sum.receivers += l.receivers / n
		sum.box += l.box / n
		sum.busiest = max(sum.busiest, l.busiest)
		sum.link += l.link / n
		sum.spinner = max(sum.spinner, l.spinner)
	}
	return sum
}

// iops is table (a), and table (f) from the same runs.
func (b *bench) iops(ctx context.Context) (err error) {
	ways := []*method{unicast(nameOne, 1), unicast(nameThree, receivers), rocast(nameRocast, keyShipped)}
	var got byLink
	err = b.at(ctx, calmTimeout, iopsPosted*iopsBytes, func(s *site) (err error) {
		got, err = s.interleaved(ctx, b.plan.rounds, links(b.rate), ways,
			job{bytes: iopsBytes, posted: iopsPosted, plain: true, span: b.plan.span, drain: drain})
		return err
	})
	if err != nil {
		return err
	}
	usual := got[b.rate]
	b.part.Sections = append(b.part.Sections, iopsTable(ways, usual), b.iopsOverLinks(ways, got), costTable(ways, usual))
	return nil
}

const textIOPS = "The source keeps %d WRITEs of 8 KiB posted. A WRITE counts with its completions on all queue pairs. The ways take turns for %d rounds; figures " +
	"and ratios are medians."

// paperIOPS are the figures of Cepheus, table I, in millions.
var paperIOPS = map[string]float64{nameOne: 1.188, nameThree: 0.413, nameRocast: 1.167}

func iopsTable(ways []*method, got map[string]rounds) report.Section {
	sec := report.Section{
		Title: titleIOPS, Command: "make bench-apps ONLY=iops",
		Text:    fmt.Sprintf(textIOPS, iopsPosted, len(got[nameOne])),
		Columns: append([]string{"", "IOPS", "goodput, Mb/s", "of 1 unicast", "Cepheus: of 1 unicast", "p50, us", "p99, us"}, loadColumns...),
	}
	for _, m := range ways {
		r := got[m.name]
		l := r.load()
		ratio := ratioOf(r, got[nameOne], perSecond)
		sec.Rows = append(sec.Rows, append([]string{
			m.name, fmt.Sprintf("%.0f", r.median(perSecond)),
			fmt.Sprintf("%.1f", r.median(func(s *sample) float64 { return s.goodput(iopsBytes) })/1e6), fmt.Sprintf("%.3f", ratio),
			fmt.Sprintf("%.3f", paperIOPS[m.name]/paperIOPS[nameOne]), micros(r, 0.5), micros(r, 0.99),
		}, l.cells()...))
		if m.group {
			sec.Holds = append(sec.Holds, report.Bound{
				What: fmt.Sprintf("a group of 3 does at least %.2f of the IOPS of one unicast (%.3f)", ofOneUnicast, ratio), OK: ratio >= ofOneUnicast,
			})
		}
	}
	sec.Notes = []string{"Cepheus is limited by its storage stack, and here the link is the limit: compare the ratios."}
	sec.Behind = []string{fmt.Sprintf("Cepheus does %.3f M of these WRITEs a second in hardware, and a group here %.4f M on CPUs (docs/evaluation.md#throughput-of-the-box).",
		paperIOPS[nameRocast], got[nameRocast].median(perSecond)/1e6)}
	return sec
}

// ratioOf is the median over rounds of the ratio of two ways.
func ratioOf(r, base rounds, figure func(*sample) float64) float64 {
	var all []float64
	for i := range r {
		all = append(all, figure(&r[i])/figure(&base[i]))
	}
	return report.Median(all)
}

// micros is a quantile of the times until completion.
func micros(r rounds, q float64) string {
	var all []time.Duration
	for i := range r {
		all = append(all, r[i].acked...)
	}
	return micro(report.Quantile(all, q))
}

func micro(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e3, 'f', 0, 64) }

const textCost = "CPU time of the source for each GB that receivers got in the runs of (a), with the soft NIC, whose part a real NIC would do."

// costTable is table (f).
func costTable(ways []*method, got map[string]rounds) report.Section {
	sec := report.Section{
		Title: titleCost, Command: "make bench-apps ONLY=iops",
		Text:    textCost,
		Columns: []string{"", "CPU-seconds of the source for each delivered GB", "bytes on the source's link for each delivered byte", "limit"},
	}
	for _, m := range ways {
		r := got[m.name]
		delivered := func(s *sample) float64 { return float64(s.messages * iopsBytes * m.receivers) }
		l := r.load()
		sec.Rows = append(sec.Rows, []string{
			m.name, fmt.Sprintf("%.2f", r.median(func(s *sample) float64 { return s.sourceTime.Seconds() / delivered(s) * 1e9 })),
			fmt.Sprintf("%.2f", r.median(func(s *sample) float64 { return float64(s.sent) / delivered(s) })),
			l.cells()[len(loadColumns)-1],
		})
	}
	return sec
}

const textLatency = "One WRITE at a time, from the post to the last completion."

var notesLatency = []string{
	"Gleam reports 40 % less than 3 unicasts at 64 KB and 60 % less at 512 KB, and about the latency of one unicast.",
	"Small WRITEs take mostly CPU time of the soft NIC, and of the box with a group.",
}

// latency is table (b).
func (b *bench) latency(ctx context.Context) error {
	ways := []*method{unicast(nameOne, 1), unicast(nameThree, receivers), rocast(nameRocast, keyShipped)}
	sec := report.Section{
		Title: titleLatency, Command: "make bench-apps ONLY=latency",
		Text:    textLatency,
		Columns: append([]string{"bytes", "", "p50, us", "p99, us", "p50 of 1 unicast", "IOs"}, loadColumns...),
	}
	curves := plots.Curves{LogX: true, File: "apps-latency.svg", X: "bytes", Y: "us, p50", LogY: true}
	sizes := b.plan.latencySizes
	lines := map[string]plotter.XYs{}
	err := b.at(ctx, calmTimeout, slices.Max(sizes), func(s *site) error {
		for _, bytes := range sizes {
			var base time.Duration
			for _, m := range ways {
				r, err := s.measure(ctx, m, job{bytes: bytes, posted: 1, plain: true, span: b.plan.latency, least: enough, drain: drain})
				if err != nil {
					return err
				}
				p50 := report.Quantile(r.acked, 0.5)
				base = cmp.Or(base, p50)
				lines[m.name] = append(lines[m.name], plotter.XY{X: float64(bytes), Y: float64(p50) / 1e3})
				if times := float64(p50) / float64(base); m.group && times > latencyOfOne {
					sec.Behind = append(sec.Behind, fmt.Sprintf("One IO of %s over a group takes %.2f times as long as over one unicast, with Cepheus and Gleam about as long: "+
						"the box needs a CPU for each packet.", size(bytes), times))
				}
				sec.Rows = append(sec.Rows, append([]string{size(bytes), m.name, micro(p50), micro(report.Quantile(r.acked, 0.99)),
					fmt.Sprintf("%.2f", float64(p50)/float64(base)), strconv.Itoa(r.messages)}, r.load.cells()...))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range ways {
		curves.Lines = append(curves.Lines, plots.Curve{Name: m.name, Points: lines[m.name]})
	}
	sec.Plots = []plots.Curves{curves}
	sec.Notes = notesLatency
	b.part.Sections = append(b.part.Sections, sec)
	return nil
}

func size(bytes int) string {
	switch {
	case bytes >= mib:
		return fmt.Sprintf("%d MiB", bytes/mib)
	case bytes >= kib:
		return fmt.Sprintf("%d KiB", bytes/kib)
	}
	return fmt.Sprintf("%d B", bytes)
}

// chainBest are the numbers of slices of which the best one counts.
var chainBest = []int{16, 64}

const nameBestChain = "chain, best of 16 and 64 slices"

// broadcast is table (c).
func (b *bench) broadcast(ctx context.Context) error {
	ways := []*method{rocast(nameRocast, keyShipped), unicast(nameThree, receivers), chain(nameChain, 4), tree(), pipeline()}
	for _, n := range chainBest {
		ways = append(ways, chain(chainName(n), n))
	}
	sizes := b.plan.broadcastSize
	took, err := b.broadcasts(ctx, layout{receivers: receivers, rate: b.rate}, sizes, ways)
	if err != nil {
		return err
	}
	b.part.Sections = append(b.part.Sections, broadcastTable(took))
	return b.broadcastOverLinks(ctx, ways)
}

// broadcasts measures broadcasts of each size by each way, at a site of this layout.
func (b *bench) broadcasts(ctx context.Context, l layout, sizes []int, ways []*method) (took map[int]map[string]sample, err error) {
	took = map[int]map[string]sample{}
	l.timeout, l.memory = calmTimeout, slices.Max(sizes)
	return took, b.in(ctx, l, func(s *site) error {
		for _, bytes := range sizes {
			took[bytes] = map[string]sample{}
			for _, m := range ways {
				fmt.Fprintf(os.Stderr, "broadcast of %s, %s\n", size(bytes), m.name)
				least := enough
				if bytes >= once {
					least = 1
				}
				r, err := s.measure(ctx, m, job{bytes: bytes, posted: 1, span: b.plan.broadcast, least: least, drain: 3 * drain})
				if err != nil {
					return err
				}
				took[bytes][m.name] = r
			}
		}
		return nil
	})
}

const textBroadcast = "One WRITE with immediate at a time, from the post until all three receivers' programs know of it. Programs without multicast pass on " +
	"each slice that they have. Of RDMC's pipeline two blocks of 64 KiB are on their way. A host of the tree sends more than 64 KiB to one host after the other. A " +
	"program learns at no cost when it may send the next message."

var notesBroadcast = []string{
	"Cepheus reports 3 to 5.2 times its latency for a chain with small messages and 2.5 to 3.5 for a tree; with large ones 1.3 to 2.8 and 2 to 2.8. RDMC takes 35 " +
		"ms for 256 MB, Cepheus 24.4.",
	"With many blocks the pipeline comes as close to the link's rate as a group. But it costs CPU, and every receiver sends as much as it gets.",
}

var broadcastRows = []string{nameRocast, nameThree, nameTree, nameChain, nameBestChain, namePipe}

func broadcastTable(took map[int]map[string]sample) report.Section {
	sec := report.Section{
		Title: titleBroadcast, Command: "make bench-apps ONLY=broadcast",
		Text:    textBroadcast,
		Columns: append([]string{"bytes", "", "p50, us", "p99, us", "times rocast", "broadcasts"}, loadColumns...),
	}
	lines := map[string]plotter.XYs{}
	for _, bytes := range slices.Sorted(maps.Keys(took)) {
		got := took[bytes]
		best := ""
		for _, n := range chainBest {
			name := chainName(n)
			if best == "" || p50(got[name]) < p50(got[best]) {
				best = name
			}
		}
		got[nameBestChain] = got[best]
		ours := p50(got[nameRocast])
		for _, name := range broadcastRows {
			r, label := got[name], name
			if name == nameBestChain {
				label = best + " (best)"
			}
			times := float64(p50(r)) / float64(ours)
			if times < 1 {
				sec.Behind = append(sec.Behind, fmt.Sprintf("%s: %s takes %.2f of a group's time. Where the link is not the limit, CPU time is, and the box has more to do for a group's packet "+
					"than its bridge has for a unicast one.", size(bytes), label, times))
			}
			lines[name] = append(lines[name], plotter.XY{X: float64(bytes), Y: times})
			sec.Rows = append(sec.Rows, append([]string{size(bytes), label, micro(p50(r)), micro(report.Quantile(r.told, 0.99)),
				fmt.Sprintf("%.2f", times), strconv.Itoa(r.messages)}, r.load.cells()...))
			if bytes >= fairFrom && slices.Contains([]string{nameTree, nameChain, nameBestChain}, name) {
				sec.Holds = append(sec.Holds, report.Bound{What: fmt.Sprintf("%s: a group is faster than %s (%.2f times)", size(bytes), label, times), OK: times > 1})
			}
		}
	}
	curves := plots.Curves{LogX: true, File: "apps-broadcast.svg", X: "bytes", Y: "time, of rocast's"}
	for _, name := range broadcastRows {
		curves.Lines = append(curves.Lines, plots.Curve{Name: name, Points: lines[name]})
	}
	sec.Plots = []plots.Curves{curves}
	sec.Notes = notesBroadcast
	return sec
}

func p50(r sample) time.Duration { return report.Quantile(r.told, 0.5) }

const textLoss = "Messages of 64 KiB, 16 posted. The receivers' links lose packets at random, in both directions. *goodput* is relative to one unicast without " +
	"loss. The source's timeout is %d ms, in which a link of %s carries %d packets. Times are until all receivers' programs have a message."

func lossTextAt(rate int) string {
	timeout := rnic.AckTimeout(usualTimeout)
	return fmt.Sprintf(textLoss, timeout.Milliseconds(), linkName(rate), rnic.PacketsIn(timeout, pathMTU, int64(rate)))
}

var notesLoss = []string{
	"MC-RDMA (fig. 7) loses packets on one receiver's path only.",
	"With `repair: off` a group goes back for all when one receiver lost a packet, as in the papers. With `repair: local` the box sends it again.",
}

// losses is table (e).
func (b *bench) losses(ctx context.Context) error {
	ways := []*method{
		unicast(nameOne, 1), unicast(nameThree, receivers), chain(nameChain, 4),
		rocast("rocast to 3, repair: off", "repair: off"), rocast("rocast to 3, repair: local", "repair: local"),
	}
	sec := report.Section{
		Title: titleLoss, Command: "make bench-apps ONLY=loss",
		Text:    lossTextAt(b.rate),
		Columns: append([]string{"lost", "", "goodput", "p50, us", "p99, us", "sent again, of the packets"}, loadColumns...),
	}
	curves := plots.Curves{LogX: true, File: "apps-loss.svg", X: "packets lost, of a million", Y: "goodput; 1 is one unicast without loss"}
	base := 0.0
	for _, rate := range b.plan.rates {
		for i, m := range ways {
			fmt.Fprintf(os.Stderr, "%d of a million packets lost, %s\n", rate, m.name)
			var r sample
			// A transfer that does not end in time still sends: each has a site of its own.
			err := b.at(ctx, usualTimeout, lossPosted*lossBytes, func(s *site) (err error) {
				if err := s.lose(rate); err != nil {
					return err
				}
				r, err = s.measure(ctx, m, job{bytes: lossBytes, posted: lossPosted, span: b.plan.loss, drain: drain})
				return err
			})
			if ctx.Err() != nil {
				return err
			}
			if err != nil {
				b.skip(fmt.Sprintf("%s, %s", m.name, lost(rate)), err)
				continue
			}
			if base == 0 {
				base = r.goodput(lossBytes)
			}
			goodput := r.goodput(lossBytes) / base
			if len(curves.Lines) <= i {
				curves.Lines = append(curves.Lines, plots.Curve{Name: m.name})
			}
			if rate > 0 { // nothing has no place on a logarithmic axis
				curves.Lines[i].Points = append(curves.Lines[i].Points, plotter.XY{X: float64(rate), Y: goodput})
			}
			sec.Rows = append(sec.Rows, append([]string{lost(rate), m.name, fmt.Sprintf("%.3f", goodput), micro(report.Quantile(r.told, 0.5)),
				micro(report.Quantile(r.told, 0.99)), fmt.Sprintf("%.4f", float64(r.resent)/float64(r.messages*lossBytes/pathMTU))}, r.load.cells()...))
		}
	}
	sec.Plots = []plots.Curves{curves}
	sec.Notes = notesLoss
	b.part.Sections = append(b.part.Sections, sec)
	return nil
}

func lost(perMillion int) string {
	if perMillion == 0 {
		return "nothing"
	}
	return fmt.Sprintf("1/%d", (1_000_000+perMillion/2)/perMillion)
}
