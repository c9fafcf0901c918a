package ctl

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/follow"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
)

// change adds and removes ports by name; a name with - in front is removed.
func (w *world) change(names ...string) error {
	var c follow.Change
	for _, name := range names {
		if gone, is := strings.CutPrefix(name, "-"); is {
			c.Remove = append(c.Remove, gone)
		} else {
			c.Add, c.Bounds = append(c.Add, name), append(c.Bounds, dataplane.Egress{})
		}
	}
	return w.ChangePorts(c)
}

func (w *world) portNames() (names []string) {
	for _, p := range w.PortList().Ports {
		names = append(names, p.Name)
	}
	return names
}

// A member behind an interface that is no port waits, until the interface becomes one. The others
// notice nothing.
func TestAMemberIsReachedThroughAPortThatComes(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": ctltest.Hop(4, "eth4", 1500, 3)})
	w.hops.SetPorts([]int{1, 2, 3})
	w.create(t, g1)
	if g := w.group(t); g.Members[2].State != api.Waiting || g.Members[1].State != api.Ready {
		t.Fatalf("before: %+v", g.Members)
	}
	w.at = w.Events(t.Context(), api.Cursor{}, "").Cursor
	if err := w.change("eth4"); err != nil {
		t.Fatal(err)
	}
	if g := w.group(t); g.State != api.Ready || g.Members[2].Port != "eth4" {
		t.Errorf("after: %+v", g.Members)
	}
	if got := fmt.Sprint(w.portNames()); got != "[eth1 eth2 eth3 eth4]" {
		t.Error(got)
	}
	var kinds []api.EventKind
	for _, e := range w.Events(t.Context(), w.at, "").Events {
		kinds = append(kinds, e.Kind)
	}
	if got := fmt.Sprint(kinds); !strings.HasPrefix(got, "[port-up member-reachable") {
		t.Errorf("events %s", got)
	}
}

// A port that a group needs stays, and with it everything else of the change.
func TestAPortWithAMemberBehindItStays(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	want := "ports: eth3 cannot be removed while 10.77.0.3 of group g1 is behind it; keep eth3 in the config, or remove the group first"
	if err := w.change("eth4", "-eth3"); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if err := w.change("-eth1"); err == nil || !strings.Contains(err.Error(), "while 10.77.0.1 of group g1 is behind it") {
		t.Errorf("the source's port: %v", err)
	}
	if got := fmt.Sprint(w.portNames()); got != "[eth1 eth2 eth3]" || w.group(t).State != api.Ready {
		t.Errorf("%s, %+v", got, w.group(t))
	}
	w.network.Switch = lateSwitch{w.sw, func() { t.Error("eth4 was opened, which may interrupt its link, although eth3 stays") }}
	if err := w.change("eth4", "-eth3"); err == nil {
		t.Error("eth3 is removed")
	}
	w.network.Switch = w.sw
	// An interface that does not exist has nobody behind it.
	w.sw.SetPort(2, dataplane.PortGone, 0)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Reason: "no route"}})
	w.network.HopsChanged([]netip.Addr{addr("10.77.0.3")})
	w.network.Refresh()
	if err := w.change("-eth3"); err != nil {
		t.Error(err)
	}
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	if err := w.change("-eth2", "-eth1", "eth5"); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(w.portNames()); got != "[eth5]" {
		t.Error(got)
	}
}

// An interface comes back with another index, and the group cannot be published with it. What is
// published still sends by the port.
func TestAPortThatAPublishedGroupHasStays(t *testing.T) {
	for port, member := range map[int]string{0: "10.77.0.1", 2: "10.77.0.3"} {
		w := newWorld(t)
		w.create(t, g1)
		w.sw.Refuse(errors.New("no room"))
		w.sw.SetPort(port, dataplane.PortUp, 9)
		w.network.Refresh()
		name := fmt.Sprint("eth", port+1)
		if err := w.change("-" + name); err == nil || !strings.Contains(err.Error(), name+" cannot be removed while "+member+" of group g1 is behind it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A group that is created later does not use a port that was removed.
func TestNoGroupUsesAPortThatWasRemoved(t *testing.T) {
	w := newWorld(t)
	if err := w.change("-eth3"); err != nil {
		t.Fatal(err)
	}
	w.create(t, g1)
	if m := w.group(t).Members[2]; m.State != api.Waiting || m.Reason != "10.77.0.3 is not behind a port" {
		t.Errorf("%+v", m)
	}
}

// What the switch refuses changes nothing, also not what was to be removed.
func TestAPortThatCannotBeOpenedChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.sw.Refuse(fmt.Errorf("open port eth4: it has 1 RX and 1 TX queues for 2 workers"))
	err := w.change("eth4", "-eth1")
	if want := "ports: open port eth4: it has 1 RX and 1 TX queues for 2 workers"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if got := fmt.Sprint(w.portNames()); got != "[eth1 eth2 eth3]" {
		t.Error(got)
	}
}

// lateSwitch lets something happen while ports are opened.
type lateSwitch struct {
	*ctltest.Switch
	meanwhile func()
}

func (s lateSwitch) AddPorts(names []string, bounds []dataplane.Egress) error {
	s.meanwhile()
	return s.Switch.AddPorts(names, bounds)
}

// A group is created while ports are opened, behind a port that is to go.
func TestAGroupThatComesMeanwhileKeepsItsPort(t *testing.T) {
	w := newWorld(t)
	w.network.Switch = lateSwitch{w.sw, func() { w.create(t, g1) }}
	if err := w.change("eth4", "-eth3"); err == nil || !strings.Contains(err.Error(), "10.77.0.3 of group g1") {
		t.Errorf("%v", err)
	}
	if got := fmt.Sprint(w.portNames()); got != "[eth1 eth2 eth3]" || w.group(t).State != api.Ready {
		t.Errorf("%s, %+v", got, w.group(t))
	}
}

// Groups come and go while ports do. A group that is there has its ports, and no look at the ports
// brings a removed one back.
func TestPortsAndGroupsChangeTogether(t *testing.T) {
	w := newWorld(t)
	var others sync.WaitGroup
	stop := make(chan struct{})
	for _, change := range []func(){
		func() { w.network.Refresh() },
		func() {
			_, err := w.Create(t.Context(), []byte(g1))
			g, there := w.Group("g1")
			if err == nil && there == nil && g.State == api.Ready && g.Members[2].Port != "eth3" {
				t.Errorf("%+v", g.Members)
			}
			_ = w.Remove("g1")
		},
	} {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					change()
				}
			}
		})
	}
	refused := 0
	for range 100 {
		if err := w.change("-eth3"); err != nil {
			refused++
			continue
		}
		if got := fmt.Sprint(w.portNames()); got != "[eth1 eth2]" {
			t.Errorf("without eth3: %s", got)
		}
		w.groups.Lock()
		if len(w.groups.Ports()) != 2 {
			t.Errorf("control has %v", w.groups.Ports())
		}
		w.groups.Unlock()
		if err := w.change("eth3"); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	others.Wait()
	t.Logf("%d of 100 were refused", refused)
}
