package follow

import (
	"net/netip"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
)

// quietSwitch has no ports, and calls during whenever ports come or go.
type quietSwitch struct{ during func() }

func (quietSwitch) Refresh() ([]dataplane.PortInfo, []dataplane.Warning) { return nil, nil }
func (s quietSwitch) AddPorts([]string, []dataplane.Egress) error        { s.during(); return nil }
func (s quietSwitch) RemovePorts([]string)                               { s.during() }

// noHops knows no host.
type noHops struct{}

func (noHops) SetPorts([]int) []netip.Addr { return nil }
func (noHops) Links() <-chan struct{}      { return nil }

func newNetwork(during func()) (*Network, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	set := groups.NewSet(groups.Parts{Log: log}, nil)
	return New(Options{Groups: set, Switch: quietSwitch{during}, NextHops: noHops{}, Log: log}), logs
}

// A look at the ports that began before a change, and ends after it, would bring back a port that
// was removed.
func TestNoLookAtThePortsRunsDuringAChange(t *testing.T) {
	var n *Network
	changes := 0
	n, _ = newNetwork(func() {
		changes++
		if n.refreshing.TryLock() {
			t.Error("a look at the ports may run")
			n.refreshing.Unlock()
		}
	})
	if err := n.ChangePorts(Change{Add: []string{"eth4"}, Remove: []string{"eth3"}}); err != nil || changes != 2 {
		t.Fatal(changes, err)
	}
	if !n.refreshing.TryLock() {
		t.Error("no look at the ports may run any more")
	}
}

func TestAWarningHasOnlyTheFieldsThatItIsAbout(t *testing.T) {
	n, logs := newNetwork(nil)
	for _, warning := range []dataplane.Warning{{Text: "a"}, {Text: "b", Port: "eth1"}, {Text: "c", Detail: "d"}} {
		n.logWarning(warning)
		line := logs.TakeAll()[0]
		fields := line.ContextMap()
		_, port := fields["port"]
		_, detail := fields["detail"]
		if line.Message != warning.Text || port != (warning.Port != "") || detail != (warning.Detail != "") {
			t.Errorf("%+v is logged as %v", warning, line)
		}
	}
}
