package services

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
)

var errCannot = errors.New("the kernel cannot")

// failing are addresses of which a call of Hold fails, or each Release.
type failing struct {
	*ctltest.Addresses
	hold    int // the call that fails; 0: none
	release bool
}

func (f *failing) Hold(p address.IfAddr) error {
	if f.hold--; f.hold == 0 {
		return errCannot
	}
	return f.Addresses.Hold(p)
}

func (f *failing) Release(p address.IfAddr) error {
	err := f.Addresses.Release(p)
	if f.release {
		err = errCannot
	}
	return err
}

// The helper's IP is added once for each interface, and whatever fails leaves none of it behind.
func TestTheIPOfAPerftestHelper(t *testing.T) {
	ip, hosts := addr("127.0.0.200"), []netip.Addr{addr("10.77.0.2"), addr("10.77.0.3"), addr("10.77.0.4")}
	w := newWorld()
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(2, "eth2", 1500, 4)}) // beside 10.77.0.2
	for n := range 2 {
		if _, release, err := w.own(&failing{Addresses: w.addresses, hold: n + 1}).Own(ip, hosts); !errors.Is(err, errCannot) || release != nil {
			t.Errorf("Hold fails at call %d: %v", n+1, err)
		}
		w.expect(t, nothing)
	}
	w.control.refuse = errCannot
	if _, release, err := w.own(w.addresses).Own(ip, hosts); !errors.Is(err, errCannot) || release != nil {
		t.Errorf("the IP is refused: %v", err)
	}
	w.expect(t, nothing)
	w.control.refuse = nil
	w.control.subnets = append(w.control.subnets, netip.MustParsePrefix("127.0.0.128/25"))
	subnets, release, err := w.own(&failing{Addresses: w.addresses, release: true}).Own(ip, hosts)
	if err != nil || len(subnets) != 2 || subnets[0] != netip.MustParsePrefix("127.0.0.0/8") {
		t.Fatalf("%v, %v", subnets, err)
	}
	w.expect(t, "addresses [127.0.0.200@2 x1 127.0.0.200@3 x1], tracking 3")
	release()
	w.expect(t, nothing)
	if lines := w.logs.FilterMessage("could not remove the group IP of a service from an interface").All(); len(lines) != 2 || lines[0].ContextMap()["groupIP"] != "127.0.0.200" {
		t.Errorf("logged %v", lines)
	}
	if _, release, err = w.own(w.addresses).Own(ip, hosts); err != nil {
		t.Fatal(err)
	}
	w.logs.TakeAll()
	release()
	if lines := w.logs.All(); len(lines) != 0 {
		t.Errorf("nothing went wrong, and logged is %v", lines)
	}
}

// The group IP is where receivers of this box are, or else where its subnet is, and not on a link.
func TestAPerftestHelpersIPIsNotOnALink(t *testing.T) {
	w := newWorld()
	ip, far, near := addr("10.1.0.100"), addr("10.3.0.1"), addr("10.77.0.3")
	w.hops.Set(map[string]nexthop.Hop{"10.3.0.1": ctltest.Hop(1, "eth1", 1500, 1)})
	w.control.behind[far] = []string{"b2"}
	w.hops.Set(map[string]nexthop.Hop{ip.String(): {Interface: 2, Reason: "nobody answers"}})
	for want, receivers := range map[string][]netip.Addr{"10.1.0.100@3 x1": {far, near}, "10.1.0.100@2 x1": {far}} {
		_, release, err := w.own(w.addresses).Own(ip, receivers)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.addresses.String(); got != want {
			t.Errorf("towards %v: [%s], want [%s]", receivers, got, want)
		}
		release()
	}
	w.hops.Set(map[string]nexthop.Hop{ip.String(): {Reason: "no route to 10.1.0.100"}})
	_, _, err := w.own(w.addresses).Own(ip, []netip.Addr{far})
	if want := "10.1.0.100 is not reached: no route to 10.1.0.100"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	w.expect(t, nothing)
}

// What is not heard of who has the group IP of a service is logged, and changes nothing.
func TestTheGroupIPOfAServiceIsAnnounced(t *testing.T) {
	w := newWorld()
	ip := netip.MustParseAddr("10.77.0.200")
	w.own(w.addresses).Announce(ip)
	const warning = "could not tell the hosts who has the group IP of a service"
	if got := w.addresses.Announced(); !slices.Equal(got, []netip.Addr{ip}) || w.logs.FilterMessage(warning).Len() > 0 {
		t.Errorf("announced %v, logged %v", got, w.logs.All())
	}
	w.addresses.Deaf(errors.New("no socket"))
	w.own(w.addresses).Announce(ip)
	if w.logs.FilterMessage(warning).Len() != 1 {
		t.Errorf("logged %v", w.logs.All())
	}
}
