package ports

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

var (
	up     = dataplane.PortInfo{Name: "eth1", IfIndex: 9, State: dataplane.PortUp, Opened: 1}
	down   = dataplane.PortInfo{Name: "eth2", IfIndex: 3, State: dataplane.PortDown, Opened: 1}
	failed = dataplane.PortInfo{Name: "eth3", IfIndex: 5, State: dataplane.PortFailed, Reason: "a reason"}
	gone   = dataplane.PortInfo{Name: "eth4", State: dataplane.PortGone, Reason: "no interface"}
)

func TestOpenPorts(t *testing.T) {
	for range 20 { // a map is walked in another order each time
		s := New([]dataplane.PortInfo{gone, up, failed, down})
		if got := s.Open(); !slices.Equal(got, []int{3, 9}) {
			t.Fatalf("open are %v", got)
		}
	}
	s := New([]dataplane.PortInfo{up, failed})
	if p, found := s.ByIfIndex(9); !found || p.Name != "eth1" {
		t.Errorf("%+v, %v", p, found)
	}
	for _, ifIndex := range []int{5, 4, 0} {
		if p, found := s.ByIfIndex(ifIndex); found {
			t.Errorf("%d is %+v", ifIndex, p)
		}
	}
}

func TestCountersChangeNothing(t *testing.T) {
	counted := up
	counted.RxFrames, counted.UnderVLAN, counted.Kernel = 7, "eth1.7", []dataplane.Counter{{Name: "rx-ring-full", Value: 1}}
	if !New([]dataplane.PortInfo{up}).Equal(New([]dataplane.PortInfo{counted})) {
		t.Error("a counter is a change")
	}
	if New([]dataplane.PortInfo{up}).Equal(New([]dataplane.PortInfo{up, down})) {
		t.Error("a port is no change")
	}
}

// Each change is logged once, as what it means to the operator.
func TestWhichChangesAreLogged(t *testing.T) {
	with := func(p dataplane.PortInfo, change func(*dataplane.PortInfo)) dataplane.PortInfo {
		change(&p)
		return p
	}
	upAgain := with(down, func(p *dataplane.PortInfo) { p.State = dataplane.PortUp })
	for _, c := range []struct {
		name    string
		was, is dataplane.PortInfo
		want    string
	}{
		{"nothing", up, up, ""},
		{"still down", down, down, ""},
		{"still failed", failed, failed, ""},
		{"failed for another reason", failed, with(failed, func(p *dataplane.PortInfo) { p.Reason = "another" }), "port unavailable; opens when the interface can be used"},
		{"gone for the reason for which it failed", failed, with(failed, func(p *dataplane.PortInfo) { p.State = dataplane.PortGone }), "port unavailable; opens when the interface can be used"},
		{"gone", up, with(gone, func(p *dataplane.PortInfo) { p.Name = "eth1" }), "port unavailable; opens when the interface can be used"},
		{"at the start", dataplane.PortInfo{}, up, "port opened"},
		{"again", up, with(up, func(p *dataplane.PortInfo) { p.Opened++ }), "port opened"},
		{"again, and without a carrier", upAgain, with(down, func(p *dataplane.PortInfo) { p.Opened++ }), "port opened"},
		{"no carrier", upAgain, down, "link down"},
		{"a carrier", down, upAgain, "link up"},
		{"another MTU", up, with(up, func(p *dataplane.PortInfo) { p.MTU = 9000 }), ""},
	} {
		core, logs := observer.New(zap.DebugLevel)
		was := Set{}
		if c.was.Name != "" {
			was = New([]dataplane.PortInfo{c.was})
		}
		New([]dataplane.PortInfo{c.is}).LogChanges(zap.New(core), was)
		got := ""
		for _, line := range logs.All() {
			got += line.Message
			if line.ContextMap()["port"] != c.is.Name {
				t.Errorf("%s: of port %v", c.name, line.ContextMap()["port"])
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Of names that were exchanged, the interfaces are told that are open as another port now.
func TestRenumberedPorts(t *testing.T) {
	port := func(ifIndex int, id mft.PortID, state dataplane.PortState) dataplane.PortInfo {
		return dataplane.PortInfo{Name: fmt.Sprint("eth", id), IfIndex: ifIndex, ID: id, State: state}
	}
	was := New([]dataplane.PortInfo{port(9, 1, dataplane.PortUp), port(3, 2, dataplane.PortUp), port(5, 3, dataplane.PortUp), port(7, 4, dataplane.PortFailed), port(11, 6, dataplane.PortUp)})
	is := New([]dataplane.PortInfo{
		port(9, 2, dataplane.PortUp), port(3, 1, dataplane.PortDown), // exchanged
		port(5, 3, dataplane.PortUp), port(7, 5, dataplane.PortUp), port(13, 4, dataplane.PortUp), // the same, opened, and new
		port(11, 7, dataplane.PortFailed), // another one, and not open
	})
	got := is.Renumbered(was)
	if slices.Sort(got); !slices.Equal(got, []int{3, 9}) {
		t.Errorf("%v", got)
	}
}
