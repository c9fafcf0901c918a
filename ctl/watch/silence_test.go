package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// hush plays group g1, whose second receiver has everything, at moments after the first one.
type hush struct {
	*runner
	start time.Time
	sent  roce.PSN
	two   feedback.PathSnapshot
}

func newHush(t *testing.T) *hush {
	r := newRunner(t, "degraded-after: 0\n") // without it, too
	return &hush{runner: r, start: r.now, sent: 2000, two: feedback.PathSnapshot{Part: feedback.PartActive, Acked: 1500}}
}

// expect looks at the group at a moment and at the hosts that are asked for then.
func (h *hush) expect(t *testing.T, at time.Duration, want string) {
	t.Helper()
	h.sw.Carry("g1", h.sent)
	h.sw.Repair("10.77.0.2", h.two, 0)
	h.sw.Repair("10.77.0.3", feedback.PathSnapshot{Part: feedback.PartActive, Acked: h.sent}, 0)
	h.Look("g1", h.start.Add(at))
	if got := strings.Trim(fmt.Sprint(h.hops.Doubted()), "[]"); got != want {
		t.Errorf("after %v: asked for %q, want %q", at, got, want)
	}
}

const silentHost = "10.77.0.2"

func TestTheMACOfASilentReceiverIsAskedForAgainAndAgain(t *testing.T) {
	h := newHush(t)
	h.expect(t, 0, "")
	h.expect(t, doubtAfter-1, "")
	at := time.Duration(0)
	for pause := doubtAfter; pause <= 4*doubtPause; pause *= 2 {
		at += min(pause, doubtPause)
		h.expect(t, at-1, "")
		h.expect(t, at, silentHost)
	}
}

func TestWhoAnswersIsNotAskedFor(t *testing.T) {
	for name, answer := range map[string]func(h *hush){
		"it acknowledges": func(h *hush) { h.two.Acked++ },
		"it sends a NAK":  func(h *hush) { h.sw.Answer(silentHost, dataplane.Receiver{NAKs: 1}) },
		"it is not ready": func(h *hush) { h.sw.Answer(silentHost, dataplane.Receiver{RNRs: 1}) },
		"it has them all": func(h *hush) { h.two.Acked = h.sent },
		"it has ended":    func(h *hush) { h.two.Part = feedback.PartDead },
		"it is behind":    func(h *hush) { h.two.Part = feedback.PartBehind },
		"it is joining":   func(h *hush) { h.two.Part = feedback.PartJoining },
		"another source":  func(h *hush) { h.sw.Happens(h.noteOf(feedback.NoteSource, "10.77.0.3", 9)) },
		"another group":   func(h *hush) { h.again(t) },
	} {
		h := newHush(t)
		h.expect(t, 0, "")
		answer(h)
		h.expect(t, doubtAfter, "")
		if strings.HasPrefix(name, "it sends") || strings.HasPrefix(name, "it acknowledges") {
			h.expect(t, 2*doubtAfter, silentHost) // silent since then
		}
	}
	r := newRunner(t, "")
	r.world = r.restart(t)
	r.sw.Repair(silentHost, feedback.PathSnapshot{Part: feedback.PartActive, Acked: 500}, 0)
	for i, started := range []bool{false, false, true, true} { // where the source is after a restart is not known
		if started {
			r.sw.Carry("g1", 2000)
		}
		r.Look("g1", r.now.Add(time.Duration(i)*time.Second))
		if got := r.hops.Doubted(); len(got) != 0 != (i == 3) {
			t.Errorf("second %d: %v", i, got)
		}
	}
	h := newHush(t)
	h.two.Part = feedback.PartUnknown
	h.expect(t, 0, "")
	h.expect(t, doubtAfter, silentHost) // since a restart
}

// A source whose MAC has changed hears no acknowledgement, so it sends what all have again and
// again.
func TestTheMACOfASourceThatHearsNothingIsAskedFor(t *testing.T) {
	const source = "10.77.0.1"
	h := newHush(t)
	h.two.Acked = h.sent
	all := func(at time.Duration, want string) {
		t.Helper()
		h.sw.Merge(h.Groups.Named("g1").ID, h.sent)
		h.expect(t, at, want)
	}
	all(0, "")
	all(doubtAfter, "") // it has nothing to send
	h.sw.Count("filtered")
	all(doubtAfter+1, source)
	all(4*doubtAfter, "") // it was quiet since then
	h.sw.Count("filtered")
	h.sw.Count("resent")
	all(4*doubtAfter+1, source)
	h.sw.Count("filtered")
	all(8*doubtAfter, "") // the pause is twice as long each time
	all(8*doubtAfter+1, source)

	h.sent++ // it has heard
	h.two.Acked++
	h.sw.Count("resent")
	all(20*doubtAfter, "")
	all(21*doubtAfter-1, "")
	h.sw.Count("resent")
	all(21*doubtAfter-1, "")
	all(21*doubtAfter, source)

	h.sw.Count("resent")
	h.two.Acked-- // it has to send again what a receiver lacks
	h.sw.Merge(h.Groups.Named("g1").ID, h.two.Acked)
	h.expect(t, 60*doubtAfter, "")
	h.two.Acked++
	all(60*doubtAfter+1, "")
	h.sw.Count("resent")
	all(60*doubtAfter+2, source)

	h.sw.Happens(h.noteOf(feedback.NoteSource, "10.77.0.3", 9))
	h.two.Acked = h.sent
	all(61*doubtAfter, "")
	h.sw.Count("resent")
	all(62*doubtAfter, "10.77.0.3")
}
