package ctl

import (
	"net/netip"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

func TestNewsAboutAReceiverNameGroupAndReason(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.hear(dataplane.Note{
		Group: w.groups["g1"].id, Receiver: netip.MustParseAddr("10.77.0.3"), What: feedback.NoteFatal, PSN: 1007, Syndrome: roce.NAKRemoteAccess,
	})
	entries := w.logs.FilterMessage("member").All()
	if len(entries) != 1 {
		t.Fatalf("logged %v", entries)
	}
	got := entries[0].ContextMap()
	if got["group"] != "g1" || got["member"] != "10.77.0.3" || got["event"] != "fatal" || got["psn"] != uint32(1007) || got["answer"] != roce.NAKRemoteAccess.String() {
		t.Errorf("logged %v", got)
	}
}
