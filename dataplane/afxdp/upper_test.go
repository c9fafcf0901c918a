package afxdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// A macvlan device is a port like any other: its frames come to it as such before the classifier
// sees them, in generic mode.
func TestAMacvlanDeviceIsAPort(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	if _, err := w.box.Exec("ip", "link", "add", "link", "p1", "name", "m1", "address", "02:00:00:00:00:01", "type", "macvlan"); err != nil {
		t.Skipf("needs macvlan devices: %v", err)
	}
	w.run(w.box, "ip", "link", "set", "m1", "up")
	w.open(Config{Ports: []string{"m1"}})
	w.expect(1, dataplane.PortUp, "")
	w.arrives(1)
}

// What is above others is refused by its kind: at the start, as a port that is added, and by Check.
func TestAnInterfaceAboveOthersIsRefused(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.run(w.box, "ip", "link", "add", "br0", "type", "bridge")
	w.run(w.box, "ip", "link", "set", "p1", "master", "br0")
	const want = "open port br0: it is a bridge; name its ports instead: p1"
	refuses := func(who string, do func() error) {
		t.Helper()
		if err := w.box.Do(do); !errors.Is(err, ErrConfig) || err.Error() != want {
			t.Errorf("%s: %v, want %s", who, err, want)
		}
	}
	refuses("check", func() error { return Check(Config{Ports: []string{"br0"}}) })
	refuses("start", func() error { return w.tryOpen(Config{Ports: []string{"br0"}}) })
	w.open(Config{Ports: []string{"p1", "later"}})
	refuses("added", func() error { return w.addPorts("br0") })
	w.run(w.box, "ip", "link", "add", "later", "type", "bridge")
	w.refresh()
	w.expect(2, dataplane.PortFailed, "it is a bridge; name its ports instead")
}

func TestTheRefusalOfAnUpperDevice(t *testing.T) {
	for _, c := range []struct {
		upper dataplane.Upper
		want  string
	}{
		{dataplane.Upper{Name: "eth1"}, ""},
		{dataplane.Upper{Name: "eth1", Kind: "veth"}, ""},
		{dataplane.Upper{Name: "m1", Kind: "macvlan"}, ""},
		{dataplane.Upper{Name: "eth1.7", Kind: "vlan", Below: []string{"eth1"}},
			"it is a VLAN device; name the interface below it instead: eth1 (rocast reads and writes the tags itself)"},
		{dataplane.Upper{Name: "bond0", Kind: "bond", Mode: "active-backup"}, ""},
		{dataplane.Upper{Name: "bond0", Kind: "bond", Mode: "802.3ad"}, ""},
		{dataplane.Upper{Name: "bond0", Kind: "bond", Mode: "balance-xor"}, ""},
		{dataplane.Upper{Name: "bond0", Kind: "bond", Mode: "balance-rr"},
			"it is a bond in mode balance-rr, and rocast follows bonds in mode active-backup, 802.3ad, balance-xor; set one of these modes"},
		{dataplane.Upper{Name: "team0", Kind: "team"}, "it is a team, and rocast does not know which of its ports is active; make it a bond"},
		{dataplane.Upper{Name: "i1", Kind: "ipvlan"}, "it is a device of kind ipvlan above another one; name an Ethernet interface"},
	} {
		if got := c.upper.Refusal(); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %s, want %s", c.upper, got, c.want)
		}
	}
}

// Of a veth the flag says nothing, so here the veth is taken for another device.
func TestADeviceThatTakesTagsIsFound(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	takes := func(name, kind string) (is bool) {
		err := w.box.Do(func() error { is = takesTags(name, kind); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	for _, flags := range []struct {
		rx, tx string
		want   bool
	}{{"on", "on", true}, {"off", "on", false}, {"on", "off", true}, {"off", "off", false}} {
		w.run(w.box, "ethtool", "-K", "p1", "rxvlan", flags.rx, "txvlan", flags.tx)
		if got := takes("p1", ""); got != flags.want {
			t.Errorf("rxvlan %s txvlan %s: %t", flags.rx, flags.tx, got)
		}
		if takes("p1", "veth") || takes("p9", "") {
			t.Error("a veth, or nothing, takes tags")
		}
	}
}

func TestAVLANDeviceAboveAPortIsFound(t *testing.T) {
	link := func(index, master, parent int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, Name: fmt.Sprint("eth", index), MasterIndex: master, ParentIndex: parent, NetNsID: -1}
	}
	elsewhere := link(9, 0, 3)
	elsewhere.NetNsID = 0
	list := []netlink.Link{
		&netlink.Vlan{LinkAttrs: link(7, 0, 1)}, &netlink.Device{LinkAttrs: link(1, 0, 0)},
		&netlink.Device{LinkAttrs: link(2, 4, 0)}, &netlink.Bond{LinkAttrs: link(4, 5, 0)}, &netlink.Bridge{LinkAttrs: link(5, 0, 0)},
		&netlink.Vlan{LinkAttrs: link(8, 0, 5)},
		&netlink.Device{LinkAttrs: link(3, 0, 0)}, &netlink.Vlan{LinkAttrs: elsewhere}, &netlink.Macvlan{LinkAttrs: link(10, 0, 3)},
	}
	for ifIndex, want := range map[int]string{1: "eth7", 2: "eth8", 4: "eth8", 5: "eth8", 3: "", 7: ""} {
		if got := underVLAN(ifIndex, list); got != want {
			t.Errorf("above eth%d: %q, want %q", ifIndex, got, want)
		}
	}
}
