package refused

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Every reason of the data path has a row, so that no frame is refused without somebody who hears
// of it. A row that is somebody's trouble says what it is, and what mends it.
func TestEveryReasonHasARow(t *testing.T) {
	about := &Case{
		Group: "g1", PeerIP: netip.MustParseAddr("10.77.0.100"), PeerQPN: 7, PSN: 1000, MTU: 1024, Port: "eth1",
		Frame: dataplane.Refused{From: netip.MustParseAddr("10.77.0.1"), To: netip.MustParseAddr("10.77.0.100"), QPN: 9},
	}
	check := func(name string, row Row, refuses bool) {
		t.Helper()
		if (row.Says != nil) != (row.Whose != Nobody) || (row.Ends || row.Stands) && row.Says == nil || row.Ends && row.Stands || row.Says != nil && !refuses {
			t.Errorf("%s: %+v", name, row)
		}
		if row.Says == nil {
			return
		}
		if text := row.Says(about); strings.Contains(text, "%!") || !strings.Contains(text, "; ") || strings.HasSuffix(text, ".") {
			t.Errorf("%s: %s", name, text)
		}
	}
	told := map[dataplane.Reason]bool{of(feedback.NotTakingPart): true, dataplane.GroupGone: true} // elsewhere, or not at all
	for r := range dataplane.NumReasons {
		row, known := reasons[r]
		if !known {
			t.Errorf("%v has no row", r)
		}
		check(r.String(), row, r.Refuses())
		if r.Refuses() == (row.Whose == Nobody) && !told[r] {
			t.Errorf("%v is nobody's trouble", r)
		}
	}
	if len(reasons) != int(dataplane.NumReasons) {
		t.Errorf("%d rows of %d reasons", len(reasons), dataplane.NumReasons)
	}
	verdict := map[string]bool{}
	text, err := os.ReadFile("../../cmd/rocast/counters.txt") // has every counter
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ":")
		if !strings.HasPrefix(name, "classifier-") {
			continue
		}
		verdict[name] = true
		row, known := OfVerdict(name)
		if !known {
			t.Errorf("%s has no row", name)
		}
		check(name, row, true)
	}
	for name := range verdicts {
		if !verdict[name] {
			t.Errorf("there is no counter %s", name)
		}
	}
}

// What mends it that a receiver sends requests depends on what it asks for, and on whether somebody
// can give it another role: the groups of rocast cm and perftest have no group file.
func TestRequestsOfAReceiver(t *testing.T) {
	const (
		reads = "it sends READ or atomic requests, and a receiver of a group only gets what the source sends; let its program use another connection for them, straight to the other host"
		role  = "it sends data, and its role does not let it; write role: both for it, and create the group again"
		runs  = "it sends data, and a connection through rocast cm or perftest carries only what the host sends that connects; " +
			"let its program use another connection for its own data, straight to the other host"
	)
	for _, tt := range []struct {
		read, ofService bool
		want            string
	}{
		{false, false, role}, {false, true, runs}, {true, false, reads}, {true, true, reads},
	} {
		if got := Of(dataplane.NotSource).Says(&Case{OfService: tt.ofService, Frame: dataplane.Refused{Read: tt.read}}); got != tt.want {
			t.Errorf("READ %v, of a service %v: %s", tt.read, tt.ofService, got)
		}
	}
}

func TestAWatch(t *testing.T) {
	begin := time.Unix(1000, 0)
	frame := func(r dataplane.Reason) *dataplane.Refused { return &dataplane.Refused{Reason: r} }
	type look struct {
		after  time.Duration
		frame  *dataplane.Refused
		getsOn bool
		want   bool
	}
	long, blocked, memory, reads := frame(dataplane.WrongVLAN), frame(dataplane.SourceBlocked), frame(dataplane.RefusedMemory), frame(dataplane.NotSource)
	for name, looks := range map[string][]look{
		"nothing":           {{0, nil, false, false}},
		"for a moment":      {{0, blocked, false, false}, {lastsFor - 1, blocked, false, false}, {lastsFor, nil, true, false}},
		"it lasts":          {{0, blocked, false, false}, {lastsFor, nil, false, true}},
		"it gets on":        {{0, long, true, false}, {1, long, false, false}, {lastsFor + 1, long, false, true}, {lastsFor + 2, nil, true, false}, {2 * lastsFor, nil, false, false}},
		"it is over":        {{0, long, false, false}, {heldFor - 1, nil, false, true}, {heldFor, nil, false, false}},
		"it goes on":        {{0, long, false, false}, {heldFor / 2, long, false, true}, {heldFor + 1, nil, false, true}},
		"it is back":        {{0, long, false, false}, {heldFor, nil, false, false}, {2 * heldFor, long, false, false}, {2*heldFor + lastsFor, nil, false, true}},
		"its end":           {{0, memory, true, true}, {1, nil, false, true}, {9 * heldFor, nil, false, true}, {9*heldFor + 1, nil, true, false}},
		"it stands":         {{0, reads, false, false}, {1, reads, false, false}, {lastsFor, nil, false, true}, {9 * heldFor, nil, false, true}, {9*heldFor + 1, reads, false, true}, {9*heldFor + 2, nil, true, false}},
		"nobody's":          {{0, frame(dataplane.GroupGone), false, false}, {lastsFor, nil, false, false}},
		"the last one says": {{0, blocked, false, false}, {lastsFor, long, false, true}},
	} {
		var w Watch
		for i, l := range looks {
			now := begin.Add(l.after)
			w.Step(now, l.frame, l.getsOn)
			row, last, ok := w.Trouble(now)
			if ok != l.want || ok && (row.Says == nil || l.frame != nil && last.Reason != l.frame.Reason) {
				t.Errorf("%s, look %d: %v, want %v", name, i, ok, l.want)
			}
		}
	}
}

// A trouble that stands is told until the sender's QP shows that it lives, a minute after the last
// frame: before that it may end yet.
func TestATroubleThatStands(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, tt := range []struct {
		lives time.Duration
		want  bool
	}{{heldFor - 1, true}, {heldFor, false}, {heldFor + 1, false}} {
		var w Watch
		w.Step(begin, &dataplane.Refused{Reason: dataplane.NotSource}, false)
		w.Lives(begin.Add(tt.lives))
		now := begin.Add(2 * heldFor)
		if _, _, is := w.Trouble(now); is != tt.want {
			t.Errorf("it lives after %v: told %v", tt.lives, is)
		}
		w.Step(now, &dataplane.Refused{Reason: dataplane.NotSource}, false) // its next QP does the same
		w.Step(now.Add(heldFor), nil, false)
		if _, _, is := w.Trouble(now.Add(heldFor)); !is {
			t.Errorf("it lived after %v, and is not told again", tt.lives)
		}
	}
}

func TestARisingCounter(t *testing.T) {
	begin := time.Unix(1000, 0)
	var r Rising
	for i, l := range []struct {
		after       time.Duration
		count       uint64
		want, lasts bool
	}{
		{0, 0, false, false}, {1, 5, true, false}, {2, 5, true, false}, {lastsFor, 6, true, false}, {lastsFor + 1, 7, true, true},
		{heldFor + lastsFor, 7, true, true}, {heldFor + lastsFor + 1, 7, false, false}, {3 * heldFor, 8, true, false}, {3*heldFor + lastsFor, 8, true, false},
	} {
		now := begin.Add(l.after)
		r.Step(now, l.count)
		if got, lasts := r.Trouble(now, false), r.Trouble(now, true); got != l.want || lasts != l.lasts || r.Count() != l.count {
			t.Errorf("look %d: %v and %v, want %v and %v", i, got, lasts, l.want, l.lasts)
		}
	}
}

// Each answer that ends a receiver's QP has a sentence of its own about what to look at.
func TestEveryFatalAnswerHasItsMend(t *testing.T) {
	seen := map[string]roce.Syndrome{}
	for with, want := range map[roce.Syndrome]string{
		roce.NAKRemoteAccess: "regions in the group file (va, length, rkey)", roce.NAKInvalidRequest: "path MTU and remote write access",
		roce.NAKRemoteOperational: "errors of its completions", roce.NAKInvalidRDRequest: "no answer of an RC queue pair",
	} {
		text := Answered(with)
		if other, is := seen[text]; is || !strings.Contains(text, want) || !strings.HasSuffix(text, again) {
			t.Errorf("%v (as %v): %s", with, other, text)
		}
		seen[text] = with
	}
}
