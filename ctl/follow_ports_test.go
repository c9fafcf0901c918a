package ctl

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// told returns the log's messages of this level or a higher one, and clears the log.
func (w *world) told(level zapcore.Level) (messages []string) {
	for _, entry := range w.logs.TakeAll() {
		if entry.Level >= level {
			messages = append(messages, strings.TrimSpace(entry.Message+" "+fieldText(entry.ContextMap())))
		}
	}
	return messages
}

func fieldText(fields map[string]any) string {
	port, _ := fields["port"].(string)
	detail, _ := fields["detail"].(string)
	return strings.TrimSpace(port + " " + detail)
}

func (w *world) group(t *testing.T) api.Group {
	t.Helper()
	g, err := w.Group("g1")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// eth2 disappears and comes back as another interface. The member behind it waits, and is then
// reached again by the same port.
func TestMembersWaitForAPortThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.logs.TakeAll()
	w.network.Refresh()
	if got := w.told(zapcore.DebugLevel); len(got) != 0 {
		t.Errorf("nothing happened, and told is %q", got)
	}

	w.sw.SetPort(1, dataplane.PortGone, 0)
	w.network.Refresh()
	g := w.group(t)
	if g.State != api.Waiting || g.Members[1].State != api.Waiting || g.Members[2].State != api.Ready {
		t.Errorf("without eth2: %+v", g)
	}
	if p := w.PortList().Ports[1]; p.State != api.PortGone || p.Reason == "" || p.MAC != "" || p.Name != "eth2" {
		t.Errorf("shown as %+v", p)
	}
	if p := w.published(t).Paths[0]; p.Resolved() {
		t.Errorf("frames still go to %+v", p)
	}
	w.network.Refresh()
	want := []string{"port unavailable; opens when the interface can be used eth2", "member unreachable; its frames flow again when the reason is gone"}
	if diff := cmp.Diff(want, w.told(zapcore.InfoLevel)); diff != "" {
		t.Errorf("told once: %s", diff)
	}
	if p := w.PortList().Ports; len(p) != 3 || p[1].Name != "eth2" {
		t.Errorf("the port has lost its name: %+v", p)
	}

	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(42, "eth2", 1500, 2)})
	w.sw.SetPort(1, dataplane.PortUp, 42)
	w.network.Refresh()
	if g := w.group(t); g.State != api.Ready {
		t.Errorf("with eth2 again: %+v", g)
	}
	if p := w.published(t).Paths[0]; p.Port != 1 {
		t.Errorf("frames go to port %d", p.Port)
	}
	if diff := cmp.Diff([]string{"port opened eth2", "member reachable eth2"}, w.told(zapcore.InfoLevel)); diff != "" {
		t.Error(diff)
	}

	w.sw.SetPort(1, dataplane.PortDown, 42)
	w.sw.Warn(dataplane.Warning{Text: "a warning", Port: "eth1", Detail: "of the data path"})
	w.network.Refresh()
	if diff := cmp.Diff([]string{"a warning eth1 of the data path", "link down eth2"}, w.told(zapcore.WarnLevel)); diff != "" {
		t.Error(diff)
	}
	if g := w.group(t); g.State != api.Ready {
		t.Errorf("a link that went down changed the group: %+v", g)
	}
}

// The names of two ports are exchanged between two looks: the interfaces are the same, and so are
// the ways to the hosts, but each interface is the other port now.
func TestPortsWhoseNamesAreExchangedAreFollowed(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	before, list := w.published(t), w.PortList().Ports
	w.sw.SetPort(1, dataplane.PortUp, list[2].IfIndex)
	w.sw.SetPort(2, dataplane.PortUp, list[1].IfIndex)
	w.network.Refresh()
	after := w.published(t)
	for i := range after.Paths {
		if got, want := after.Paths[i].Port, 3-before.Paths[i].Port; got != want {
			t.Errorf("path %d leaves by port %d, want %d", i, got, want)
		}
	}
	if after.Source.Port != before.Source.Port {
		t.Errorf("the source is behind port %d, and was behind %d", after.Source.Port, before.Source.Port)
	}
}

func (w *world) published(t *testing.T) *mft.Group {
	t.Helper()
	for g := range w.sw.Table().All {
		return g
	}
	t.Fatal("no group is published")
	return nil
}

// Run refreshes the ports when links change, so that an outage is short.
func TestLinksThatChangeMakeThePortsBeLookedAt(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.network.Run(ctx) }()
	w.hops.LinksChange() // received after the first refresh
	w.sw.SetPort(2, dataplane.PortGone, 0)
	w.hops.LinksChange()
	w.hops.LinksChange() // received after the refresh that follows SetPort
	if g := w.group(t); g.Members[2].State != api.Waiting {
		t.Errorf("without eth3: %+v", g.Members[2])
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
