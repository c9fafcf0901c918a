package ctl

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/services"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

// The helper really listens on its group IP, so the IP is one of the loopback's.
const upRequest = `{"groupIP": "127.0.0.200", "receivers": ["10.77.0.2", "10.77.0.3"], "port": 18599}`

func TestAPerftestHelperListensAndOwnsItsIP(t *testing.T) {
	w := newWorld(t)
	up, err := w.Services.PerftestUp(t.Context(), []byte(upRequest))
	if err != nil || up.GroupIP != "127.0.0.200" || up.Port != 18599 || len(up.Receivers) != 2 || len(up.Runs) != 0 {
		t.Fatalf("%+v, %v", up, err)
	}
	w.expect(t, "table [], addresses [127.0.0.200@2 x1 127.0.0.200@3 x1], tracking 2, files []")
	conn, err := net.Dial("tcp", "127.0.0.200:18599")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testlab.Eventually(t, testlab.Patience, "the client's run is listed", func() bool { return len(w.Services.Perftests().Perftests[0].Runs) == 1 }, nil)
	_, err = w.Services.PerftestUp(t.Context(), []byte(upRequest))
	if want := "perftest on 127.0.0.200 is already up; take it down first"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if err := w.Services.PerftestDown("127.0.0.200"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
	if conn, err := net.Dial("tcp", "127.0.0.200:18599"); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
	if list := w.Services.Perftests(); len(list.Perftests) != 0 {
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
		_, err := w.Services.PerftestUp(t.Context(), []byte(c.request))
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Kind != c.kind || err.Error() != c.want {
			t.Errorf("\ngot  %v\nwant %s", err, c.want)
		}
	}
	w.addresses.Claims[addr("127.0.0.200")] = living
	_, err := w.Services.PerftestUp(t.Context(), []byte(upRequest))
	if want := "perftest on 127.0.0.200: ip 127.0.0.200 is taken (02:00:00:00:00:09 answers for it on br0); write an address that no host has"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	for groupIP, want := range map[string]string{
		"10.77.0.100": "perftest on 10.77.0.100 is not up; rocast perftest ls lists what is up",
		"g1":          `"g1" is not an IP address; write one such as 10.77.0.100`,
	} {
		if err := w.Services.PerftestDown(groupIP); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	w.expect(t, nothing)
}

// groupsOf makes the groups of runs and connections at a box.
func groupsOf(c *Controller) services.Groups {
	return services.Groups{Control: serving{c}, Hops: c.NextHops}
}

// What the config lists comes up with the daemon, and goes with it.
func TestTheConfigsServicesComeUpWithTheDaemon(t *testing.T) {
	w := newWorld(t)
	parts := w.Parts
	parts.Perftest = []perftest.Config{{GroupIP: addr("127.0.0.202"), Receivers: []netip.Addr{addr("10.77.0.2")}, Port: 18599}}
	parts.CM = []cm.Config{{Config: groupip.Config{GroupIP: addr("127.0.0.222"), Receivers: []netip.Addr{addr("10.77.0.2")}, Port: 7174}, Memory: cm.PrivateData}}
	w.Controller = New(parts)
	if err := w.Services.KeepUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, c := w.Services.Perftests().Perftests, w.Services.CMs().CMs; len(p) != 1 || p[0].GroupIP != "127.0.0.202" || len(c) != 1 || c[0].Memory != "private-data" {
		t.Errorf("%+v, %+v", p, c)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
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
	groups := groupsOf(w.Controller)
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
	err := groupsOf(w.Controller).Create(t.Context(), runFile(t))
	if want := "10.77.0.3 is not reached: the kernel is asking"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	w.expect(t, nothing)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": ctltest.Hop(3, "eth3", 1500, 3)})
	if err := groupsOf(w.Controller).Create(t.Context(), runFile(t)); err != nil {
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
	groups := groupsOf(f.box("b1").Controller)
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
	groups := groupsOf(f.box("b1").Controller)
	err := groups.Create(t.Context(), treeRunFile(t, everywhere...))
	if want := "a receiver behind box b2 is not reached: 10.3.0.2 at box b3: the kernel is asking"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	f.nothingLeft()
}

// Nothing is stored of a run's group, so a disk that fails does not keep it.
func TestTheGroupOfAPerftestRunNeedsNoDisk(t *testing.T) {
	w := newWorld(t)
	groups := groupsOf(w.Controller)
	if err := groups.Create(t.Context(), runFile(t)); err != nil {
		t.Fatal(err)
	}
	w.newsOf("run", feedback.NoteEvicted, "10.77.0.3", 1, 1007)
	if g, err := w.Group("run"); err != nil || g.Members[2].State != api.LeftOut {
		t.Errorf("%+v, %v", g.Members, err)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "groups")); err != nil || len(left) != 0 {
		t.Errorf("stored %v, %v", left, err)
	}
	inTheWay := filepath.Join(w.dir, "groups", "run.yaml")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil { // a file there could not be deleted
		t.Fatal(err)
	}
	if err := groups.Remove(t.Context(), "run"); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

// A run whose group cannot be created says so, and leaves no group.
func TestAPerftestRunThatCannotBegin(t *testing.T) {
	w := newWorld(t)
	groups := groupsOf(w.Controller)
	w.sw.Refuse(errCannot)
	if err := groups.Create(t.Context(), runFile(t)); err == nil || err.Error() != errCannot.Error() {
		t.Errorf("%v", err)
	}
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": {Reason: "no answer"}, "10.77.0.3": {Interface: 3, Reason: "the kernel is asking"}})
	err := groups.Create(t.Context(), runFile(t))
	if want := "10.77.0.2 is not reached: no answer; 10.77.0.3 is not reached: the kernel is asking"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	w.expect(t, nothing)
	if _, err := w.Group("run"); err == nil {
		t.Error("the group is still listed")
	}
	if e := (*api.Error)(nil); !errors.As(groups.Remove(t.Context(), "run"), &e) || e.Kind != api.NotFound {
		t.Errorf("removed although it does not exist: %v", e)
	}
}
