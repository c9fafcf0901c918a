package watch

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

func TestNewsAboutAReceiverNameGroupAndReason(t *testing.T) {
	w := newWorld(t)
	w.create(t, ctltest.G1)
	w.note(dataplane.Note{
		Group: w.Groups.Named("g1").ID, Receiver: netip.MustParseAddr("10.77.0.3"), What: feedback.NoteFatal, PSN: 1007, Syndrome: roce.NAKRemoteAccess,
	})
	entries := w.logs.FilterMessage("member event").All()
	if len(entries) != 1 {
		t.Fatalf("logged %v", entries)
	}
	got := entries[0].ContextMap()
	if got["group"] != "g1" || got["member"] != "10.77.0.3" || got["event"] != "fatal" || got["psn"] != uint32(1007) || got["answer"] != roce.NAKRemoteAccess.String() {
		t.Errorf("logged %v", got)
	}
}

// The groups are not locked between two notes.
func TestWatchGoesOnAfterAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create(t, ctltest.G1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.FollowNotes(ctx) }()
		for _, ip := range []string{"10.77.0.2", "10.77.0.3"} {
			w.sw.Notify(dataplane.Note{Group: w.Groups.Named("g1").ID, Receiver: netip.MustParseAddr(ip), What: feedback.NoteFatal, PSN: 1007})
			synctest.Wait()
			w.Groups.Lock() // which waits for ever if the change has not ended
			there := w.Groups.Named("g1") != nil
			w.Groups.Unlock()
			if !there {
				t.Fatal("the group has gone")
			}
		}
		if n := w.logs.FilterMessage("member event").Len(); n != 2 {
			t.Errorf("%d events are logged", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
