package view

import (
	"net/netip"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// published returns a version of the group that a text describes, as if the data path had it. Its
// members are behind port eth1.
func published(t *testing.T, text string) *groups.Version {
	t.Helper()
	file, err := groupfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	open := ports.New([]dataplane.PortInfo{{Name: "eth1", IfIndex: 1, State: dataplane.PortUp}})
	v := &groups.Version{Name: file.Name, Wanted: file, File: file, Kept: true, ID: 1}
	v.Plan = plan.Make(file, open, func(netip.Addr) nexthop.Hop { return ctltest.Hop(1, "eth1", 1500, 1) })
	if v.Published, err = v.Plan.Group(file, nil, new(chronicle.Chronicle), false, nil); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWhatIsShownOfAReceiversProgress(t *testing.T) {
	v := published(t, ctltest.G1)
	first := v.File.Source.FirstPSN
	m := &v.File.Receivers[0]
	show := func(p feedback.PathSnapshot, paths int) api.Reach {
		var r api.Reach
		state := dataplane.GroupState{}
		state.Paths, state.Receivers = make([]feedback.PathSnapshot, paths), make([]dataplane.Receiver, paths)
		state.Repaired = make([]uint64, paths)
		if paths > 0 {
			path := v.Published.FindPath(m.IP, m.RemoteQPN)
			state.Group = v.Published
			state.Paths[path], state.Receivers[path].NAKs = p, 5
		}
		addProgress(v, &r, m, state)
		return r
	}
	for _, part := range []feedback.Part{feedback.PartUnknown, feedback.PartJoining, feedback.PartActive} {
		r := show(feedback.PathSnapshot{Part: part, Acked: first.Add(7)}, 2)
		if r.Part != part.String() || r.NAKs != 5 || (r.Acked != nil) != (part == feedback.PartActive) || r.Pending != "" || r.Acked != nil && *r.Acked != 1007 {
			t.Errorf("%v: %+v", part, r)
		}
		if (r.Reason == notHeard) != (part == feedback.PartUnknown) {
			t.Errorf("%v: its reason is %q", part, r.Reason)
		}
	}
	if r := show(feedback.PathSnapshot{Part: feedback.PartActive, Pending: roce.NAKSequence}, 2); r.Pending != roce.NAKSequence.String() {
		t.Errorf("with a NAK that waits: %+v", r)
	}
	if r := show(feedback.PathSnapshot{Part: feedback.PartActive, Acked: first.Prev()}, 2); r.Acked != nil {
		t.Errorf("before its first answer: %+v", r)
	}
	if r := show(feedback.PathSnapshot{}, 0); r.Part != "" {
		t.Errorf("before the data path has a state: %+v", r)
	}
}

func TestWhoCarriesAGroupIsShown(t *testing.T) {
	var e api.Engine
	if addEngine(&e, dataplane.EngineState{Kernel: true, Carried: 9}); e.Carrier != api.CarrierKernel || e.Carried != 9 {
		t.Errorf("%+v", e)
	}
}

func TestCountersOfOneNameAreAdded(t *testing.T) {
	if c := Counters([]dataplane.Counter{{Name: "a", Value: 1}, {Name: "b", Value: 2}, {Name: "a", Value: 3}}); c["a"] != 4 || c["b"] != 2 {
		t.Errorf("%v", c)
	}
}

// A receiver may have more than its group was seen to send, after a restart.
func TestALagIsNotNegative(t *testing.T) {
	for acked, want := range map[roce.PSN]uint32{999: 1, 1000: 0, 1001: 0} {
		if r := repairOf(&feedback.PathSnapshot{Acked: acked}, 1000); r.Lag != want {
			t.Errorf("acked %d: lag %d, want %d", acked, r.Lag, want)
		}
	}
}

// A group that hardly gets on because its link carries a copy for each receiver says so.
func TestASlowGroupNamesALegThatReachesNobody(t *testing.T) {
	v := &groups.Version{Found: groups.Findings{DeadLegs: "shared copies reach nobody", Seen: "5 packets a second get on", Last: "the last is 10.77.0.3"}}
	if got := SlowBecause(v); got != "shared copies reach nobody; 5 packets a second get on" {
		t.Error(got)
	}
}
