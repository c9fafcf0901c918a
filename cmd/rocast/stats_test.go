package main

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestStats(t *testing.T) {
	d := startDaemon(t)
	var stats api.Stats
	d.mustJSON(t, &stats, "stats")
	lines := strings.Split(strings.TrimSpace(d.must(t, "stats")), "\n")
	if len(stats.Counters) == 0 || len(lines) != len(stats.Counters)+1 || !strings.HasPrefix(lines[0], "COUNTER") {
		t.Errorf("%d counters in %d lines:\n%s", len(stats.Counters), len(lines), strings.Join(lines, "\n"))
	}
}
