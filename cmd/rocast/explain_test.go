package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/ctl/api"
)

// Every counter of the data path has a sentence, whether this machine can load BPF or not.
func TestEveryCounterIsExplained(t *testing.T) {
	d := startDaemon(t)
	var names []string
	for _, c := range d.sw.Counters() {
		names = append(names, c.Name)
	}
	for v := range bpf.Verdict(bpf.Verdicts) {
		names = append(names, "classifier-"+v.String())
	}
	for e := range bpf.FanEvent(bpf.FanEvents) {
		names = append(names, "fan-out-"+e.String())
	}
	all := meanings()
	for _, name := range names {
		if !strings.HasSuffix(all[name], ".") {
			t.Errorf("%s: %q is no sentence", name, all[name])
		}
	}
	for name := range all {
		if isPorts := strings.HasPrefix(name, "rx-") || strings.HasPrefix(name, "tx-"); !isPorts && !slices.Contains(names, name) {
			t.Errorf("there is no counter %s", name)
		}
	}
	if lines := strings.Count(countersText, "\n"); lines != len(all) {
		t.Errorf("%d lines for %d counters", lines, len(all))
	}
}

func TestStatsExplain(t *testing.T) {
	d := startDaemon(t)
	out := d.must(t, "stats", "--explain")
	if !strings.Contains(out, "MEANING") || !strings.Contains(out, meanings()["over-mtu"]) {
		t.Errorf("\n%s", out)
	}
	var e explained
	if d.mustJSON(t, &e, "stats", "--explain"); e.Meanings["over-mtu"] != meanings()["over-mtu"] || len(e.Meanings) != len(e.Counters) {
		t.Errorf("%+v", e)
	}
}

func TestTheCountersOfPortsAreSummedAndExplained(t *testing.T) {
	ports := api.Ports{Ports: []api.Port{{Kernel: api.Counters{"rx-ring-full": 3}}, {Kernel: api.Counters{"rx-ring-full": 4, "rx-new": 1}}}}
	e := explain(api.Stats{Counters: api.Counters{"merged": 1}}, ports)
	var out strings.Builder
	printExplained(&out, e)
	all := meanings()
	want := "COUNTER\tCOUNT\tMEANING\nmerged\t1\t" + all["merged"] + "\nrx-new\t1\t-\nrx-ring-full\t7\t" + all["rx-ring-full"] + "\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
