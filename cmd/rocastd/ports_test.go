package main

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// untilPort waits until the daemon shows a port so. Nothing but the kernel's notifications and its
// own look tell it.
func (b *box) untilPort(t *testing.T, name, what string, is func(api.Port) bool) api.Port {
	t.Helper()
	client := client.New(b.socket)
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		list, err := client.Ports(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Ports {
			if p.Name == name && is(p) {
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is never %s: %+v", name, what, list)
		}
	}
}

func inState(state string) func(api.Port) bool {
	return func(p api.Port) bool { return p.State == state }
}

// plug makes a port of the bridge and the host behind it, for the first time or again.
func (b *box) plug(t *testing.T, name string, host *netns.NS, address string) {
	t.Helper()
	_, far := netns.Veth(t, b.NS, name, host, "p0", netns.VethOptions{Queues: 2})
	if err := far.AddAddress(address); err != nil {
		t.Fatal(err)
	}
	b.ip(t, "link", "set", name, "master", "br0")
}

// The lab's worst day: a NIC that is missing at the start, one that goes and comes back, one that
// gets more queues. Nobody restarts the daemon.
func TestPortsComeAndGoUnderTheDaemon(t *testing.T) {
	b := newBox(t)
	text, err := os.ReadFile(b.config)
	if err == nil {
		text = []byte(strings.Replace(string(text), "['eth*']", "[eth1, eth2, eth3]", 1))
		err = os.WriteFile(b.config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := b.start(t)
	if port := b.untilPort(t, "eth3", "gone", inState(api.PortGone)); !strings.HasPrefix(port.Reason, "no interface has this name") {
		t.Errorf("%+v", port)
	}
	if _, err := client.New(b.socket).CreateGroup(t.Context(), []byte(owned)); err != nil {
		t.Fatal(err)
	}
	b.until(t, api.Ready)

	was := b.untilPort(t, "eth2", "up", inState(api.PortUp))
	b.ip(t, "link", "del", "eth2")
	b.untilPort(t, "eth2", "gone", inState(api.PortGone))
	if g := b.until(t, api.Waiting); g.Members[1].State != api.Waiting || g.Members[0].State != api.Ready {
		t.Errorf("without eth2: %+v", g.Members)
	}
	b.plug(t, "eth2", b.hosts[1], "10.77.0.2/24")
	if _, err := b.hosts[1].Exec("ping", "-c1", "-W5", "10.77.0.254"); err != nil { // it speaks, as a host that came up does
		t.Error(err)
	}
	now := b.untilPort(t, "eth2", "up", inState(api.PortUp))
	if now.IfIndex == was.IfIndex || now.MAC == was.MAC || now.Queues != 2 {
		t.Errorf("was %+v, is %+v", was, now)
	}
	if g := b.until(t, api.Ready); g.Members[1].Port != "eth2" {
		t.Errorf("with eth2: %+v", g.Members)
	}

	b.ip(t, "link", "set", "eth2", "mtu", "1400")
	b.untilPort(t, "eth2", "at MTU 1400", func(p api.Port) bool { return p.MTU == 1400 })
	b.plug(t, "eth3", netns.New(t), "10.77.0.3/24")
	b.untilPort(t, "eth3", "up", inState(api.PortUp))
	if got := p.end(t, unix.SIGTERM); got != "exit status 0" {
		t.Errorf("stopped: %s", got)
	}
	if links := b.ip(t, "link"); strings.Contains(links, "xdp") {
		t.Errorf("after the stop a program is still there:\n%s", links)
	}
	log := p.log.String()
	for _, want := range []string{`port unavailable; opens when the interface can be used	{"port": "eth3"`, `port unavailable; opens when the interface can be used	{"port": "eth2"`} {
		if strings.Count(log, want) != 1 {
			t.Errorf("not told once: %s\n%s", want, log)
		}
	}
}

// Without a bridge the group's IP is on the ports themselves: it goes with the interface, and is
// put on the one that comes.
func TestARoutedPortThatComesBackHasTheGroupsIP(t *testing.T) {
	b := newBox(t)
	route := func() {
		b.ip(t, "link", "set", "eth2", "nomaster")
		b.ip(t, "addr", "add", "10.78.0.254/24", "dev", "eth2")
	}
	route()
	if _, err := b.hosts[1].Exec("ip", "addr", "add", "10.78.0.2/24", "dev", "p0"); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if _, err := client.New(b.socket).CreateGroup(t.Context(), []byte(strings.Replace(owned, "10.77.0.2", "10.78.0.2", 1))); err != nil {
		t.Fatal(err)
	}
	b.until(t, api.Ready)
	has := func() bool { return strings.Contains(b.ip(t, "addr", "show", "dev", "eth2"), "10.77.0.100") }
	if !has() {
		t.Error("the group's IP is not on eth2")
	}
	b.ip(t, "link", "del", "eth2")
	b.until(t, api.Waiting)
	_, far := netns.Veth(t, b.NS, "eth2", b.hosts[1], "p0", netns.VethOptions{})
	route()
	if err := far.AddAddress("10.78.0.2/24"); err != nil {
		t.Fatal(err)
	}
	if g := b.until(t, api.Ready); g.Members[1].Port != "eth2" {
		t.Errorf("%+v", g.Members)
	}
	if !has() {
		t.Error("the group's IP is not on the new eth2")
	}
}

// Forwarding threads never leave their processors: each needs one, and the rest two.
func TestThereAreProcessorsForAllWorkers(t *testing.T) {
	for _, c := range []struct{ now, workers, want int }{{2, 1, 3}, {3, 1, 3}, {8, 1, 8}, {8, 16, 18}, {4, 4, 6}} {
		if got := procs(c.now, c.workers); got != c.want {
			t.Errorf("%d workers on GOMAXPROCS %d: %d, want %d", c.workers, c.now, got, c.want)
		}
	}
}

func TestMoreWorkersThanCPUsAreTold(t *testing.T) {
	settings := testConfig(t)
	settings.Workers = runtime.NumCPU()
	_, stop := start(t, settings, twin)
	if log := stop(); !strings.Contains(log, "none is left for the kernel and for control") {
		t.Errorf("not told:\n%s", log)
	}
}
