package main

import (
	_ "embed"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// countersText has a line for each counter: its name, and a sentence.
// docs/reference.md#every-counter has the same sentences.
//
//go:embed counters.txt
var countersText string

// meanings returns the sentence of each counter, by name.
func meanings() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(countersText) {
		name, sentence, _ := strings.Cut(strings.TrimSpace(line), ": ")
		all[name] = sentence
	}
	return all
}

// explained is the answer of rocast stats --explain.
type explained struct {
	api.Stats
	Ports    api.Counters      `json:"ports"` // of the kernel, summed over the ports
	Meanings map[string]string `json:"meanings"`
}

// explain adds the sums over the ports and the sentences of all counters.
func explain(stats api.Stats, ports api.Ports) explained {
	e := explained{Stats: stats, Ports: api.Counters{}, Meanings: map[string]string{}}
	for _, p := range ports.Ports {
		for name, n := range p.Kernel {
			e.Ports[name] += n
		}
	}
	all := meanings()
	for _, counts := range []api.Counters{e.Counters, e.Ports} {
		for name := range counts {
			e.Meanings[name] = all[name]
		}
	}
	return e
}

// printExplained writes a table of counters with their sentences, sorted by name.
func printExplained(w io.Writer, e explained) {
	row(w, "COUNTER", "COUNT", "MEANING")
	counts := maps.Clone(e.Ports)
	maps.Copy(counts, e.Counters)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		row(w, name, counts[name], e.Meanings[name])
	}
}
