package address

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// A host that uses a held address is told once while it does, wherever else the box holds it.
func TestARivalIsToldOnce(t *testing.T) {
	box := [6]byte{2, 1}
	k := &fakeKernel{on: map[IfAddr]bool{}, boxes: [][6]byte{box}}
	o, err := newOwner(k, t.TempDir())
	must(t, err)
	other := netip.MustParseAddr("10.77.0.101")
	k.on[IfAddr{2, other}] = false // the box has it anyway
	must(t, o.Hold(IfAddr{2, group}))
	must(t, o.Hold(IfAddr{2, other}))
	host, at := [6]byte{2, 9}, time.Unix(1000, 0)
	expect := func(after time.Duration, ip netip.Addr, mac [6]byte, ifIndex int, want bool) {
		t.Helper()
		at = at.Add(after)
		c, news := o.rival(at, ip, mac, ifIndex)
		if news != want || news && c != (Claim{MAC: mac, Interface: "br0"}) {
			t.Errorf("%v, %v; want %v", c, news, want)
		}
	}
	expect(0, group, box, 2, false)
	expect(0, other, host, 2, false)
	expect(0, group, host, 1, false) // on another interface, which is another network
	expect(0, group, host, 2, true)
	expect(time.Minute, group, host, 2, false)
	expect(rivalGone-1, group, host, 2, false)
	expect(rivalGone-1, group, host, 2, false)
	expect(0, group, [6]byte{2, 8}, 2, true)
	expect(rivalGone, group, host, 2, true)
	must(t, o.Release(IfAddr{2, group}))
	expect(rivalGone, group, host, 2, false)
	must(t, o.Hold(IfAddr{2, group}))
	k.fail = "macs"
	expect(rivalGone, group, host, 2, false)
	k.fail = ""
	for i := range rivalsMax + 9 {
		expect(0, group, [6]byte{4, byte(i >> 8), byte(i)}, 2, true)
	}
	if len(o.rivals) > rivalsMax {
		t.Errorf("%d are remembered", len(o.rivals))
	}
}

// Each held address has its turn once a minute, a few at a time.
func TestHeldAddressesAreAskedForByTurns(t *testing.T) {
	o, err := newOwner(&fakeKernel{on: map[IfAddr]bool{{1, netip.MustParseAddr("10.0.0.1")}: false}}, t.TempDir())
	must(t, err)
	for i := range 13 {
		must(t, o.Hold(IfAddr{1, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})})) // the box has one of them anyway
	}
	at := time.Unix(1000, 0)
	for i, want := range []int{askRivalsMost, 12 - askRivalsMost, 0} {
		if got := o.askNext(at); len(got) != want {
			t.Errorf("turn %d: %v, want %d", i, got, want)
		}
	}
	if got := o.askNext(at.Add(askRivalsAfter - 1)); len(got) != 0 {
		t.Errorf("too soon: %v", got)
	}
	if got := o.askNext(at.Add(askRivalsAfter)); len(got) != askRivalsMost {
		t.Errorf("a minute later: %v", got)
	}
}

func TestClaims(t *testing.T) {
	arp := arpRequestOf([6]byte{2, 9}, netip.IPv4Unspecified(), group)
	copy(arp[arpSender:], group.AsSlice())
	advertisement := solicitation(netip.MustParseAddr("fd00::100"))
	advertisement[ipv6Bytes] = neighbourAdvertisement
	for name, c := range map[string]struct {
		packet []byte
		isARP  bool
		want   string
	}{
		"ARP":              {arp, true, "10.77.0.100"},
		"a short ARP":      {arp[:arpBytes-1], true, ""},
		"an advertisement": {advertisement, false, "fd00::100"},
		"a short one":      {advertisement[:len(advertisement)-1], false, ""},
		"a solicitation":   {solicitation(netip.MustParseAddr("fd00::100")), false, ""},
	} {
		if ip, ok := claimed(c.packet, c.isARP); ok != (c.want != "") || ok && ip.String() != c.want {
			t.Errorf("%s: %v, %v", name, ip, ok)
		}
	}
}

// A host has taken the address while the box holds it, and says nothing: it is asked.
func TestAHostThatTakesAHeldAddressIsTold(t *testing.T) {
	for name, held := range map[string]string{"IPv4": "10.77.0.100/32", "IPv6": "fd00::100/128"} {
		t.Run(name, func(t *testing.T) {
			box, host := netns.New(t), netns.New(t)
			port, far := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
			at := netip.MustParsePrefix(held)
			add := []string{"addr", "add", held, "dev", "p0"}
			if at.Addr().Is6() {
				add = append(add, "nodad")
				needIPv6(t, port, far)
			}
			o := openIn(t, box, t.TempDir())
			must(t, o.Hold(IfAddr{port.Index, at.Addr()}))
			if out, err := host.Exec("ip", add...); err != nil {
				t.Fatal(err, out)
			}
			ctx, stop := context.WithCancel(context.Background())
			told, done := make(chan Claim, 9), make(chan error)
			go func() {
				done <- o.Run(ctx, nil, func([]Change) {}, func(ip netip.Addr, claim Claim) {
					if ip != at.Addr() {
						t.Errorf("told of %v", ip)
					}
					told <- claim
				})
			}()
			select {
			case got := <-told:
				if want := (Claim{MAC: [6]byte(far.MAC), Interface: "eth1"}); got != want {
					t.Errorf("told %v, want %v", got, want)
				}
			case <-time.After(20 * time.Second):
				t.Error("nobody was told")
			}
			stop()
			must(t, <-done)
			must(t, o.Close())
		})
	}
}
