package cm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// told returns the events of a lab, and its troubles.
func (l *lab) told() ([]api.Event, Trouble) {
	s := l.service()
	s.mu.Lock()
	defer s.mu.Unlock()
	var t Trouble
	if all := l.proxy.Troubles(); len(all) > 0 {
		t = all[0]
	}
	return l.box.events, t
}

// Who is refused because of others, and whose source does not answer, stands in the log, among the
// events and in the status. Many refusals are one line.
func TestWhatIsToldOfSources(t *testing.T) {
	l := newLab(t)
	if _, trouble := l.told(); len(l.proxy.Troubles()) != 0 {
		t.Errorf("before anything has happened: %+v", trouble)
	}
	s := l.service()
	s.mu.Lock()
	s.machine.config.Memory = Perftest
	s.mu.Unlock()
	rep, _ := l.connect()
	second := func(commID uint32) {
		l.send(l.a, testREQ(hostIPs["a"], commID, 2, roce.QPN(commID), 1000))
		expect[*wire.REP](l, l.a) // it is asked whether it is there
		l.send(l.a, &wire.RTU{Pair: swap(rep.Pair)})
		const want = "the run of 10.77.0.1 has not ended; it ends in 30 s unless source 10.77.0.1 goes on"
		rej := expect[*wire.REJ](l, l.a)
		s.mu.Lock()
		if r := s.machine.run; r.due != 0 || len(r.waiting) > 0 { // it has answered
			t.Errorf("the source is still asked: %+v", r.contest)
		}
		s.mu.Unlock()
		if text := strings.TrimRight(string(rej.PrivateData[:]), "\x00"); rej.Reason != wire.NoResources || text != want {
			t.Errorf("%v, %q", rej.Reason, text)
		}
	}
	second(50)
	before := time.Now()
	second(51)
	events, trouble := l.told()
	const cause = "by RDMA-CM at 10.77.0.100: the run of 10.77.0.1 has not ended; it ends in 30 s unless source 10.77.0.1 goes on"
	if len(events) != 1 || events[0].Kind != api.ConnectionRefused || events[0].Member != "10.77.0.1" || events[0].Cause != cause {
		t.Errorf("%+v", events)
	}
	if r := trouble.Refused; r.Source != hostIPs["a"] || !strings.HasPrefix(r.Says, "the run of") || r.At.Before(before) || trouble.GroupIP != groupIP || len(trouble.Silent) != 0 {
		t.Errorf("%+v", trouble)
	}
	l.logged("RDMA-CM connection established", "RDMA-CM connection refused")

	l.logs.TakeAll()
	s.mu.Lock()
	c := s.machine.run.control
	s.machine.limits.inRun, c.probe = 20*time.Millisecond, s.machine.now
	s.mu.Unlock()
	s.step(nil)
	testlab.Eventually(t, testlab.Patience, "silent", func() bool { events, _ = l.told(); return len(events) > 1 }, nil)
	if _, trouble := l.told(); events[1].Kind != api.ConnectionSilent || len(trouble.Silent) != 1 || trouble.Silent[0].Source != hostIPs["a"] || trouble.Silent[0].Ends.IsZero() {
		t.Errorf("%+v, %+v", events[1], trouble)
	}
	s.mu.Lock()
	c.probe = s.machine.now + time.Hour
	s.mu.Unlock()
	l.send(l.a, &wire.RTU{Pair: swap(rep.Pair)})
	testlab.Eventually(t, testlab.Patience, "returned", func() bool { events, _ = l.told(); return len(events) > 2 }, nil)
	if _, trouble := l.told(); events[2].Kind != api.ConnectionReturned || len(trouble.Silent) != 0 {
		t.Errorf("%+v, %+v", events[2], trouble)
	}
	l.logged("the source of an RDMA-CM connection does not answer", "the source of an RDMA-CM connection answers again")
}

// The log's line about an end has what the box saw of the group, also if the group stays.
func TestTheLogHasWhatTheBoxSaw(t *testing.T) {
	l := newLab(t)
	l.box.mu.Lock()
	l.box.saw = "10.77.0.3: it has answered packet 7"
	l.box.mu.Unlock()
	rep, _ := l.connect()
	l.box.refuses(errors.New("busy"))
	l.disconnect(rep)
	const ended = "RDMA-CM connection ended"
	testlab.Eventually(t, testlab.Patience, "logged", func() bool { return l.logs.FilterMessage(ended).Len() == 1 }, nil)
	const want = "the source disconnected; before that the box saw: 10.77.0.3: it has answered packet 7"
	if got := l.logs.FilterMessage(ended).All()[0].ContextMap()["reason"]; got != want {
		t.Errorf("%v", got)
	}
	if c := l.connections()[0]; c.Reason != want {
		t.Errorf("%+v", c)
	}
}

// The packets of a run's source are counted by those who carry them.
func TestTheServiceCountsPackets(t *testing.T) {
	l := newLab(t)
	s := l.service()
	s.mu.Lock()
	s.machine.config.Memory = Perftest
	s.mu.Unlock()
	l.connect()
	s.mu.Lock()
	r := s.machine.run
	r.data, r.transfers = []*connection{{state: Established, group: "g"}}, true
	r.control.probe = s.machine.now
	s.mu.Unlock()
	s.step(nil)
	testlab.Eventually(t, testlab.Patience, "counted", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return r.control.packets == 5 && !r.control.counting
	}, nil)
	s.mu.Lock()
	r.data = nil
	s.mu.Unlock()
}
