package main

import (
	"slices"

	"github.com/rocast/rocast/bench/report"
)

// shown is what docs/evaluation.md shows of a long table.
type shown struct {
	file    string // of the whole table
	columns []string
	keep    func(row []string) bool
}

// shownOf has the long tables by the titles of their sections.
var shownOf = map[string]shown{
	titleIOPS: {"apps-iops.csv", []string{"", "IOPS", "goodput, Mb/s", "of 1 unicast", "Cepheus: of 1 unicast", "p50, us", "p99, us", "source's link", "limit"}, all},
	titleLatency: {"apps-latency.csv", []string{"bytes", "", "p50, us", "p99, us", "p50 of 1 unicast", "source's link", "limit"},
		first(size(64), size(8*kib), size(512*kib))},
	titleBroadcast: {"apps-broadcast.csv", []string{"bytes", "", "p50, us", "times rocast", "limit"}, first(size(4*kib), size(16*mib))},
	titleLoad:      {"apps-consensus.csv", []string{"", "load", "decided/s", "p50, us", "p99, us", "leader's link"}, ofFourReplicas},
	titleStorage: {"apps-storage.csv", []string{"bytes", "", "blocks/s", "p50, us", "p99, us", "fsync p50, us", "source's link"},
		first(size(4*kib), size(64*kib), size(mib))},
	titleLoss: {"apps-loss.csv", []string{"lost", "", "goodput", "p50, us", "p99, us", "sent again, of the packets", "limit"},
		first(lost(0), lost(244), lost(3906))},
	titleCopies: {"apps-copies.csv", []string{"receivers", "lost", "files", "", "seconds", "times rocast-cp", "bytes on the source's link"}, toSeveral},
}

func all([]string) bool { return true }

// first keeps the rows whose first cell is one of some.
func first(cells ...string) func([]string) bool {
	return func(row []string) bool { return slices.Contains(cells, row[0]) }
}

// ofFourReplicas keeps the loads of a leader with four replicas, and leaves out the bursts, which
// have no rate.
func ofFourReplicas(row []string) bool {
	replicas, decided := row[0], row[3]
	return replicas == "4" && decided != ""
}

// toSeveral keeps the copies to several receivers, and leaves out the lowest loss.
func toSeveral(row []string) bool { return row[0] != "1" && row[1] != lost(100) }

// shorten says of each long table what the page shows.
func shorten(p *report.Part) {
	for i := range p.Sections {
		if s, long := shownOf[p.Sections[i].Title]; long {
			p.Sections[i].Shorten(s.file, s.columns, s.keep)
		}
	}
}
