package feedback

import (
	"testing"
	"time"
)

// Group files, the API and people read and write policies by their names.
func TestPolicyNames(t *testing.T) {
	for _, c := range []struct {
		name   string
		value  any
		parsed func(string) (any, error)
	}{
		{"all", AckAll, func(s string) (any, error) { return ParseAck(s) }},
		{"quorum 1", AckPolicy(1), func(s string) (any, error) { return ParseAck(s) }},
		{"quorum 65535", AckPolicy(65535), func(s string) (any, error) { return ParseAck(s) }},
		{"hold", NakHold, func(s string) (any, error) { return ParseNak(s) }},
		{"lower", NakLower, func(s string) (any, error) { return ParseNak(s) }},
		{"fail", FatalFail, func(s string) (any, error) { return ParseFatal(s) }},
		{"evict", FatalEvict, func(s string) (any, error) { return ParseFatal(s) }},
		{"filter", CNPFilter, func(s string) (any, error) { return ParseCNP(s) }},
		{"all", CNPAll, func(s string) (any, error) { return ParseCNP(s) }},
		{"guard", SwitchGuard, func(s string) (any, error) { return ParseSwitch(s) }},
		{"force", SwitchForce, func(s string) (any, error) { return ParseSwitch(s) }},
		{"unlimited", CreditsUnlimited, func(s string) (any, error) { return ParseCredits(s) }},
		{"merge", CreditsMerge, func(s string) (any, error) { return ParseCredits(s) }},
	} {
		if got, err := c.parsed(c.name); err != nil || got != c.value {
			t.Errorf("%q is %v, %v", c.name, got, err)
		}
		if got := c.value.(interface{ String() string }).String(); got != c.name {
			t.Errorf("%T: %q, want %q", c.value, got, c.name)
		}
		if got, err := c.parsed("nonsense"); err == nil {
			t.Errorf("%T: nonsense is %v", c.value, got)
		}
	}
	for _, name := range []string{"", "quorum", "quorum 0", "quorum -1", "quorum 65536", "quorum 2 ", "2", "quorum all"} {
		if got, err := ParseAck(name); err == nil {
			t.Errorf("%q is %v", name, got)
		}
	}
}

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
