package afxdp

import (
	"fmt"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// An interface is removed from the box in the middle of a WRITE and comes back with another index.
// The QPs stay alive, and every receiver gets all data.
func TestAWriteOutlivesItsInterface(t *testing.T) {
	for name, c := range map[string]struct {
		port    int
		workers int
		fanOut  bool
	}{
		"the source's":                     {port: 0, workers: 1},
		"a receiver's":                     {port: 1, workers: 1},
		"the source's, two workers":        {port: 0, workers: 2},
		"a receiver's, of two workers":     {port: 2, workers: 2},
		"the source's, armed":              {port: 0, workers: 1, fanOut: true},
		"a receiver's, armed":              {port: 1, workers: 1, fanOut: true},
		"the source's, armed, two workers": {port: 0, workers: 2, fanOut: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, labOptions{Options: bed.Options{Hosts: 4, Queues: 2}, workers: c.workers, fanOut: c.fanOut})
			g := l.addGroup(t, groupOptions{memory: 1 << 20})
			var data []byte
			l.eventually(t, "the group is armed, where it can be", func() bool {
				data = g.write(t, 1<<18)
				return g.engine(t).Kernel == c.fanOut
			})
			putBack := l.takeAway(t, c.port)
			l.refresh(t, c.port, dataplane.PortGone)
			lost := l.sw.Ports()[c.port].TxLost
			g.post(t, 0, data)
			if c.port != 0 { // without the source's port no frame comes in that could be lost
				l.eventually(t, "frames are lost at the port", func() bool { return l.sw.Ports()[c.port].TxLost > lost })
			}
			putBack()
			l.refresh(t, c.port, dataplane.PortUp)
			g.succeeds(t)
			g.holds(t, data)
			carried := g.engine(t).Carried
			// What the source sends again on a busy machine keeps the group from being armed.
			l.eventually(t, "the kernel carries the group again", func() bool {
				g.holds(t, g.write(t, 1<<18))
				return !c.fanOut || g.engine(t).Carried > carried
			})
		})
	}
}

// takeAway moves the interface of a port out of the box. The other end of the link stays where it
// is. The returned function moves the interface back, where it gets another index.
func (l *lab) takeAway(t *testing.T, port int) (putBack func()) {
	t.Helper()
	elsewhere, dev := netns.New(t), l.Hosts[port].Port
	ip := func(ns *netns.NS, args ...string) {
		t.Helper()
		_, err := ns.Exec("ip", args...)
		check(t, err)
	}
	ip(l.Box, "link", "set", dev.Name, "netns", elsewhere.Name())
	return func() {
		t.Helper()
		// Another interface takes the old index. Otherwise the kernel would give it back.
		ip(l.Box, "link", "add", "squatter", "index", fmt.Sprint(dev.Index), "type", "bridge")
		ip(elsewhere, "link", "set", dev.Name, "netns", l.Box.Name())
		ip(l.Box, "link", "set", dev.Name, "master", bed.Bridge, "up")
		if info := l.sw.Ports()[port]; info.IfIndex == dev.Index {
			t.Fatalf("the interface still has its old index: %+v", info)
		}
	}
}

// refresh makes the switch look at its ports, as the daemon does when links change, until the port
// is in a state.
func (l *lab) refresh(t *testing.T, port int, want dataplane.PortState) {
	t.Helper()
	l.eventually(t, fmt.Sprint("the port is ", want), func() bool {
		var ports []dataplane.PortInfo
		check(t, l.Box.Do(func() error { ports, _ = l.sw.Refresh(); return nil }))
		return ports[port].State == want
	})
}
