package ctl

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/feedback"
)

// At boot, routes may appear after the daemon. Each helper of the config is started every five
// seconds until it is up, and what is missing is logged once.
func TestAHelperOfTheConfigIsStartedAgainUntilItIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Perftest = []perftest.Config{
			{GroupIP: addr("127.0.0.204"), Receivers: []netip.Addr{addr("10.77.0.8")}, Port: 18597},
			{GroupIP: addr("127.0.0.205"), Receivers: []netip.Addr{addr("10.77.0.9")}, Port: 18597},
		}
		began := time.Now()
		done := make(chan error)
		go func() { done <- w.keepUp(t.Context()) }()
		time.Sleep(7 * time.Second)
		synctest.Wait()
		const missing = "a service of the config could not start yet; rocastd tries again"
		if lines := w.logs.FilterMessage(missing).All(); len(lines) != 2 || lines[0].ContextMap()["every"] != 5*time.Second {
			t.Errorf("logged %v", lines)
		}
		w.hops.Set(map[string]nexthop.Hop{"10.77.0.8": ctltest.Hop(2, "eth2", 1500, 8), "10.77.0.9": ctltest.Hop(3, "eth3", 1500, 9)})
		// From here on the time stands still as soon as a helper listens.
		if err := <-done; err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if up := w.logs.FilterMessage("a service of the config is up").Len(); up != 2 || len(w.Perftests().Perftests) != 2 {
			t.Errorf("%d came up: %+v", up, w.Perftests())
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheDaemonEndsWhileAHelperIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Perftest = []perftest.Config{{GroupIP: addr("127.0.0.204"), Receivers: []netip.Addr{addr("10.77.0.8")}, Port: 18597}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.keepUp(ctx) }()
		time.Sleep(12 * time.Second)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it gave up: %v", err)
		default:
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := w.logs.FilterMessageSnippet("a service of the config could not start").Len(); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestPerftestUpAnswersWithTheHelperThatItStarted(t *testing.T) {
	w := newWorld(t)
	for _, ip := range []string{"127.0.0.201", "127.0.0.200"} { // the list is sorted
		up, err := w.PerftestUp(t.Context(), []byte(strings.Replace(upRequest, "127.0.0.200", ip, 1)))
		if err != nil || up.GroupIP != ip || !slices.Equal(up.Receivers, []string{"10.77.0.2", "10.77.0.3"}) || !slices.Equal(up.Allow, []string{"127.0.0.0/8"}) {
			t.Errorf("%+v, %v", up, err)
		}
	}
	if err := w.PerftestDown("127.0.0.200"); err != nil {
		t.Fatal(err)
	}
	if err := w.PerftestDown("127.0.0.201"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

func TestAPerftestRunIsShownWithItsTimes(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 6_789_000, time.FixedZone("", 3600))
	s := perftest.Session{Client: addr("10.77.0.1"), Reason: "why", Began: began}
	run := perftestRun(s)
	if run.Client != "10.77.0.1" || run.Reason != "why" || run.Ended != nil || run.Began.String() != "2026-01-02 02:04:05.006 +0000 UTC" {
		t.Errorf("while it runs: %+v", run)
	}
	s.Ended = began.Add(time.Second)
	if run := perftestRun(s); run.Ended == nil || run.Ended.String() != "2026-01-02 02:04:06.006 +0000 UTC" {
		t.Errorf("after its end: %+v", run)
	}
}

// failing are addresses whose n-th call fails.
type failing struct {
	*ctltest.Addresses
	call string
	n    *int
}

func (f failing) err(call string) error {
	if f.call != call {
		return nil
	}
	if *f.n--; *f.n == 0 {
		return errCannot
	}
	return nil
}

func (f failing) Hold(p address.Place) error {
	if err := f.err("Hold"); err != nil {
		return err
	}
	return f.Addresses.Hold(p)
}

func (f failing) Subnets(ifIndex int) ([]netip.Prefix, error) {
	nets, err := f.Addresses.Subnets(ifIndex)
	return nets, errors.Join(err, f.err("Subnets"))
}

// The helper's IP is added once for each interface, and whatever fails leaves none of it behind.
func TestTheIPOfAPerftestHelper(t *testing.T) {
	ip, hosts := addr("127.0.0.200"), []netip.Addr{addr("10.77.0.2"), addr("10.77.0.3"), addr("10.77.0.4")}
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(2, "eth2", 1500, 4)}) // beside 10.77.0.2
	own := helperAddresses{w.Controller}.Own
	for _, c := range []struct {
		call string
		n    int
	}{{"Subnets", 1}, {"Subnets", 3}, {"Hold", 1}, {"Hold", 2}} {
		n := c.n
		w.Addresses = failing{w.addresses, c.call, &n}
		if _, release, err := own(ip, hosts); !errors.Is(err, errCannot) || release != nil {
			t.Errorf("%s fails at call %d: %v", c.call, c.n, err)
		}
		w.expect(t, nothing)
	}
	w.Addresses = cannot{w.addresses, "Release"}
	w.addresses.Networks = append(w.addresses.Networks, netip.MustParsePrefix("127.0.0.128/25"))
	subnets, release, err := own(ip, hosts)
	if err != nil || len(subnets) != 2 || subnets[0] != netip.MustParsePrefix("127.0.0.0/8") {
		t.Fatalf("%v, %v", subnets, err)
	}
	w.expect(t, "table [], addresses [127.0.0.200@2 x1 127.0.0.200@3 x1], tracking 3, files []")
	release()
	w.expect(t, nothing)
	if lines := w.logs.FilterMessage("could not remove the group IP of a service from an interface").All(); len(lines) != 2 || lines[0].ContextMap()["groupIP"] != "127.0.0.200" {
		t.Errorf("logged %v", lines)
	}
	w.Addresses = w.addresses
	if _, release, err = own(ip, hosts); err != nil {
		t.Fatal(err)
	}
	w.logs.TakeAll()
	release()
	if lines := w.logs.All(); len(lines) != 0 {
		t.Errorf("nothing went wrong, and logged is %v", lines)
	}
}

// Nothing is stored of a run's group, so a disk that fails does not keep it.
func TestTheGroupOfAPerftestRunNeedsNoDisk(t *testing.T) {
	w := newWorld(t)
	groups := helperGroups{w.Controller}
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
	groups := helperGroups{w.Controller}
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
