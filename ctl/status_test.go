package ctl

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

func TestAHealthyBoxHasNoProblem(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Workers = 3
	s := w.statusAt(w.started.Add(90 * time.Second))
	if !s.Healthy || !s.Ready || s.Problems == nil || len(s.Problems) != 0 || s.Uptime != 90 || s.Workers != 3 || s.Started.Sub(w.started).Abs() > time.Second {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff(map[string]int{"up": 3, "down": 0, "gone": 0, "failed": 0}, s.Ports); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"ready": 1, "waiting": 0, "degraded": 0, "failed": 0}, s.Groups); diff != "" {
		t.Error(diff)
	}
}

// The services' problems stand behind those of operators, and block nothing.
func TestTheStatusHasWhatTheServicesSay(t *testing.T) {
	s := view.Status(time.Now(), &view.Box{Services: []api.Problem{{Of: api.OfService, Name: "10.77.0.100", State: api.Degraded}}, Notes: []string{"a note"}})
	if s.Healthy || !s.Ready || len(s.Problems) != 1 || s.Problems[0].Of != "service" || len(s.Notes) != 1 || s.Notes[0] != "a note" {
		t.Errorf("%+v", s)
	}
}

// A group that is degraded because of a receiver is clear to send, and a port without a link is
// there: the box is not healthy, but ready.
func TestAnUnhealthyBoxMayBeReady(t *testing.T) {
	r := newRunner(t, "")
	r.note(dataplane.Note{Group: r.groups.Named("g1").ID, Receiver: addr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteSilent})
	r.sw.SetPort(2, dataplane.PortDown, 3)
	r.network.Refresh()
	s := r.Status()
	want := []api.Problem{
		{Of: "port", Name: "eth3", State: "down", Reason: "its link is down"},
		{Of: "group", Name: "g1", State: "degraded", Reason: "10.77.0.3: it has stalled: it acknowledges nothing, and others are further"},
	}
	if diff := cmp.Diff(want, s.Problems); diff != "" || s.Healthy || !s.Ready || s.Groups["degraded"] != 1 || s.Ports["down"] != 1 {
		t.Errorf("%+v %s", s, diff)
	}
}

func TestABoxThatLacksAPortOrWaitsForAMemberIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.create(t, strings.ReplaceAll(g1, "{ip: 10.77.0.3,", "{confirm: true, ip: 10.77.0.3,"))
	const unconfirmed = "10.77.0.3: its program has not confirmed that its QP is ready (rocast member ready)"
	want := []api.Problem{{Of: "group", Name: "g1", State: "waiting", Reason: unconfirmed, Blocks: true}}
	if s := w.Status(); cmp.Diff(want, s.Problems) != "" || s.Ready {
		t.Errorf("%+v", s)
	}
	w.sw.SetPort(1, dataplane.PortGone, 0)
	w.network.Refresh()
	s := w.Status()
	if p := s.Problems; len(p) != 2 || p[0] != (api.Problem{Of: "port", Name: "eth2", State: "gone", Reason: "no interface has this name", Blocks: true}) || !strings.HasSuffix(p[1].Reason, "; and 1 more") {
		t.Errorf("%+v", s)
	}
}

// While a worker is stuck, a change of a group may hold the lock. The status says so all the same,
// and nothing that may be old.
func TestAStuckWorkerIsToldWithoutTheLock(t *testing.T) {
	w := newWorld(t)
	release, done := make(chan struct{}), make(chan struct{})
	w.Switch = stuckSwitch{w.sw, release}
	w.groups.Lock()
	go func() { defer close(done); w.Beat() }()
	now := time.Now()
	underWay := func() bool { return w.pulse.alive(now.Add(time.Hour)) != nil }
	testlab.Eventually(t, testlab.Patience, "the beat has begun", underWay, nil)
	s := w.statusAt(now.Add(7 * time.Second))
	if len(s.Problems) != 1 || s.Problems[0].Of != "worker" || !s.Problems[0].Blocks || s.Ready || s.Healthy || s.Ports != nil || s.Groups != nil {
		t.Errorf("%+v", s)
	}
	w.groups.Unlock()
	if err := w.Alive(); err != nil {
		t.Errorf("%v, although the batch is a moment old", err)
	}
	close(release)
	<-done
	if err := w.pulse.alive(now.Add(time.Hour)); err != nil {
		t.Errorf("%v, although the batch has ended", err)
	}
}

func TestAWorkerIsStuckAfterFiveSeconds(t *testing.T) {
	p := pulse{began: time.Unix(100, 0)}
	if err := p.alive(time.Unix(105, 0)); err != nil {
		t.Error(err)
	}
	want := "a forwarding thread has not ended its batch for 6s"
	if err := p.alive(time.Unix(106, 5e8)); err == nil || err.Error() != want {
		t.Error(err)
	}
}

// stuckSwitch ends no batch before release is closed.
type stuckSwitch struct {
	Switch
	release chan struct{}
}

func (s stuckSwitch) EndBatches() { <-s.release }
