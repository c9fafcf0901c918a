package feedback

import (
	"testing"
	"time"
)

// A group whose policy depends on time gets Timer events; for any other one they would be wasted.
func TestNeedsTimer(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		want   bool
	}{
		{Policy{}, false},
		{Policy{Ack: 2, Nak: NakLower, Evict: true, CNPInterval: time.Second}, false},
		{Policy{SilentAfter: 1}, true},
	} {
		if got := c.policy.NeedsTimer(); got != c.want {
			t.Errorf("%+v: %v", c.policy, got)
		}
	}
}

// docs/merging.md says how long and how often the switch repairs where a group's file does not.
func TestTheDefaultsOfRepair(t *testing.T) {
	want := Policy{RepairWindow: 1024, RepairAttempts: 7, RepairTimerFloor: 50 * time.Microsecond, RepairTimerCap: 16 * time.Millisecond}
	if got := (Policy{}).WithDefaults(); got != want {
		t.Errorf("%+v", got)
	}
}

// A policy without repair is that of a group that never had any.
func TestAPolicyWithoutRepair(t *testing.T) {
	want := Policy{
		Ack: 2, Nak: NakLower, OnFatal: FatalEvict, CNP: CNPAll, CNPInterval: time.Second, Credits: CreditsMerge,
		Switch: SwitchForce, SilentAfter: time.Second, Evict: true,
	}
	with := want
	with.Repair, with.RepairBytes = RepairLocal, 4096
	if got := with.WithDefaults().WithoutRepair(); got != want {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
}
