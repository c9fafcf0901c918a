package services

import (
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// A status names a source that does not answer as a problem, and who was refused because of others
// for a minute.
func TestTheStatusOfServices(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	trouble := cm.Trouble{
		GroupIP: addr("10.77.0.100"), Silent: []cm.Connection{{Source: addr("10.77.0.1"), Ends: now.Add(12 * time.Second)}},
		Refused: cm.Refusal{Source: addr("10.77.0.5"), Says: "the run of 10.77.0.1 has not ended", At: now},
	}
	for after, told := range map[time.Duration]bool{0: true, time.Minute - 1: true, time.Minute: false} {
		problems, notes := statusOf([]cm.Trouble{{}, trouble}, now.Add(after))
		want := []api.Problem{{
			Of: "service", Name: "10.77.0.100", State: "degraded",
			Reason: "RDMA-CM: source 10.77.0.1 does not answer, and its connection ends at 03:04:17 unless it does",
		}}
		if !slices.Equal(problems, want) {
			t.Errorf("%+v", problems)
		}
		if got := slices.Equal(notes, []string{"RDMA-CM on 10.77.0.100 has refused 10.77.0.5 at 03:04:05: the run of 10.77.0.1 has not ended"}); got != told || !told && len(notes) > 0 {
			t.Errorf("after %v: %q", after, notes)
		}
	}
	if problems, notes := newWorld().Status(now); len(problems)+len(notes) != 0 {
		t.Errorf("%+v, %q", problems, notes)
	}
}

// A client that waits for another one's run is a note.
func TestAStatusNamesClientsThatWait(t *testing.T) {
	at := perftest.Service{Sessions: []perftest.Session{
		{Client: addr("10.77.0.1"), State: perftest.Running},
		{Client: addr("10.77.0.5"), State: perftest.Waiting, Reason: "the run of 10.77.0.1 has not ended"},
	}}
	at.GroupIP = addr("10.77.0.100")
	if notes := waiting([]perftest.Service{at}); !slices.Equal(notes, []string{"perftest on 10.77.0.100: client 10.77.0.5 waits: the run of 10.77.0.1 has not ended"}) {
		t.Errorf("%q", notes)
	}
}

// What a source has sent is counted over all its groups. What was seen of a group is control's.
func TestWhatIsKnownOfGroups(t *testing.T) {
	w := newWorld()
	w.control.counters = map[string]api.Counters{"one": {feedback.Forwarded.String(): 3}, "two": {feedback.Resent.String(): 4, dataplane.NotSource.String(): 9}}
	groups := Groups{Control: w.control, Hops: w.hops}
	if n, wrong := groups.Sent([]string{"one", "two", "gone"}); n != 7 || wrong != 9 {
		t.Errorf("%d packets of the sources, %d requests of receivers", n, wrong)
	}
	if saw := groups.Saw("one"); saw != "saw one" {
		t.Error(saw)
	}
}
