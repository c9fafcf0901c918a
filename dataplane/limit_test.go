package dataplane

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// limits is an engine that notes how far it may carry.
type limits struct {
	FanOut
	set []roce.PSN
}

// aGroup has one receiver, and PSNs from 0.
func aGroup(t *testing.T) *mft.Group {
	host := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, n}) }
	g := &mft.Group{
		IP: host(100), QPN: 1, PathMTU: 1024, Source: mft.Source{Leg: mft.Leg{Dst: host(1)}},
		Paths: []mft.Path{{Leg: mft.Leg{Dst: host(2), Src: host(100)}}},
	}
	if _, err := new(mft.Table).With(g); err != nil {
		t.Fatal(err)
	}
	return g
}

func (l *limits) Limit(_ mft.GroupID, psn roce.PSN) { l.set = append(l.set, psn) }

// Where the kernel cannot do it, a group says so.
func TestWhyThereIsNoEngine(t *testing.T) {
	workers := New(Config{Workers: make([]WorkerConfig, 1), NoFanOut: errors.New("kernel too old")}).Workers()
	if e := workers[0].core.engine.report(newState(aGroup(t)), false); e.Kernel || e.Reason != "kernel too old" {
		t.Errorf("%+v", e)
	}
}

// The messages that the engine carried are counted once, however often it is looked at.
func TestCarriedMessagesAreCountedOnce(t *testing.T) {
	c, st := NewCore(&limits{}), newState(aGroup(t))
	st.fan.at, st.fan.limit = FanWord{Armed: true}, feedback.Window
	for _, w := range []FanWord{
		{PSN: 2, Messages: 1, Inside: true, Armed: true}, {PSN: 2, Messages: 1, Inside: true, Armed: true},
		{PSN: 7, Messages: 4, Armed: true}, {PSN: 9, Messages: 5},
	} {
		c.takeIn(0, st, progress{word: w}, &Outputs{})
		if got := st.merge.Messages(); got != w.Messages || st.merge.NextPSN() != w.PSN || st.merge.Inside() != w.Inside {
			t.Errorf("%+v: %d messages, next PSN %d, inside a message: %v", w, got, st.merge.NextPSN(), st.merge.Inside())
		}
	}
}

// The engine is given more room before it has used half of what it had, and not each time that it
// is looked at.
func TestTheLimitFollowsTheEngine(t *testing.T) {
	engine := &limits{}
	c, st, out := NewCore(engine), newState(aGroup(t)), &Outputs{}
	const room = feedback.Window
	st.fan.at, st.fan.limit, st.fan.merges.why = FanWord{Armed: true}, room-1, errAnswersDecide
	look := func(psn roce.PSN, armed bool, want ...roce.PSN) {
		t.Helper()
		engine.set = nil
		c.takeIn(0, st, progress{word: FanWord{PSN: psn, Armed: armed}}, out)
		if !slices.Equal(engine.set, want) {
			t.Errorf("at %d the limit becomes %d, want %d", psn, engine.set, want)
		}
	}
	look(10, true)
	c.acts, _ = st.merge.Step(0, feedback.Event{
		Kind: feedback.Response, PSN: 9, Syndrome: roce.SyndromeUnlimited,
	}, c.acts[:0])
	look(room/2-1, true)
	look(room/2, true, 9+room)
	look(room/2+9, true)
	look(room/2+10, true) // there is no more to give
	look(room, false)     // it was given back
	if st.fan.carried != room || c.engine.counts.Carried != room || c.engine.counts.Disarmed != 1 {
		t.Errorf("%d packets carried, %+v", st.fan.carried, c.engine.counts)
	}
}
