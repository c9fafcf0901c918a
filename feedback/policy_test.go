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

// A box behind another one finds a silent receiver in half the time, so that the other one does not
// take the whole box for silent.
func TestABoxBelowIsFaster(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		0: 0, 1: MinSilentAfter, MinSilentAfter: MinSilentAfter, 2*MinSilentAfter + 2: MinSilentAfter + 1, time.Second: time.Second / 2,
	} {
		if p := (Policy{SilentAfter: after, Evict: true}).Below(); p.SilentAfter != want || !p.Evict {
			t.Errorf("%v: %+v", after, p)
		}
	}
}
