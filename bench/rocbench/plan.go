package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/rocast/rocast/bench/report"
)

// plan lists the measurements of one form of the benchmark.
type plan struct {
	form       string
	throughput []part
	latency    latencyPlan
	changes    changesPlan
	restarts   restartsPlan
}

// part is some settings that are measured in the same way.
type part struct {
	section  string
	settings []report.Setting
	rounds   int
	span     time.Duration // of one contestant in one round
	peers    []string      // nil: all
}

type latencyPlan struct {
	payloads []int
	rounds   int
	probes   int      // in a round
	silent   int      // in a round, with the usual payload, each after silence
	peers    []string // nil: all
}

type changesPlan struct {
	groups int
	span   time.Duration // in which nothing changes
}

type restartsPlan struct {
	groups []int
	rounds int // for each number of groups
}

// usual is the setting of which the others are variations.
func usual(change func(*report.Setting)) report.Setting {
	s := report.Setting{Payload: 1024, Receivers: 3, Groups: 1, Workers: 1}
	change(&s)
	return s
}

func vary(values []int, set func(*report.Setting, int)) (settings []report.Setting) {
	for _, v := range values {
		settings = append(settings, usual(func(s *report.Setting) { set(s, v) }))
	}
	return settings
}

func payloads(bytes ...int) []report.Setting {
	return vary(bytes, func(s *report.Setting, v int) { s.Payload = v })
}

// shortForm takes two to three minutes.
func shortForm() plan {
	peers := []string{"rocast-busy", "rocast-block", "rocast-kernel", "c-inplace", "xdp-broadcast", "bridge", "mirred", "ovs-afxdp"}
	return plan{
		form: "short",
		throughput: []part{{
			section: report.SectionMain, settings: payloads(1024, 4096), rounds: 3, span: time.Second, peers: peers,
		}},
		latency:  latencyPlan{payloads: []int{1024}, rounds: 2, probes: 3000, silent: 200, peers: peers},
		changes:  changesPlan{groups: 20, span: 2 * time.Second},
		restarts: restartsPlan{groups: []int{1, 40}, rounds: 5},
	}
}

// fullForm takes about forty minutes. Each contestant runs for 30 seconds in each setting of the
// main section.
func fullForm() plan {
	receivers := vary([]int{1, 2, 4, 7, 16, 64}, func(s *report.Setting, v int) { s.Receivers = v })
	short := part{rounds: 3, span: time.Second}
	with := func(p part, section string, settings []report.Setting, peers ...string) part {
		p.section, p.settings, p.peers = section, settings, peers
		return p
	}
	return plan{
		form: "full",
		throughput: []part{
			{section: report.SectionMain, settings: payloads(1024, 4096), rounds: 15, span: 2 * time.Second},
			with(short, report.SectionPayload, payloads(64, 256, 2048)),
			with(short, report.SectionReceivers, receivers),
			with(short, report.SectionGroups, groups(1), manyGroups...),
			with(short, report.SectionWorkers, []report.Setting{
				usual(func(s *report.Setting) { s.Groups, s.Pattern = 1000, "hot" }),
				usual(func(s *report.Setting) { s.Groups, s.Pattern, s.Workers = 1000, "hot", 2 }),
			}, manyGroups...),
		},
		latency:  latencyPlan{payloads: []int{64, 1024, 4096}, rounds: 3, probes: 20_000, silent: 1000},
		changes:  changesPlan{groups: 200, span: 10 * time.Second},
		restarts: restartsPlan{groups: []int{1, 40}, rounds: 15},
	}
}

// manyGroups are the contestants that support groups.
var manyGroups = []string{"rocast-busy", "rocast-block", "rocast-kernel", "c-inplace", "c-memcpy"}

func groups(workers int) (settings []report.Setting) {
	for _, pattern := range []string{"hot", "random"} {
		for _, n := range []int{16, 1000, 100_000} {
			settings = append(settings, usual(func(s *report.Setting) {
				s.Groups, s.Pattern, s.Workers = n, pattern, workers
			}))
		}
	}
	return settings
}

// has reports whether a contestant takes part at all.
func (p *plan) has(peer string) bool {
	lists := [][]string{p.latency.peers}
	for _, t := range p.throughput {
		lists = append(lists, t.peers)
	}
	return slices.ContainsFunc(lists, func(l []string) bool { return l == nil || slices.Contains(l, peer) })
}

// restrict leaves only some sections.
func (p *plan) restrict(sections []string) {
	if sections == nil {
		return
	}
	p.throughput = slices.DeleteFunc(p.throughput, func(t part) bool { return !slices.Contains(sections, t.section) })
	if !slices.Contains(sections, "latency") {
		p.latency.rounds = 0
	}
	if !slices.Contains(sections, "changes") {
		p.changes.groups = 0
	}
	if !slices.Contains(sections, "restarts") {
		p.restarts.groups = nil
	}
}

// override sets the rounds and the span of all measurements, unless they are zero.
func (p *plan) override(rounds int, span time.Duration) {
	for i := range p.throughput {
		t := &p.throughput[i]
		t.rounds = cmp.Or(rounds, t.rounds)
		t.span = cmp.Or(span, t.span)
	}
	if p.latency.rounds > 0 {
		p.latency.rounds = cmp.Or(rounds, p.latency.rounds)
	}
	p.restarts.rounds = cmp.Or(rounds, p.restarts.rounds)
	p.changes.span = cmp.Or(span, p.changes.span)
}
