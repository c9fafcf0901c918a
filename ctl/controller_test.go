package ctl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/mft"
)

// g1 is the file most tests begin with: a source on eth1 and two receivers on eth2 and eth3.
const g1 = ctltest.G1

// anotherGroup is a group beside g1 with the same hosts and other QPs.
func anotherGroup(name string, qpn int) string { return ctltest.AnotherGroup(name, qpn) }

// world is a Controller whose kernel and switch are the test doubles of ctltest. Its state
// directory outlives the Controller: see restart.
//
// A test of one room stands in that room. Tests of ctl/branches stand here, because each box of a
// tree is a Controller: users create and update its groups, and it is stopped and started again. So
// do tests of ctl/watch in which a group is updated, a box restarts, or another box is asked.
type world struct {
	*Controller
	dir       string
	sw        *ctltest.Switch
	hops      *ctltest.Hops
	addresses *ctltest.Addresses
	logs      *observer.ObservedLogs
	at        api.Cursor // the event that was looked at last
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return openWorld(t, t.TempDir())
}

func openWorld(t *testing.T, dir string) *world {
	t.Helper()
	return openWorldWith(t, dir, ctltest.NewAddresses())
}

func openWorldWith(t *testing.T, dir string, addresses *ctltest.Addresses) *world {
	t.Helper()
	return openWorldOn(t, dir, ctltest.NewSwitch("eth1", "eth2", "eth3"), addresses)
}

func openWorldOn(t *testing.T, dir string, sw *ctltest.Switch, addresses *ctltest.Addresses) *world {
	t.Helper()
	return openWorldSharing(t, dir, sw, addresses, edges.Config{})
}

func openWorldSharing(t *testing.T, dir string, sw *ctltest.Switch, addresses *ctltest.Addresses, shared edges.Config) *world {
	t.Helper()
	w := &world{dir: dir, sw: sw, hops: ctltest.NewHops(), addresses: addresses}
	w.hops.SetG1()
	state, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.DebugLevel)
	w.logs = logs
	w.Controller = New(Parts{Switch: w.sw, NextHops: w.hops, Addresses: w.addresses, Store: state, Edges: shared, Log: zap.New(core)})
	showsAll(t, w.Controller)
	if err := w.Restore(); err != nil {
		t.Fatal(err)
	}
	return w
}

// edit changes a group.
func (w *world) edit(name string, edit func(*groups.Group)) {
	w.groups.Lock()
	defer w.groups.Unlock()
	edit(w.groups.Named(name))
	w.groups.Changed(w.groups.Named(name))
}

// restart ends the daemon, cleanly or not, and starts the next one on its state directory.
func (w *world) restart(t *testing.T, clean bool) *world {
	t.Helper()
	if clean {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.Store.Close()
	return openWorld(t, w.dir)
}

func (w *world) create(t *testing.T, text string) api.Group {
	t.Helper()
	g, err := w.Create(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// String lists everything that a group can leave behind: table, addresses, tracked hosts, files.
func (w *world) String() string {
	var names []string
	for g := range w.sw.Table().All {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	paths, _ := filepath.Glob(filepath.Join(w.dir, "groups", "*"))
	files := []string{}
	for _, path := range paths {
		if text, _ := os.ReadFile(path); !strings.HasSuffix(path, ".state") || strings.Count(string(text), "\n") != 1 { // an empty state is none
			files = append(files, filepath.Base(path))
		}
	}
	return fmt.Sprintf("table %v, addresses [%v], tracking %d, files %v", names, w.addresses, w.hops.Tracked(), files)
}

func (w *world) expect(t *testing.T, want string) {
	t.Helper()
	if got := w.String(); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

const (
	nothing = "table [], addresses [], tracking 0, files []"
	withG1  = "table [g1], addresses [10.77.0.100@1 x1 10.77.0.100@2 x1 10.77.0.100@3 x1], tracking 3, files [g1.yaml]"
)

func TestCreatePublishesOwnsAndKeeps(t *testing.T) {
	w := newWorld(t)
	g := w.create(t, g1)
	w.expect(t, withG1)
	if g.State != api.Ready || g.Members[0].Port != "eth1" || g.Members[2].Port != "eth3" || g.Members[2].MAC != "02:00:00:00:00:03" {
		t.Errorf("%+v", g)
	}
	published := w.sw.Table().Group(w.groups.Named("g1").ID)
	if published.Source.Port != 0 || published.Paths[1].Port != 2 || published.Paths[1].Src != published.IP || published.Restored {
		t.Errorf("published %+v", published)
	}
	w.logs.TakeAll()
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
	if lines := w.logs.All(); len(lines) != 1 || lines[0].Message != "group removed" {
		t.Errorf("logged %v", lines)
	}
}

func TestWhatIsRefusedChangesNothing(t *testing.T) {
	hold, add := errors.New("hold refused"), errors.New("add refused")
	for _, c := range []struct {
		name string
		set  func(*world)
		text string
		want string
	}{
		{"a bad file", nil, strings.Replace(g1, "psn: 5", "psn: -5", 1),
			"line 8: member 2: psn is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"the data path", func(w *world) { w.sw.Refuse(add) }, g1, "add refused"},
		{"the address", func(w *world) { w.addresses.Refuse(hold) }, g1, "group g1: hold refused"},
		{"a port's MTU", func(w *world) {
			w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": ctltest.Hop(3, "eth3", 1000, 3)})
		}, g1, "line 4: mtu: 10.77.0.3 is reached through eth3, whose MTU 1000 cannot carry path MTU 1024; set it with ip link set eth3 mtu 1088"},
		{"a port without multi-buffer", func(w *world) {
			w.hops.Set(map[string]nexthop.Hop{"10.77.0.1": ctltest.Hop(1, "eth1", 9000, 1)})
		}, strings.Replace(g1, "1024", "4096", 1),
			"line 4: mtu: 10.77.0.1 is reached through eth1, which was opened without multi-buffer, and path MTU 4096 needs it; set its MTU to 4160 or more before rocastd starts (rocast features says whether the kernel has it)"},
		{"switch-ip of another box", nil, "addressing: switch-ip\n" + g1,
			"line 3: ip 10.77.0.100 is not an address of this box, and with addressing switch-ip members reach the group by an address the box has; add it with ip addr add, or use addressing: group-ip"},
		{"the box's own address", func(w *world) { w.addresses.Box[addr("10.77.0.100")] = true }, g1,
			"line 2: ip 10.77.0.100 is this box's own; write an address that no host has, or use addressing: switch-ip"},
		{"the subnet's own address", inSubnet("10.77.0.0/24"), strings.Replace(g1, "10.77.0.100", "10.77.0.0", 1),
			"line 2: ip 10.77.0.0 is the address of the subnet 10.77.0.0/24 itself; write an address that no host has"},
		{"the broadcast address", inSubnet("10.77.0.0/24"), strings.Replace(g1, "10.77.0.100", "10.77.0.255", 1),
			"line 2: ip 10.77.0.255 is the broadcast address of 10.77.0.0/24; write an address that no host has"},
		{"off the subnets", inSubnet("10.77.1.0/24", "10.77.0.0/26", "fd00::/64"), g1,
			"line 2: ip 10.77.0.100 is in no subnet of the interfaces that lead to the members ([10.77.0.0/26 10.77.1.0/24]); write an unused address of one of them"},
		{"off the only subnet", inSubnet("10.77.1.0/24"), g1,
			"line 2: ip 10.77.0.100 is in no subnet of the interfaces that lead to the members ([10.77.1.0/24]); write an unused address of one of them"},
		{"a member at the broadcast address", inSubnet("10.77.0.0/30", "10.0.0.0/8"), g1,
			"line 9: the member's ip 10.77.0.3 is the broadcast address of 10.77.0.0/30; write the host's"},
		{"a source at the broadcast address", func(w *world) {
			inSubnet("10.76.0.0/15", "10.77.255.254/31", "10.64.0.0/11")(w)
			w.hops.Set(map[string]nexthop.Hop{"10.77.255.255": ctltest.Hop(1, "eth1", 1500, 1)})
		}, strings.ReplaceAll(g1, "10.77.0.1,", "10.77.255.255,"),
			"line 7: the member's ip 10.77.255.255 is the broadcast address of 10.76.0.0/15; write the host's"},
		{"a member with the box's own IP", func(w *world) { w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Own: true, Reason: "own"}}) }, g1,
			"line 9: the member at 10.77.0.3 has an address of this box; write the host's"},
		{"a remoteIP of another box", func(w *world) { w.addresses.Box[addr("10.9.0.1")] = true }, strings.Replace(g1, "psn: 5", "psn: 5, remoteIP: 10.9.0.2", 1),
			"line 8: remoteIP 10.9.0.2 of the member at 10.77.0.2 is not an address of this box, so the answers of the member would not come here; add it with ip addr add, or write another"},
		{"a source's remoteIP of another box", nil, strings.Replace(g1, "role: source", "role: source, remoteIP: 10.9.0.2", 1),
			"line 7: remoteIP 10.9.0.2 of the member at 10.77.0.1 is not an address of this box, so the answers of the member would not come here; add it with ip addr add, or write another"},
		{"a living host's address, beside a box", func(w *world) {
			w.addresses.Claims[addr("10.77.0.100")] = living
			w.addresses.Box[addr("10.9.0.1")] = true
		}, strings.Replace(g1, "psn: 5", "psn: 5, remoteIP: 10.9.0.1", 1),
			"line 2: ip 10.77.0.100 is taken (02:00:00:00:00:09 answers for it on br0); write an address that no host has"},
		{"a living host's address", func(w *world) { w.addresses.Claims[addr("10.77.0.100")] = living }, g1,
			"line 2: ip 10.77.0.100 is taken (02:00:00:00:00:09 answers for it on br0); write an address that no host has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.set != nil {
				c.set(w)
			}
			_, err := w.Create(t.Context(), []byte(c.text))
			if e := (*api.Error)(nil); !errors.As(err, &e) || err.Error() != c.want {
				t.Errorf("\ngot  %v (%T)\nwant %s", err, err, c.want)
			}
			w.expect(t, nothing)
		})
	}
}

// inSubnet gives the box's interfaces addresses in these subnets only.
func inSubnet(subnets ...string) func(*world) {
	return func(w *world) {
		w.addresses.Networks = nil
		for _, s := range subnets {
			w.addresses.Networks = append(w.addresses.Networks, netip.MustParsePrefix(s))
		}
	}
}

var living = address.Claim{MAC: [6]byte{2, 0, 0, 0, 0, 9}, Interface: "br0"}

// The controller asks the hosts about an IP only if the box does not have the IP yet. It does not
// ask when it restores a group: that group cannot wait, and a host that answers may have learned
// the IP from the group itself.
func TestHostsAreAskedAboutANewIPAlone(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 2))
	if _, err := w.Update(t.Context(), "g1", []byte(g1)); err != nil {
		t.Fatal(err)
	}
	if got := w.addresses.Asked(); got != 1 {
		t.Errorf("asked %d times for one new IP", got)
	}
	w.Store.Close()
	addresses := ctltest.NewAddresses()
	addresses.Claims[addr("10.77.0.100")] = living
	w = openWorldWith(t, w.dir, addresses)
	if g, err := w.Group("g1"); err != nil || g.State != api.Ready || addresses.Asked() != 0 {
		t.Errorf("after a crash: %+v, %v, asked %d times", g, err, addresses.Asked())
	}
}

func TestOtherAddressingsTakeNoIP(t *testing.T) {
	w := newWorld(t)
	w.addresses.Claims[addr("10.77.0.2")] = living
	w.create(t, "addressing: virtual-qpn\n"+strings.Replace(g1, "10.77.0.100", "10.77.0.2", 1))
	if got := w.addresses.Asked(); got != 0 {
		t.Errorf("asked %d times", got)
	}
}

func TestAGroupThatCannotBeKeptIsNotMade(t *testing.T) {
	w := newWorld(t)
	inTheWay := filepath.Join(w.dir, "groups", "g1.yaml")
	if err := os.Mkdir(inTheWay, 0o700); err != nil { // a file cannot be renamed to it
		t.Fatal(err)
	}
	if _, err := w.Create(t.Context(), []byte(g1)); err == nil {
		t.Error("created")
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

func TestAGroupThatCannotBeForgottenStays(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	kept := filepath.Join(w.dir, "groups", "g1.yaml")
	aside := filepath.Join(w.dir, "aside")
	if err := os.Rename(kept, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(kept, "in the way"), 0o700); err != nil { // removing a file does not remove it
		t.Fatal(err)
	}
	if err := w.Remove("g1"); err == nil {
		t.Error("removed")
	}
	if err := os.RemoveAll(kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, kept); err != nil {
		t.Fatal(err)
	}
	w.expect(t, withG1)
}

func TestAGroupWhoseFileIsGoneCanBeRemoved(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	if err := os.Remove(filepath.Join(w.dir, "groups", "g1.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove("g1"); err != nil {
		t.Error(err)
	}
	w.expect(t, nothing)
}

func TestANameAndAQPNAreTakenOnce(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	_, err := w.Create(t.Context(), []byte(g1))
	if want := "line 1: group g1 exists; remove it first with rocast group rm g1, or write another name"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	second := strings.Replace(anotherGroup("g2", 2), "qpn: 2\n", "qpn: 1\n", 1)
	_, err = w.Create(t.Context(), []byte(second))
	if want := "line 3: group g2: 10.77.0.100 with QPN 1 is taken by group g1; write another qpn (or remoteQPN of a member), or another ip"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	w.expect(t, withG1)
	w.create(t, anotherGroup("g2", 2))
	w.expect(t, "table [g1 g2], addresses [10.77.0.100@1 x2 10.77.0.100@2 x2 10.77.0.100@3 x2], tracking 3, files [g1.yaml g2.yaml]")
	if err := w.Remove("g2"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, withG1)
}

func TestEveryPolicyKeyIsPublishedAndShown(t *testing.T) {
	w := newWorld(t)
	keys := "ack: quorum 1\nnak: lower\nsilent-after: 200ms\nevict: true\ncnp: filter\ncnp-interval: 50us\ncredits: merge\nsource-switch: force\n" +
		"repair: local\non-slow: go-on\nrepair-window: 100\nrepair-bytes: 40KiB\nrepair-attempts: 3\nrepair-timer-floor: 300us\nrepair-timer-cap: 5ms\n"
	g := w.create(t, keys+g1)
	want := api.Policy{
		Ack: "quorum 1", Nak: "lower", OnFatal: "evict", SilentAfter: "200ms", Evict: true, CNP: "filter", CNPInterval: "50µs",
		Credits: "merge", SourceSwitch: "force",
		Repair: "local", OnSlow: "go-on", RepairWindow: 100, RepairBytes: 40 << 10, RepairAttempts: 3, RepairTimerFloor: "300µs", RepairTimerCap: "5ms",
	}
	if *g.Policy != want {
		t.Errorf("\nshown %+v\nwant  %+v", *g.Policy, want)
	}
	if published := w.groups.Named("g1").Published.Policy; !published.NeedsTimer() || *view.Policy(published) != want {
		t.Errorf("published %+v", published)
	}
}

// Without repair its bounds are not shown.
func TestABoundWithoutEffectIsNotShown(t *testing.T) {
	w := newWorld(t)
	want := api.Policy{
		Ack: "all", Nak: "hold", OnFatal: "fail", SilentAfter: "0", CNP: "filter", CNPInterval: "0",
		Credits: "unlimited", SourceSwitch: "guard", Repair: "off",
	}
	if g := w.create(t, "repair: off\n"+g1); *g.Policy != want || g.Members[1].Repair != nil || g.Retained != nil {
		t.Errorf("\nshown %+v\nwant  %+v", *g.Policy, want)
	}
}

func TestRemovingWhatIsNotThereSaysSo(t *testing.T) {
	w := newWorld(t)
	want := `there is no group "g9"; rocast group ls lists the groups`
	if err := w.Remove("g9"); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if _, err := w.Group("g9"); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

func TestAddressingDecidesWhatIsOwnedAndWhatCopiesComeFrom(t *testing.T) {
	for _, c := range []struct{ addressing, ip, owned, copiesFrom string }{
		{"group-ip", "10.77.0.100", "10.77.0.100@1 x1 10.77.0.100@2 x1 10.77.0.100@3 x1", "10.77.0.100"},
		{"switch-ip", "10.77.0.100", "", "10.77.0.100"},
		{"virtual-qpn", "10.77.0.2", "", "10.77.0.1"},
	} {
		t.Run(c.addressing, func(t *testing.T) {
			w := newWorld(t)
			w.addresses.Box[netip.MustParseAddr("10.77.0.100")] = c.addressing == "switch-ip"
			w.create(t, "addressing: "+c.addressing+"\n"+strings.Replace(g1, "10.77.0.100", c.ip, 1))
			if got := w.addresses.String(); got != c.owned {
				t.Errorf("owns %q, want %q", got, c.owned)
			}
			g := w.groups.Named("g1").Published
			if g.Source.Src.String() != c.ip || g.Paths[0].Src.String() != c.copiesFrom {
				t.Errorf("answers come from %v and copies from %v, want %s and %s", g.Source.Src, g.Paths[0].Src, c.ip, c.copiesFrom)
			}
		})
	}
}

func TestAMemberThatIsBothIsSourceAndReceiver(t *testing.T) {
	w := newWorld(t)
	v := w.create(t, `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
members:
  - {ip: 10.77.0.3, qpn: 19, psn: 7}
  - {ip: 10.77.0.1, qpn: 17, psn: 5, sendPSN: 1000, role: both}
  - {ip: 10.77.0.2, qpn: 18, psn: 6, sendPSN: 2000, role: both}
`)
	g := w.groups.Named("g1").Published
	if g.Source.Path != 0 || g.Source.FirstPSN != 1000 || g.Source.Dst.String() != "10.77.0.1" {
		t.Errorf("source %+v", g.Source)
	}
	for i, want := range []mft.Path{{FirstPSN: 5, Sends: true, SendPSN: 1000}, {FirstPSN: 6, Sends: true, SendPSN: 2000}, {FirstPSN: 7}} {
		p := g.Paths[i]
		if p.FirstPSN != want.FirstPSN || p.Sends != want.Sends || p.SendPSN != want.SendPSN || p.RemoteQPN != 1 {
			t.Errorf("path %d: %+v", i, p)
		}
	}
	if g.Source.Leg != g.Paths[0].Leg {
		t.Errorf("as a source it is reached by %+v, as a receiver by %+v", g.Source.Leg, g.Paths[0].Leg)
	}
	if m := v.Members; v.MemberCount != 3 || len(m) != 3 || m[1].Role != "both" || m[1].PSN != 5 || *m[1].SendPSN != 1000 || m[0].SendPSN != nil {
		t.Errorf("shown as %+v", m)
	}
}

func TestAWaitedForMemberThatIsBothCountsOnce(t *testing.T) {
	w := newWorld(t)
	g := w.create(t, strings.NewReplacer("10.77.0.1,", "10.77.0.9,", "psn: 1000, role: source", "psn: 3, sendPSN: 1000, role: both, regions: [{va: 1, length: 4096, rkey: 1}]").Replace(g1))
	if g.WaitingCount != 1 || g.Members[0].State != api.Waiting {
		t.Errorf("%+v", g)
	}
}

// The watchdog counts on that: a change may wait for a slow disk.
func TestATallyDoesNotWaitForAChange(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	ports := len(w.groups.Ports())
	w.groups.Lock()
	defer w.groups.Unlock()
	if got := w.Tally(); got != (Tally{Groups: 1, Ports: ports, Open: len(w.groups.Ports().Open())}) {
		t.Errorf("%+v", got)
	}
}

func TestNoRKeyReachesALog(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	if _, err := w.Create(t.Context(), []byte(strings.Replace(g1, "0xfeedbea8", "0xfeedbea8f", 1))); err == nil {
		t.Error("taken")
	}
	w.network.HopsChanged([]netip.Addr{netip.MustParseAddr("10.77.0.2")})
	misplaced := filepath.Join(w.dir, "groups", "misplaced.yaml")
	if err := os.WriteFile(misplaced, []byte("name: x\nfeedbea8: rkey\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = w.restart(t, false)
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	if w.logs.FilterMessageSnippet("could not be restored").Len() != 1 {
		t.Error("the refusal was not logged")
	}
	for _, entry := range w.logs.All() {
		text := fmt.Sprint(entry.Message, entry.ContextMap())
		if strings.Contains(text, "feedbea") || strings.Contains(text, fmt.Sprint(0xfeedbea8)) {
			t.Error(text)
		}
	}
}
