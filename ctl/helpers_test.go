package ctl

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

// The helper really listens on its group IP, so the IP is one of the loopback's.
const upRequest = `{"groupIP": "127.0.0.200", "receivers": ["10.77.0.2", "10.77.0.3"], "port": 18599}`

func TestAPerftestHelperListensAndOwnsItsIP(t *testing.T) {
	w := newWorld(t)
	up, err := w.PerftestUp(t.Context(), []byte(upRequest))
	if err != nil || up.GroupIP != "127.0.0.200" || up.Port != 18599 || len(up.Receivers) != 2 || len(up.Runs) != 0 {
		t.Fatalf("%+v, %v", up, err)
	}
	w.expect(t, "table [], addresses [127.0.0.200@2 x1 127.0.0.200@3 x1], tracking 2, files []")
	conn, err := net.Dial("tcp", "127.0.0.200:18599")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testlab.Eventually(t, testlab.Patience, "the client's run is listed", func() bool { return len(w.Perftests().Perftests[0].Runs) == 1 }, nil)
	_, err = w.PerftestUp(t.Context(), []byte(upRequest))
	if want := "perftest on 127.0.0.200 is already up; take it down first"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if err := w.PerftestDown("127.0.0.200"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
	if conn, err := net.Dial("tcp", "127.0.0.200:18599"); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
	if list := w.Perftests(); len(list.Perftests) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestWhatPerftestUpAndDownRefuse(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		request string
		kind    api.Kind
		want    string
	}{
		{"", api.BadRequest, "the request is empty; write its keys"},
		{`{"groupIP": "10.77.0.100"}`, api.BadRequest, "the request has no receivers; add receivers: [ADDRESS, ...], where perftest's servers run"},
		{`{"groupIP": "127.0.0.200", "receivers": ["10.77.0.9"]}`, api.BadRequest, "perftest on 127.0.0.200: 10.77.0.9 is not reached: no route to 10.77.0.9"},
	} {
		_, err := w.PerftestUp(t.Context(), []byte(c.request))
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Kind != c.kind || err.Error() != c.want {
			t.Errorf("\ngot  %v\nwant %s", err, c.want)
		}
	}
	w.addresses.Claims[addr("127.0.0.200")] = living
	_, err := w.PerftestUp(t.Context(), []byte(upRequest))
	if want := "perftest on 127.0.0.200: ip 127.0.0.200 is taken (02:00:00:00:00:09 answers for it on br0); write an address that no host has"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	for groupIP, want := range map[string]string{
		"10.77.0.100": "perftest on 10.77.0.100 is not up; rocast perftest ls lists what is up",
		"g1":          `"g1" is not an IP address; write one such as 10.77.0.100`,
	} {
		if err := w.PerftestDown(groupIP); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	w.expect(t, nothing)
}

func TestTheConfigsPerftestHelpersComeUpWithTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.Perftest = []perftest.Config{
		{GroupIP: addr("127.0.0.201"), Receivers: []netip.Addr{addr("10.77.0.9")}, Port: 18599}, // the controller tries again
		{GroupIP: addr("127.0.0.202"), Receivers: []netip.Addr{addr("10.77.0.2")}, Port: 18599},
	}
	if missing := w.bringUp(t.Context(), w.helpers(), true); len(missing) != 1 || missing[0].groupIP != w.Perftest[0].GroupIP {
		t.Errorf("to be tried again: %+v", missing)
	}
	if list := w.Perftests().Perftests; len(list) != 1 || list[0].GroupIP != "127.0.0.202" {
		t.Errorf("%+v", list)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
	if conn, err := net.Dial("tcp", "127.0.0.202:18599"); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// runFile returns the group file of a perftest run.
func runFile(t *testing.T) *groupfile.File {
	t.Helper()
	file, err := groupfile.Parse([]byte(strings.Replace(g1, "name: g1", "name: run", 1)))
	if err != nil {
		t.Fatal(err)
	}
	file.Lines = nil // it was not parsed from a text
	return file
}

func TestAPerftestRunsGroupEndsWithTheDaemon(t *testing.T) {
	w := newWorld(t)
	groups := helperGroups{w.Controller}
	if err := groups.Create(t.Context(), runFile(t)); err != nil {
		t.Fatal(err)
	}
	w.expect(t, strings.NewReplacer("g1.yaml", "", "g1", "run").Replace(withG1))
	if _, ok := groups.Traffic("run"); !ok {
		t.Error("its traffic is not known")
	}
	_, err := w.Update(t.Context(), "run", []byte(strings.Replace(g1, "name: g1", "name: run", 1)))
	if want := "group run belongs to a perftest run or an RDMA-CM connection, which ends it; only groups that were created can be updated, and only regions of memory can come to this one (rocast region)"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	next := w.restart(t, false)
	next.expect(t, nothing)

	if err := groups.Remove(t.Context(), "run"); err != nil {
		t.Fatal(err)
	}
	if _, ok := groups.Traffic("run"); ok {
		t.Error("it is still there")
	}
}

// The group must be ready at once: perftest's client sends as soon as the keys are exchanged.
func TestAPerftestRunDoesNotBeginBeforeEverybodyIsReached(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Interface: 3, Reason: "the kernel is asking"}})
	err := helperGroups{w.Controller}.Create(t.Context(), runFile(t))
	if want := "10.77.0.3 is not reached: the kernel is asking"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	w.expect(t, nothing)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": ctltest.Hop(3, "eth3", 1500, 3)})
	if err := (helperGroups{w.Controller}).Create(t.Context(), runFile(t)); err != nil {
		t.Error(err)
	}
}

// treeRunFile returns the group of a perftest run whose receivers are behind several boxes.
func treeRunFile(t *testing.T, receivers ...string) *groupfile.File {
	t.Helper()
	file, err := groupfile.Parse([]byte(groupFile(receivers...)))
	if err != nil {
		t.Fatal(err)
	}
	file.Lines = nil // it was not parsed from a text
	return file
}

func TestAPerftestRunPassesBoxes(t *testing.T) {
	f := newTree(t)
	groups := helperGroups{f.box("b1").Controller}
	if err := groups.Create(t.Context(), treeRunFile(t, everywhere...)); err != nil {
		t.Fatal(err)
	}
	f.check(wholeTree)
	if err := groups.Remove(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
}

// A box behind does not reach one of its receivers: the run must not begin, and nothing stays
// behind.
func TestAPerftestRunWaitsForNobodyBehindABox(t *testing.T) {
	f := newTree(t)
	f.box("b3").hops.Set(map[string]nexthop.Hop{"10.3.0.2": {Interface: 2, Reason: "the kernel is asking"}})
	groups := helperGroups{f.box("b1").Controller}
	err := groups.Create(t.Context(), treeRunFile(t, everywhere...))
	if want := "a receiver behind box b2 is not reached: 10.3.0.2 at box b3: the kernel is asking"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	f.nothingLeft()
}

// The group IP is where receivers of this box are, or else where its subnet is, and not on a link.
func TestAPerftestHelpersIPIsNotOnALink(t *testing.T) {
	f := newTree(t)
	b1 := f.box("b1")
	tracked := b1.hops.Tracked()
	ip := netip.MustParseAddr("10.1.0.100")
	far, near := netip.MustParseAddr("10.3.0.1"), netip.MustParseAddr("10.1.0.2")
	b1.hops.Set(map[string]nexthop.Hop{ip.String(): {Interface: 2, Reason: "nobody answers"}})
	for want, receivers := range map[string][]netip.Addr{"10.1.0.100@1 x1": {far, near}, "10.1.0.100@2 x1": {far}} {
		_, release, err := helperAddresses{b1.Controller}.Own(ip, receivers)
		if err != nil {
			t.Fatal(err)
		}
		if got := b1.addresses.String(); got != want {
			t.Errorf("towards %v: [%s], want [%s]", receivers, got, want)
		}
		release()
	}
	b1.hops.Set(map[string]nexthop.Hop{ip.String(): {Reason: "no route to 10.1.0.100"}})
	_, _, err := helperAddresses{b1.Controller}.Own(ip, []netip.Addr{far})
	if want := "10.1.0.100 is not reached: no route to 10.1.0.100"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if n := b1.hops.Tracked(); n != tracked {
		t.Errorf("%d addresses are tracked, %d before", n, tracked)
	}
}

func TestTrafficIsCountedByWhoSentIt(t *testing.T) {
	counts := api.Counters{
		feedback.Forwarded.String(): 1, feedback.Resent.String(): 2, feedback.Filtered.String(): 4, feedback.OutsideWindow.String(): 8,
		feedback.Refused.String(): 16, dataplane.NotSource.String(): 32, feedback.Merged.String(): 64, dataplane.RefusedMemory.String(): 128,
	}
	if got, want := traffic(counts), (perftest.Traffic{FromSource: 159, FromReceivers: 32, Refused: 144}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What is not heard of who has the group IP of a service is logged, and changes nothing.
func TestTheGroupIPOfAServiceIsAnnounced(t *testing.T) {
	w := newWorld(t)
	ip := netip.MustParseAddr("10.77.0.200")
	helperAddresses{w.Controller}.Announce(ip)
	const warning = "could not tell the hosts who has the group IP of a service"
	if got := w.addresses.Announced(); !slices.Equal(got, []netip.Addr{ip}) || w.logs.FilterMessage(warning).Len() > 0 {
		t.Errorf("announced %v, logged %v", got, w.logs.All())
	}
	w.addresses.Deaf(errors.New("no socket"))
	helperAddresses{w.Controller}.Announce(ip)
	if w.logs.FilterMessage(warning).Len() != 1 {
		t.Errorf("logged %v", w.logs.All())
	}
}
