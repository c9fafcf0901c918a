package services

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/perftest"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// world is Services whose control is made of the test doubles of ctltest.
type world struct {
	*Services
	hops      *ctltest.Hops
	addresses *ctltest.Addresses
	control   *control
	logs      *observer.ObservedLogs
}

func newWorld() *world {
	core, logs := observer.New(zap.DebugLevel)
	w := &world{hops: ctltest.NewHops(), addresses: ctltest.NewAddresses(), logs: logs}
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(2, "eth2", 1500, 2), "10.77.0.3": ctltest.Hop(3, "eth3", 1500, 3)})
	w.control = &control{hops: w.hops, subnets: w.addresses.Networks, behind: map[netip.Addr][]string{}}
	w.Services = New(Options{Control: w.control, Hops: w.hops, Addresses: w.addresses, Log: zap.New(core), Bounds: bounds.New(zap.NewNop())})
	return w
}

// own returns how group IPs are added to the box where an owner of addresses does it.
func (w *world) own(owner Owner) addresses {
	return addresses{control: w.control, hops: w.hops, owner: owner, log: w.Log}
}

// String lists everything that a service can leave behind.
func (w *world) String() string {
	return fmt.Sprintf("addresses [%v], tracking %d", w.addresses, w.hops.Tracked())
}

func (w *world) expect(t *testing.T, want string) {
	t.Helper()
	if got := w.String(); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

const nothing = "addresses [], tracking 0"

// control is a Control without groups.
type control struct {
	hops    *ctltest.Hops
	subnets []netip.Prefix
	refuse  error // answer to FreeIP
	behind  map[netip.Addr][]string
	setUp   []string // names of groups
	removed []string
	waits   []string // answer to SetUp
	told    []api.Event

	counters map[string]api.Counters // of groups
}

func (c *control) SetUp(_ context.Context, file *groupfile.File) ([]string, error) {
	c.setUp = append(c.setUp, file.Name)
	return c.waits, nil
}

func (c *control) Remove(name string) error {
	c.removed = append(c.removed, name)
	return nil
}

func (c *control) Leave(context.Context, string, netip.Addr) error { return nil }

func (c *control) Counters(name string) (api.Counters, bool) {
	counts, ok := c.counters[name]
	return counts, ok
}

func (c *control) Saw(name string) string { return "saw " + name }

func (c *control) Sees(name string) string {
	if name == "one" {
		return "sees " + name
	}
	return ""
}

func (c *control) AddEvent(e api.Event) { c.told = append(c.told, e) }

func (c *control) Unfit(netip.Addr, int) string { return "" }

func (c *control) Behind(host netip.Addr) ([]string, error) { return c.behind[host], nil }

func (c *control) FreeIP(context.Context, netip.Addr, []address.IfAddr) ([]netip.Prefix, error) {
	return append([]netip.Prefix(nil), c.subnets...), c.refuse
}

func (c *control) Resolve(ctx context.Context, hosts []netip.Addr) (release func()) {
	c.hops.Resolve(ctx, hosts)
	return func() {}
}

func (c *control) Alone(_ context.Context, parser func() error) error { return parser() }

// A group with a member that is not reached is removed again.
func TestAGroupWithAMemberThatIsNotReached(t *testing.T) {
	w := newWorld()
	groups := Groups{Control: w.control, Hops: w.hops}
	file := &groupfile.File{Name: "run"}
	if err := groups.Create(t.Context(), file); err != nil || len(w.control.removed) != 0 {
		t.Errorf("%v, removed %v", err, w.control.removed)
	}
	w.control.waits = []string{"10.77.0.2 is not reached: no answer", "10.77.0.3 is not reached: no route"}
	err := groups.Create(t.Context(), file)
	if want := "10.77.0.2 is not reached: no answer; 10.77.0.3 is not reached: no route"; err == nil || err.Error() != want || len(w.control.removed) != 1 || w.control.removed[0] != "run" {
		t.Errorf("\ngot  %v\nwant %s\nremoved %v", err, want, w.control.removed)
	}
}

func TestTheConfigsPerftestHelpersComeUpWithTheDaemon(t *testing.T) {
	w := newWorld()
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
	w.Close()
	w.expect(t, nothing)
	if conn, err := net.Dial("tcp", "127.0.0.202:18599"); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// At boot, routes may appear after the daemon. Each helper of the config is started every five
// seconds until it is up, and what is missing is logged once.
func TestAHelperOfTheConfigIsStartedAgainUntilItIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Perftest = []perftest.Config{
			{GroupIP: addr("127.0.0.204"), Receivers: []netip.Addr{addr("10.77.0.8")}, Port: 18597},
			{GroupIP: addr("127.0.0.205"), Receivers: []netip.Addr{addr("10.77.0.9")}, Port: 18597},
		}
		began := time.Now()
		done := make(chan error)
		go func() { done <- w.KeepUp(t.Context()) }()
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
		w.Close()
	})
}

func TestTheDaemonEndsWhileAHelperIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Perftest = []perftest.Config{{GroupIP: addr("127.0.0.204"), Receivers: []netip.Addr{addr("10.77.0.8")}, Port: 18597}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.KeepUp(ctx) }()
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
