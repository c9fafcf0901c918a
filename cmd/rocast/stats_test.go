package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestStats(t *testing.T) {
	d := startDaemon(t)
	var stats api.Stats
	d.mustJSON(t, &stats, "stats")
	lines := strings.Split(strings.TrimSpace(d.must(t, "stats")), "\n")
	retained, lines := lines[:3], lines[3:]
	if want := (api.Retained{Room: 4096}); stats.Retained != want || !slices.Equal(strings.Fields(retained[1]), []string{"0", "0", "4096"}) {
		t.Errorf("%+v\n%s", stats.Retained, strings.Join(retained, "\n"))
	}
	if len(stats.Counters) == 0 || len(lines) != len(stats.Counters)+1 || !strings.HasPrefix(lines[0], "COUNTER") {
		t.Errorf("%d counters in %d lines:\n%s", len(stats.Counters), len(lines), strings.Join(lines, "\n"))
	}
}
