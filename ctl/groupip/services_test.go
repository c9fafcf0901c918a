package groupip

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	first  = netip.MustParseAddr("10.77.0.100")
	second = netip.MustParseAddr("10.77.0.101")
)

// service can take a while to stop.
type service struct {
	name  string
	stops int
	stop  func() // nil: at once
}

func (s *service) Stop() {
	s.stops++
	if s.stop != nil {
		s.stop()
	}
}

func give(s *service) func() (*service, error) { return func() (*service, error) { return s, nil } }

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestOneServiceAtAGroupIP(t *testing.T) {
	services, a := NewServices[*service]("perftest"), &service{}
	if err := services.Up(first, give(a)); err != nil {
		t.Fatal(err)
	}
	checkError(t, services.Up(first, func() (*service, error) {
		t.Error("a second one is started")
		return &service{}, nil
	}), "perftest on 10.77.0.100 is already up; take it down first")
	if s, ok := services.Get(first); s != a || !ok {
		t.Error("the one that is up is replaced")
	}
	if err := services.Down(first); err != nil || a.stops != 1 {
		t.Errorf("%v; stopped %d times", err, a.stops)
	}
	if _, ok := services.Get(first); ok || len(services.All()) != 0 {
		t.Error("it is listed after its end")
	}
	checkError(t, services.Down(first), "perftest on 10.77.0.100 is not up")
	checkError(t, services.Down(netip.MustParseAddr("fe80::1%an error of another kind")), "perftest on fe80::1 is not up")
	if err := services.Up(first, give(a)); err != nil {
		t.Error(err)
	}
}

func TestAServiceThatDoesNotStart(t *testing.T) {
	services, cause := NewServices[*service]("RDMA-CM"), errors.New("no such address")
	err := services.Up(first, func() (*service, error) { return nil, cause })
	checkError(t, err, "RDMA-CM on 10.77.0.100: no such address")
	if !errors.Is(err, cause) {
		t.Error("the cause is not wrapped")
	}
	if _, ok := services.Get(first); ok {
		t.Error("it is listed")
	}
}

func TestTooManyServices(t *testing.T) {
	services, ip := NewServices[*service]("perftest"), netip.MustParseAddr("10.0.0.0")
	for range 256 {
		if err := services.Up(ip, give(&service{})); err != nil {
			t.Fatal(err)
		}
		ip = ip.Next()
	}
	checkError(t, services.Up(first, give(&service{})), "perftest is up on 256 group IPs, which is the limit; take one down first")
	if err := services.Down(ip.Prev()); err != nil {
		t.Fatal(err)
	}
	if err := services.Up(first, give(&service{})); err != nil {
		t.Error(err)
	}
}

func TestServicesAreInOrder(t *testing.T) {
	services := NewServices[*service]("perftest")
	for _, name := range []string{"10.77.0.97", "10.77.0.100", "10.77.0.9", "10.77.0.98", "2001:db8::1", "10.77.0.99"} {
		if err := services.Up(netip.MustParseAddr(name), give(&service{name: name})); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, s := range services.All() {
		got = append(got, s.name)
	}
	if diff := cmp.Diff([]string{"10.77.0.9", "10.77.0.97", "10.77.0.98", "10.77.0.99", "10.77.0.100", "2001:db8::1"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestAServiceStopsBeforeTheNextStarts: a service is listed until it has stopped, and no other one
// has its address before.
func TestAServiceStopsBeforeTheNextStarts(t *testing.T) {
	services, next := NewServices[*service]("perftest"), &service{}
	var tasks sync.WaitGroup
	a := &service{stop: func() {
		isTrying := make(chan struct{})
		tasks.Go(func() {
			close(isTrying)
			if err := services.Up(first, give(next)); err != nil {
				t.Error(err)
			}
		})
		<-isTrying
		for range 1000 {
			runtime.Gosched()
		}
		if s, ok := services.Get(first); !ok || s == next {
			t.Errorf("while it stops, one is listed: %v, and the next one is up: %v", ok, s == next)
		}
	}}
	if err := services.Up(first, give(a)); err != nil {
		t.Fatal(err)
	}
	if err := services.Down(first); err != nil {
		t.Fatal(err)
	}
	tasks.Wait()
	if s, ok := services.Get(first); !ok || s != next {
		t.Error("the next one is not up")
	}
}

// TestCloseStopsAllAtOnce: services that take a while to stop do not wait for each other.
func TestCloseStopsAllAtOnce(t *testing.T) {
	services := NewServices[*service]("RDMA-CM")
	var stopping sync.WaitGroup
	stopping.Add(2)
	both := make(chan struct{})
	go func() { stopping.Wait(); close(both) }()
	meet := func() {
		stopping.Done()
		select {
		case <-both:
		case <-time.After(20 * time.Second):
			t.Error("a service stops, and the other one does not")
		}
	}
	if err := errors.Join(services.Up(first, give(&service{stop: meet})), services.Up(second, give(&service{stop: meet}))); err != nil {
		t.Fatal(err)
	}
	services.Close()
	if len(services.All()) != 0 {
		t.Error("they are listed after their end")
	}
}

// addresses adds IPs to a box with one subnet.
type addresses struct {
	subnets []netip.Prefix
	err     error
	held    map[netip.Addr]int
}

func (a *addresses) Own(ip netip.Addr, towards []netip.Addr) ([]netip.Prefix, func(), error) {
	if a.err != nil {
		return nil, nil, a.err
	}
	a.held[ip] += len(towards)
	return a.subnets, func() { a.held[ip] -= len(towards) }, nil
}

func TestOwn(t *testing.T) {
	subnet, other := netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("10.78.0.0/24")
	for _, c := range []struct {
		about          string
		allow, subnets []netip.Prefix
		err            error
		want           []netip.Prefix
		wantErr        string
	}{
		{"the box's subnets", nil, []netip.Prefix{subnet}, nil, []netip.Prefix{subnet}, ""},
		{"networks that are named", []netip.Prefix{other}, []netip.Prefix{subnet}, nil, []netip.Prefix{other}, ""},
		{"networks that are named, and no subnet", []netip.Prefix{other}, nil, nil, []netip.Prefix{other}, ""},
		{"no network", nil, nil, nil, nil, "the box has no address in the group IP's subnet, so it is unknown which clients " +
			"are allowed; give the box one, or name the networks of the clients with allow"},
		{"an address that cannot be added", nil, []netip.Prefix{subnet}, errors.New("it is taken"), nil, "it is taken"},
	} {
		t.Run(c.about, func(t *testing.T) {
			box := &addresses{c.subnets, c.err, map[netip.Addr]int{}}
			mine := Config{GroupIP: first, Receivers: []netip.Addr{second}, Allow: c.allow}
			theirs := mine
			release, err := mine.Own(box)
			if c.wantErr != "" {
				checkError(t, err, c.wantErr)
				if box.held[first] != 0 {
					t.Error("the address is not released")
				}
				return
			}
			if err != nil || box.held[first] != 1 || !slices.Equal(mine.Allow, c.want) {
				t.Fatalf("%v; held for %d receivers, allowed %v", err, box.held[first], mine.Allow)
			}
			theirs.Receivers[0] = netip.Addr{}
			if len(theirs.Allow) > 0 {
				theirs.Allow[0] = netip.Prefix{}
			}
			if mine.Receivers[0] != second || !slices.Equal(mine.Allow, c.want) {
				t.Errorf("the caller has changed the receivers to %v, or the networks to %v", mine.Receivers, mine.Allow)
			}
			if release(); box.held[first] != 0 {
				t.Error("the address is not released")
			}
		})
	}
}
