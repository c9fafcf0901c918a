package feedback

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/roce"
)

// A snapshot has the progress of the group and of its paths.
func TestSnapshot(t *testing.T) {
	g := New(Config{Paths: 3, FirstPSN: 10})
	for _, ev := range []Event{
		{Kind: Data, PSN: 10, First: true, Last: true},
		{Kind: Data, PSN: 11, First: true},
		{Kind: Data, PSN: 12, AckReq: true, Last: true},
		{Kind: Response, Path: 0, PSN: 12, MSN: 2, Syndrome: roce.SyndromeUnlimited},
		{Kind: Response, Path: 1, PSN: 10, MSN: 1, Syndrome: roce.SyndromeUnlimited},
		{Kind: Response, Path: 2, PSN: 12, MSN: 1, Syndrome: roce.NAKSequence},
		{Kind: Response, Path: 1, PSN: 12, MSN: 1, Syndrome: roce.NAKRemoteAccess},
		{Kind: Data, PSN: 11, First: true},
	} {
		g.Step(0, ev, nil)
	}
	want := Snapshot{
		Started: true, Sent: 12, Pos: 11, Merged: 11,
		Paths: []PathSnapshot{
			{Part: PartActive, Acked: 12, MSN: 2},
			{Part: PartDead, Acked: 11, MSN: 1, Pending: roce.NAKRemoteAccess},
			{Part: PartActive, Acked: 11, MSN: 1, Pending: roce.NAKSequence},
		},
	}
	if diff := cmp.Diff(want, g.Snapshot()); diff != "" {
		t.Error(diff)
	}
	between := New(Config{Paths: 1, FirstPSN: 10})
	for k, ev := range []Event{
		{Kind: Response, Path: 0, PSN: 9, Syndrome: roce.SyndromeUnlimited}, // says nothing
		{Kind: Data, PSN: 10, First: true},
		{Kind: Response, Path: 0, PSN: 10, MSN: 0, Syndrome: roce.SyndromeUnlimited},
		{Kind: Data, PSN: 11, Last: true},
		{Kind: Response, Path: 0, PSN: 11, MSN: 1, Syndrome: roce.SyndromeUnlimited},
	} {
		between.Step(0, ev, nil)
		if is := between.Snapshot().Between; is != (k == 0 || k == 4) {
			t.Errorf("after event %d the group is between messages: %v", k, is)
		}
	}
	mended := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2, FirstPSN: 10})
	for _, ev := range []Event{
		{Kind: Data, PSN: 10, First: true}, {Kind: Data, PSN: 11, AckReq: true, Last: true},
		{Kind: Response, Path: 0, PSN: 11, MSN: 1, Syndrome: roce.SyndromeUnlimited},
		{Kind: Timer},
	} {
		mended.Step(Tick(ev.PSN), ev, nil)
	}
	for range 8 {
		mended.Step(Tick(1e9), Event{Kind: Timer}, nil)
		got := mended.Snapshot().Paths[1]
		want := PathSnapshot{Part: PartActive, Acked: 9, Cursor: 12, Repaired: 1, Probes: 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	mended.Step(Tick(1e9), Event{Kind: Response, Path: 1, PSN: 10, Syndrome: roce.SyndromeRNR(shortestRNR)}, nil)
	mended.Step(Tick(2e9), Event{Kind: Timer}, nil)
	probed := PathSnapshot{Part: PartActive, Acked: 9, Repairing: true, Cursor: 11, Repaired: 2, Probes: 2}
	if diff := cmp.Diff(probed, mended.Snapshot().Paths[1]); diff != "" {
		t.Error(diff)
	}
	if got := mended.RepairTally(); got.Probes != 2 {
		t.Errorf("%+v", got)
	}
	mended.Step(Tick(2e9), Event{Kind: Lost, PSN: 11}, nil)
	want.Paths = []PathSnapshot{
		{Part: PartActive, Acked: 11, MSN: 1, Cursor: 12},
		{Part: PartActive, Acked: 9, Cursor: 12, Repaired: 2, Probes: 2, GivenUp: 1, Unmended: true},
	}
	if diff := cmp.Diff(want.Paths, mended.Snapshot().Paths); diff != "" {
		t.Error(diff)
	}
	restored := New(Config{Paths: 1, Restored: true}).Snapshot()
	if restored.Started || restored.Paths[0].Part != PartUnknown {
		t.Errorf("after a restart: %+v", restored)
	}
}

// The tally of a group outlives its sources and its members.
func TestTheRepairTallyOnlyGrows(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2, FirstPSN: 10})
	long := roce.SyndromeRNR(0) // 655 ms: the source's to wait
	for _, ev := range []Event{
		{Kind: Data, PSN: 10, First: true, AckReq: true, Last: true},
		{Kind: Timer},
		{Kind: Response, Path: 0, PSN: 10, MSN: 1, Syndrome: roce.SyndromeUnlimited},
		{Kind: Response, Path: 1, PSN: 10, Syndrome: long},
	} {
		g.Step(0, ev, nil)
	}
	g.Step(Tick(DefaultRepairTimerCap), Event{Kind: Data, PSN: 10, First: true, AckReq: true, Last: true}, nil)
	if got := g.RepairTally(); got != (RepairTally{GivenUp: [...]uint64{GivenUpRNR: 1, GivenUpNotRetained: 0}}) {
		t.Errorf("%+v", got)
	}
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 10, MSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
	g.Step(0, Event{Kind: Data, PSN: 11, First: true, AckReq: true, Last: true}, nil)
	g.Step(Tick(DefaultRepairTimerCap), Event{Kind: Timer}, nil) // both are silent
	g.Step(Tick(time.Second), Event{Kind: Timer}, nil)
	g.SwitchSource(SourceSwitch{PSN: 77, OldPath: -1, NewPath: 1}, nil)
	g.Rearrange([]int{1}, nil, nil)
	if got := g.RepairTally(); got != (RepairTally{Probes: 4, GivenUp: [...]uint64{GivenUpRNR: 1, GivenUpNotRetained: 0}}) {
		t.Errorf("%+v", got)
	}
}

// Without repair nothing is retained.
func TestOldestWithoutRepair(t *testing.T) {
	g := New(Config{Paths: 1, FirstPSN: 10})
	g.Step(0, Event{Kind: Data, PSN: 10}, nil)
	g.Step(0, Event{Kind: Lost, PSN: 10}, nil)
	if got := g.Oldest(); got != 11 || g.Waiting() {
		t.Errorf("retained from %d on, waiting %v", got, g.Waiting())
	}
	if got := g.RepairTally(); got != (RepairTally{}) {
		t.Errorf("%+v", got)
	}
}

// A silent source that is sent back to its newest packet is counted.
func TestTheRepairTallyCountsCalls(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1, FirstPSN: 10})
	g.Step(0, Event{Kind: Data, PSN: 10, First: true}, nil)
	g.Step(0, Event{Kind: Timer}, nil)
	g.Step(muteAfter, Event{Kind: Timer}, nil) // the receiver is asked
	g.Step(muteAfter, Event{Kind: Response, PSN: 10, Syndrome: roce.SyndromeUnlimited}, nil)
	if got := g.RepairTally(); got != (RepairTally{Called: 1}) {
		t.Errorf("%+v", got)
	}
}
