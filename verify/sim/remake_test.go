package sim

import (
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// leftovers is a core that counts what there is of groups that were removed.
type leftovers struct {
	forwarder
	w *world
	*leftoverCounts
}

type leftoverCounts struct {
	frames   int // that came to the core later
	retained int // groups of which the core retained packets
	engine   int // groups that had memory in the engine
}

func (l *leftovers) Handle(now feedback.Tick, t *mft.Table, f *dataplane.Frame, out *dataplane.Outputs) dataplane.Reason {
	reason := l.forwarder.Handle(now, t, f, out)
	if reason == dataplane.GroupGone {
		l.frames++
	}
	return reason
}

func (l *leftovers) Forget(id mft.GroupID) {
	if packets, _ := l.Retained(); packets > 0 {
		l.retained++
	}
	if e := l.w.box.engine; e != nil && e.Retains(id) > 0 {
		l.engine++
	}
	l.forwarder.Forget(id)
}

// Whatever the switch still has of a group that was removed, the group that is made with the same
// numbers sees nothing of it.
func TestAGroupIsMadeAgainWithTheSameNumbers(t *testing.T) {
	var r Runner
	var of leftoverCounts
	r.w.wrap = func(w *world, core forwarder) forwarder { return &leftovers{core, w, &of} }
	for seed := range uint64(300) {
		d := newDrawer(seed)
		s := d.scenario(seed, StandardReceivers, StandardPackets)
		s.Removed = d.removed(&s)
		if result := play(t, &r, s); result.Failure != nil {
			t.Fatalf("seed %d: %v\n%v", seed, result.Failure, &s)
		}
	}
	if of.frames == 0 || of.retained == 0 || of.engine == 0 {
		t.Errorf("of removed groups there was: %+v", of)
	}
}
