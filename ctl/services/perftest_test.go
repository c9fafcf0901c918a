package services

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// The helper really listens on its group IP, so the IP is one of the loopback's.
const upRequest = `{"groupIP": "127.0.0.200", "receivers": ["10.77.0.2", "10.77.0.3"], "port": 18599}`

func TestPerftestUpAnswersWithTheHelperThatItStarted(t *testing.T) {
	w := newWorld()
	for _, ip := range []string{"127.0.0.201", "127.0.0.200"} { // the list is sorted
		up, err := w.PerftestUp(t.Context(), []byte(strings.Replace(upRequest, "127.0.0.200", ip, 1)))
		if err != nil || up.GroupIP != ip || !slices.Equal(up.Receivers, []string{"10.77.0.2", "10.77.0.3"}) || !slices.Equal(up.Allow, []string{"127.0.0.0/8"}) {
			t.Errorf("%+v, %v", up, err)
		}
	}
	if err := w.PerftestDown("127.0.0.200"); err != nil {
		t.Fatal(err)
	}
	if err := w.PerftestDown("127.0.0.201"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

func TestAPerftestRunIsShownWithItsTimes(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 6_789_000, time.FixedZone("", 3600))
	s := perftest.Session{Client: addr("10.77.0.1"), Reason: "why", Began: began}
	run := newWorld().perftestRun(&s)
	if run.Client != "10.77.0.1" || run.Reason != "why" || run.Ended != nil || run.Began.String() != "2026-01-02 02:04:05.006 +0000 UTC" {
		t.Errorf("while it runs: %+v", run)
	}
	s.Ended = began.Add(time.Second)
	if run := newWorld().perftestRun(&s); run.Ended == nil || run.Ended.String() != "2026-01-02 02:04:06.006 +0000 UTC" {
		t.Errorf("after its end: %+v", run)
	}
}

// What the box sees of any queue pair's group is said while the run is running. Such a run has no
// reason of its own.
func TestAPerftestRunsReasonHasWhatTheBoxSees(t *testing.T) {
	w := newWorld()
	for _, tt := range []struct {
		state  perftest.State
		groups []string
		about  string
		want   string
	}{
		{perftest.Running, []string{"healthy", "one", "healthy"}, "", "sees one"},
		{perftest.Running, []string{"healthy"}, "", ""},
		{perftest.Waiting, nil, "the run of another has not ended", "the run of another has not ended"},
		{perftest.Ended, nil, "", ""},
	} {
		run := w.perftestRun(&perftest.Session{Client: addr("10.77.0.1"), State: tt.state, Groups: tt.groups, Reason: tt.about})
		if run.Reason != tt.want || run.State != tt.state.String() {
			t.Errorf("%v of %q: %+v", tt.state, tt.groups, run)
		}
	}
}

func TestTrafficIsCountedByWhoSentIt(t *testing.T) {
	counts := api.Counters{
		feedback.Forwarded.String(): 1, feedback.Resent.String(): 2, feedback.Filtered.String(): 4, feedback.OutsideWindow.String(): 8,
		feedback.Refused.String(): 16, dataplane.NotSource.String(): 32, feedback.Merged.String(): 64, dataplane.RefusedMemory.String(): 128,
	}
	if got, want := traffic(counts), (perftest.Traffic{FromSource: 159, FromReceivers: 32, Refused: 144}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
