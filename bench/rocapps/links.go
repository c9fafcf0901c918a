package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/rocast/rocast/bench/report"
)

// links are the rates of the hosts' links over which a ratio is measured that the link forces: the
// usual rate, another one, and none.
func links(rate int) []int { return []int{rate, rate / 2, 0} }

func linkName(rate int) string {
	switch {
	case rate == 0:
		return "not shaped"
	case rate%1_000_000 == 0:
		return fmt.Sprintf("%d Mb/s", rate/1_000_000)
	}
	return fmt.Sprintf("%.1f Mb/s", float64(rate)/1e6)
}

// byLink are the figures of each way, by the rate of the links.
type byLink map[int]map[string]rounds

// interleaved measures a job by each way over links of each rate, in rounds: rates and ways take
// turns. The ways need no connections but those of the site.
func (s *site) interleaved(ctx context.Context, count int, rates []int, ways []*method, j job) (got byLink, err error) {
	got = byLink{}
	for _, rate := range rates {
		got[rate] = map[string]rounds{}
	}
	for round := range count {
		for i := range rates {
			rate := rates[(i+round)%len(rates)]
			if err := s.shape(rate); err != nil {
				return nil, err
			}
			for k := range ways {
				m := ways[(k+round)%len(ways)]
				fmt.Fprintf(os.Stderr, "round %d, %s, %s, %s\n", round+1, size(j.bytes), linkName(rate), m.name)
				r, err := s.measure(ctx, m, j)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", linkName(rate), err)
				}
				got[rate][m.name] = append(got[rate][m.name], r)
			}
		}
	}
	return got, nil
}

// linkColumns are the columns of a table with a figure and its ratio for each rate.
func linkColumns(first []string, figure, ratio string, rates []int) (columns []string) {
	columns = slices.Clone(first)
	for _, rate := range rates {
		columns = append(columns, figure+", "+linkName(rate), ratio+", "+linkName(rate))
	}
	return columns
}

// linkCells are the cells of a way for one rate. A mark stands beside its figure.
func linkCells(figure string, ratio float64, l load) []string {
	if mark := l.mark(); mark != "" {
		figure += " " + mark
	}
	return []string{figure, fmt.Sprintf("%.2f", ratio)}
}

const (
	titleIOPSLinks      = "(a) 8 KiB WRITEs, over other links"
	titleBroadcastLinks = "(c) Broadcast, over other links"
	titleConsensusLinks = "(d) Consensus, over other links"

	textLinks = "Where the source's link is full, it forces the ratios of %s, whatever its rate is. So this table has a second rate, and links that are " +
		"*not shaped*: there the CPUs of this machine are the limit, which all hosts and the box share. Links and ways take turns for %d rounds, and figures are medians."
	textMarks = " **CPU** or **box** beside a figure is the *limit* of its row."
)

func (b *bench) iopsOverLinks(ways []*method, got byLink) report.Section {
	rates := links(b.rate)
	sec := report.Section{
		Title: titleIOPSLinks, Command: "make bench-apps ONLY=iops",
		Text:    fmt.Sprintf(textLinks, "(a)", len(got[b.rate][nameOne])) + textMarks,
		Columns: linkColumns([]string{""}, "IOPS", "of 1 unicast", rates),
	}
	for _, m := range ways {
		row := []string{m.name}
		for _, rate := range rates {
			r, one := got[rate][m.name], got[rate][nameOne]
			ratio := ratioOf(r, one, perSecond)
			row = append(row, linkCells(fmt.Sprintf("%.0f", r.median(perSecond)), ratio, r.load())...)
			if m.group && ratio < ofOneUnicast {
				sec.Behind = append(sec.Behind, fmt.Sprintf("%s: a group of 3 does %.2f of the IOPS of one unicast.", linkName(rate), ratio))
			}
		}
		sec.Rows = append(sec.Rows, row)
	}
	return sec
}

// broadcastOverLinks measures broadcasts of some sizes over links of each rate.
func (b *bench) broadcastOverLinks(ctx context.Context, ways []*method) error {
	sizes := b.plan.linkSizes
	took := map[int]byLink{}
	err := b.at(ctx, calmTimeout, slices.Max(sizes), func(s *site) (err error) {
		for _, bytes := range sizes {
			took[bytes], err = s.interleaved(ctx, b.plan.linkRounds, links(b.rate), ways,
				job{bytes: bytes, posted: 1, span: b.plan.broadcast, least: 1, drain: 3 * drain})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.part.Sections = append(b.part.Sections, b.broadcastLinksTable(sizes, took))
	return nil
}

func (b *bench) broadcastLinksTable(sizes []int, took map[int]byLink) report.Section {
	rates := links(b.rate)
	sec := report.Section{
		Title: titleBroadcastLinks, Command: "make bench-apps ONLY=broadcast",
		Text:    fmt.Sprintf(textLinks, "(c)", len(took[sizes[0]][b.rate][nameRocast])) + textMarks,
		Columns: linkColumns([]string{"bytes", ""}, "p50, us", "times rocast", rates),
	}
	for _, bytes := range sizes {
		for _, name := range broadcastRows {
			row := []string{size(bytes), name}
			for _, rate := range rates {
				got := took[bytes][rate]
				r := got[name]
				if name == nameBestChain {
					r = bestChain(got)
				}
				times := ratioOf(r, got[nameRocast], toldP50)
				row = append(row, linkCells(fmt.Sprintf("%.0f", r.median(toldP50)), times, r.load())...)
				if times < 1 {
					sec.Behind = append(sec.Behind, fmt.Sprintf("%s, %s: %s takes %.2f of a group's time.", linkName(rate), size(bytes), name, times))
				}
			}
			sec.Rows = append(sec.Rows, row)
		}
	}
	return sec
}

// bestChain is the chain that takes the shortest time.
func bestChain(got map[string]rounds) (best rounds) {
	for _, n := range chainBest {
		if r := got[chainName(n)]; best == nil || r.median(toldP50) < best.median(toldP50) {
			best = r
		}
	}
	return best
}

func chainName(slices int) string { return fmt.Sprintf("chain, %d slices", slices) }

// Figures of a sample.

func perSecond(s *sample) float64 { return float64(s.messages) / s.seconds }

// toldP50 is in microseconds.
func toldP50(s *sample) float64 { return float64(p50(*s)) / 1e3 }
