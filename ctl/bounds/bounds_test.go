package bounds

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A flood is one line of the log in ten seconds for each bound, with its number, and each one
// counts.
func TestAFloodIsCounted(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	b := New(zap.New(core))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b.now = func() time.Time { return now }
	for range 30 {
		b.Met(HostGroups, "10.0.0.1")
		now = now.Add(reportEvery / 10)
	}
	b.Met(PerftestClients, "10.0.0.2")
	var refused []uint64
	for _, line := range logs.All() {
		if fields := line.ContextMap(); fields["bound"] == "host-groups" && fields["from"] == "10.0.0.1" {
			refused = append(refused, fields["refused"].(uint64))
		}
	}
	if len(refused) != 3 || refused[0] != 1 || refused[1] != 10 || refused[2] != 10 || logs.Len() != 4 {
		t.Errorf("logged %v", logs.All())
	}
	if c := b.Counts(); c[HostGroups] != 30 || c[PerftestClients] != 1 || len(c) != len(All) {
		t.Errorf("%v", c)
	}
	var none *Book
	none.Met(HostGroups, "x")
	if len(none.Counts()) != 0 {
		t.Error("a Book that is none counts")
	}
}
