package view

import (
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
)

// What the box saw of a group is its trouble, with the time of the event that told of it first.
func TestWhatTheBoxSaw(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	events := []api.Event{{Kind: api.GroupCreated, Time: at.Add(-time.Hour)}, {Kind: api.MemberRefused, Time: at}, {Kind: api.GroupDegraded, Time: at.Add(time.Hour)}}
	v := published(t, ctltest.G1)
	if got := Saw(v, events); got != "" {
		t.Errorf("of a group without trouble %q", got)
	}
	v.Found.Degraded, v.Found.Seen = true, "packets wait, and none gets on"
	if got := Saw(v, events); got != "packets wait, and none gets on (since 03:04:05)" {
		t.Error(got)
	}
	v.Found.Refusals.Add(v.ID, v.File.Receivers[0].ID(), "it has answered")
	if got := Saw(v, events); got != v.File.Receivers[0].IP.String()+": it has answered (since 03:04:05)" {
		t.Error(got)
	}
	later := append(events, api.Event{Kind: api.GroupRestored, Time: at.Add(2 * time.Hour)}, api.Event{Kind: api.MemberRefused, Time: at.Add(3 * time.Hour)})
	if got := Saw(v, later); got != v.File.Receivers[0].IP.String()+": it has answered (since 06:04:05)" {
		t.Errorf("once more after a trouble that is over: %q", got)
	}
	if got := Saw(v, events[:1]); got != v.File.Receivers[0].IP.String()+": it has answered" {
		t.Errorf("without an event of it: %q", got)
	}
}
