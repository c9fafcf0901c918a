package sim

import (
	"testing"

	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
)

// Every cell that can be simulated holds, and its event and its loss happen. make matrix plays more
// seeds of each.
func TestMatrixHolds(t *testing.T) {
	testlab.Long(t)
	var r Runner
	happened := map[string]Tally{} // by value
	engine := map[string]EngineCount{}
	for _, c := range matrix.Cover(matrix.Simulation, 1) {
		for seed := range uint64(4) {
			result, err := r.RunCell(c, seed)
			if err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			if result.Failure != nil && !IsKnown(c) {
				t.Errorf("%v\nreplay: make matrix IN=simulation SEED=%d CELL='%v'", result.Failure, seed, c)
			}
			for _, value := range []string{"event=" + c.Get("event"), "loss=" + c.Get("loss"), "shape=" + c.Get("shape") + " event=" + c.Get("event")} {
				all := happened[value]
				all.Add(&result.Tally)
				happened[value] = all
			}
			carried := engine[c.Get("engine")]
			carried.Add(&result.Engine)
			engine[c.Get("engine")] = carried
		}
	}
	for event, kind := range map[string]Fault{
		"restart": SwitchCrash, "kill": SwitchCrash, "switch": SourceChange, "join": Join, "leave": Leave, "cut": Cut,
		"refused": KeyLost, "region": MemoryChange, "route-moved": NextHop,
	} {
		if happened["event="+event][kind].Times == 0 {
			t.Errorf("event %s never happened", event)
		}
	}
	for _, event := range []string{"restart", "kill", "cut"} {
		if happened["event="+event][FarCrash].Times == 0 {
			t.Errorf("event %s never happened to a box that relays", event)
		}
	}
	for event, kind := range map[string]Fault{"refused": KeyLost, "region": MemoryChange} {
		if happened["shape=racks event="+event][kind].Times == 0 || happened["shape=tree event="+event][kind].Times == 0 {
			t.Errorf("event %s never happened to a tree, or to one with a rack", event)
		}
	}
	for _, event := range []string{"join", "leave"} {
		if tally := happened["shape=racks event="+event]; tally[Join].Times+tally[Leave].Times == 0 {
			t.Errorf("event %s never happened to a box of a rack", event)
		}
	}
	if happened["event=route-moved"][Move].Times == 0 {
		t.Error("in no tree a receiver moved")
	}
	lost := func(where string) FaultCount { return happened["loss="+where][Loss] }
	if lost("none") != (FaultCount{}) || lost("legs").Data == 0 || lost("uplink").Data == 0 || lost("answers").Feedback == 0 {
		t.Errorf("lost: none %+v, legs %+v, uplink %+v, answers %+v", lost("none"), lost("legs"), lost("uplink"), lost("answers"))
	}
	if engine["auto"].Carried == 0 || engine["afxdp"].Armed != 0 {
		t.Errorf("%+v", engine)
	}
}

// In a tree with a quorum some receivers are behind a box that relays: the root has a path for each
// of them, and the quorum counts them. So whoever is behind that box may join, leave, be cut off or
// refuse, and the box may be away.
func TestCellsOfARelayingBox(t *testing.T) {
	var r Runner
	for _, event := range []string{"none", "restart", "kill", "cut", "join", "leave", "refused", "region", "route-moved"} {
		c, err := matrix.Parse("shape=tree ack=quorum on-fatal=evict loss=legs event=" + event)
		if err != nil {
			t.Fatal(err)
		}
		var all Tally
		behind, shares := 0, 0
		for seed := range uint64(12) {
			s := DrawCell(c, seed)
			for i := range s.Hosts {
				if s.Hosts[i].Far && (s.Timed == nil || s.Timed[0].Host == i || s.Timed[0].Host == 0) {
					behind++
				}
			}
			if s.Edges.Shares {
				shares++
			}
			result, err := r.RunCell(c, seed)
			if err != nil || result.Failure != nil {
				t.Errorf("%v, %v\nreplay: make matrix IN=simulation SEED=%d CELL='%v'", err, result.Failure, seed, c)
			}
			all.Add(&result.Tally)
		}
		if behind == 0 || (shares > 0) != (event != "region") {
			t.Errorf("%v: it happens to %d receivers behind the box, and %d runs share the link", c, behind, shares)
		}
		if mayFail := event == "restart" || event == "kill" || event == "cut"; all[FarCrash].Times > 0 != mayFail || all[Loss].Data == 0 {
			t.Errorf("%v: the box was away %d times, and %d copies were lost", c, all[FarCrash].Times, all[Loss].Data)
		}
	}
}

// In a cell with racks boxes share, whatever else the cell says, and its event happens: also to a
// box that joins a rack or leaves one.
func TestCellsOfRacks(t *testing.T) {
	var r Runner
	for event, kind := range map[string]Fault{
		"none": EdgeDies, "restart": SwitchCrash, "kill": SwitchCrash, "cut": Cut, "join": Join, "leave": Leave, "route-moved": Move,
		"refused": KeyLost, "region": MemoryChange, "none evict=yes": ReceiverCrash, "join on-fatal=evict evict=yes": ReceiverCrash,
	} {
		c, err := matrix.Parse("shape=racks tag=vlan family=ipv6 loss=legs event=" + event)
		if err != nil {
			t.Fatal(err)
		}
		var all Tally
		shared := 0
		for seed := range uint64(12) {
			result, err := r.RunCell(c, seed)
			if err != nil || result.Failure != nil {
				t.Errorf("%v, %v\nreplay: make matrix IN=simulation SEED=%d CELL='%v'", err, result.Failure, seed, c)
			}
			all.Add(&result.Tally)
			if result.Engine.Shared > 0 {
				shared++
			}
		}
		if all[kind].Times == 0 || all[Loss].Data == 0 || shared < 6 {
			t.Errorf("%v: %v happened %d times, %d copies were lost, and boxes share in %d runs", c, kind, all[kind].Times, all[Loss].Data, shared)
		}
	}
}

// A source may use up its retries while the box is away behind which the quorum is.
func TestARelayingBoxIsAwayForLong(t *testing.T) {
	const line = "family=ipv6 mtu=256 engine=afxdp ack=quorum nak=lower evict=yes shape=tree event=kill"
	c, err := matrix.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	var r Runner
	if result, err := r.RunCell(c, 5035); err != nil || result.Failure != nil || result.Status != rnic.RetryExceeded {
		t.Errorf("%v, %v: %v", err, result.Failure, result.Status)
	}
}

// Runs that failed once, or that an oracle took for failures.
func TestCellsThatFailedHold(t *testing.T) {
	const force = " source-switch=force "
	var r Runner
	for _, tt := range []struct {
		seed uint64
		cell string
	}{
		// A source that waits for the time of an RNR NAK sends what lies behind the question.
		{2046105, "mtu=256 engine=afxdp ack=quorum nak=lower regions=none loss=legs event=kill"},
		// Its timer has run out while the switch was away.
		{2005188, "family=ipv6 mtu=4096 nak=lower evict=yes regions=table loss=uplink event=restart"},
		{2005188, "tag=vlan mtu=4096 engine=afxdp nak=lower on-fatal=evict evict=yes regions=table event=restart"},
		// No question reaches it.
		{2049163, "family=ipv6 mtu=256 engine=afxdp ack=quorum nak=lower evict=yes regions=table event=kill"},
		{2011097, "family=ipv6 tag=vlan engine=afxdp ack=quorum nak=lower evict=yes event=restart"},
		{4001103, "mtu=256 engine=afxdp ack=quorum nak=lower evict=yes regions=table loss=uplink event=kill"},
		// The NAK that ends it is lost, and forgotten in the crash: it receives later.
		{2000224, "family=ipv6 tag=vlan mtu=256 ack=quorum on-fatal=evict evict=yes regions=none loss=answers event=kill"},
		// A receiver whose fatal NAK was lost is evicted when the source has used up its retries.
		{2001278, "family=ipv6 tag=vlan mtu=256 engine=afxdp on-fatal=evict evict=yes regions=table loss=answers event=refused"},
		// The NAK that ends it is lost. It goes back, and a receiver joins: it receives later.
		{5001375, "family=ipv6 mtu=256 nak=lower regions=none loss=answers event=join"},
	} {
		c, err := matrix.Parse(tt.cell + force)
		if err != nil {
			t.Fatal(err)
		}
		if result, err := r.RunCell(c, tt.seed); err != nil || result.Failure != nil {
			t.Errorf("%v, %v\nreplay: make matrix IN=simulation SEED=%d CELL='%v'", err, result.Failure, tt.seed, c)
		}
	}
}

// A known failure that fails no longer is deleted from the list.
func TestKnownFailuresFail(t *testing.T) {
	testlab.Long(t)
	cells := matrix.Cover(matrix.Simulation, 1)
	for _, known := range KnownFailures {
		if !fails(t, cells, known.Of) {
			t.Errorf("%s: no run fails any more; take it from KnownFailures", known.Of)
		}
	}
}

func fails(t *testing.T, cells []matrix.Cell, of string) bool {
	t.Helper()
	var r Runner
	for seed := range uint64(40) {
		for _, c := range cells {
			if !c.Has(of) {
				continue
			}
			if result, err := r.RunCell(c, seed); err != nil || result.Failure != nil {
				return err == nil
			}
		}
	}
	return false
}

// A cell with a seed is one run, also when it is replayed.
func TestSameCellSameRun(t *testing.T) {
	var r Runner
	for _, line := range []string{"event=kill loss=legs", "shape=tree tag=vlan loss=answers", "shape=tree ack=quorum event=leave", "source-switch=guard event=switch family=ipv6"} {
		c, err := matrix.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		first, err := r.RunCell(c, 5)
		if err != nil {
			t.Fatal(err)
		}
		again, story, err := r.ReplayCell(c, 5, 3)
		if err != nil || again != first || len(story) < 3 {
			t.Errorf("%s: %+v, then %+v, %v, %d lines", line, first, again, err, len(story))
		}
	}
	c, err := matrix.Parse("shape=etcd")
	if _, runs := r.RunCell(c, 1); err != nil || runs == nil || runs.Error() != "the cell is not simulated: shape=etcd is not run there" {
		t.Errorf("%v, %v", err, runs)
	}
}
