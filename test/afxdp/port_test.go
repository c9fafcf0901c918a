package afxdp

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// An interface is taken away under a WRITE and comes back as another one: the
// QPs live on, and everyone gets everything.
func TestAWriteOutlivesItsInterface(t *testing.T) {
	for name, c := range map[string]struct {
		port    int
		workers int
	}{
		"the source's":                 {port: 0, workers: 1},
		"a receiver's":                 {port: 1, workers: 1},
		"the source's, two workers":    {port: 0, workers: 2},
		"a receiver's, of two workers": {port: 2, workers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, options{Options: bed.Options{Hosts: 4, Queues: 2}, workers: c.workers, memory: 1 << 20})
			data := l.write(t, 1<<18)
			back := l.takeAway(t, c.port)
			l.refresh(t, c.port, dataplane.PortGone)
			lost := l.sw.Ports()[c.port].TxLost
			check(t, l.source.PostWrite(1, data, rnic.Remote{VA: memoryVA, RKey: memoryKey}))
			if c.port != 0 { // else nothing comes in that could be lost
				l.eventually(t, "frames are lost at the port", func() bool { return l.sw.Ports()[c.port].TxLost > lost })
			}
			back()
			l.refresh(t, c.port, dataplane.PortUp)
			if done := l.completion(t); done.Status != rnic.Success {
				t.Fatalf("the WRITE ended with %v", done)
			}
			l.holds(t, data)
			l.holds(t, l.write(t, 1<<18))
		})
	}
}

// takeAway removes a port's interface from the box, without its far end. What it
// returns puts it back, under another index.
func (l *lab) takeAway(t *testing.T, port int) (back func()) {
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
		// Who has its index now: else it would get that again.
		ip(l.Box, "link", "add", "squatter", "index", fmt.Sprint(dev.Index), "type", "bridge")
		ip(elsewhere, "link", "set", dev.Name, "netns", l.Box.Name())
		ip(l.Box, "link", "set", dev.Name, "master", bed.Bridge, "up")
		if info := l.sw.Ports()[port]; info.IfIndex == dev.Index {
			t.Fatalf("it still has its index: %+v", info)
		}
	}
}

// refresh looks at the ports, as the daemon does when links change.
func (l *lab) refresh(t *testing.T, port int, want dataplane.PortState) {
	t.Helper()
	l.eventually(t, fmt.Sprint("port is ", want), func() bool {
		var ports []dataplane.PortInfo
		check(t, l.Box.Do(func() error { ports, _ = l.sw.Refresh(); return nil }))
		return ports[port].State == want
	})
}

func (l *lab) eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v; ports %+v", what, patience, l.sw.Ports())
		}
	}
}
