package address

import (
	"context"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/internal/testlab/netns"
)

func TestWhoAnswersForAnIP(t *testing.T) {
	stranger, box := [6]byte{2, 9}, [6]byte{2, 1}
	gone := IfAddr{IfIndex: 9, IP: group}
	for _, c := range []struct {
		name  string
		heard map[IfAddr][][6]byte
		held  bool
		want  string
		asked int
	}{
		{"a host", map[IfAddr][][6]byte{onBr0: {stranger}}, false, "02:09:00:00:00:00 answers for it on br0", 1},
		{"a host on one of two interfaces", map[IfAddr][][6]byte{onBr0: nil, onEth1: {box, stranger}}, false, "02:09:00:00:00:00 answers for it on eth1", 2},
		{"nobody", map[IfAddr][][6]byte{onBr0: nil, onEth1: nil}, false, "", 2},
		{"the box's other interface", map[IfAddr][][6]byte{onBr0: {box}, onEth1: {box}}, false, "", 2},
		{"nobody can be asked", nil, false, "", 0},
		{"an interface that has gone", map[IfAddr][][6]byte{gone: {stranger}}, false, "", 0},
		{"the box has it for another group", map[IfAddr][][6]byte{onBr0: {stranger}}, true, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &fakeKernel{on: map[IfAddr]bool{}, heard: c.heard, boxes: [][6]byte{box}}
			o := open(t, k, t.TempDir())
			if c.held {
				must(t, o.Hold(onEth1))
			}
			claim, found := o.Claimed(t.Context(), []IfAddr{gone, onBr0, onEth1})
			if got := claim.String(); found != (c.want != "") || found && got != c.want || len(k.asked) != c.asked {
				t.Errorf("found %v: %s, asked %v", found, got, k.asked)
			}
		})
	}
}

// pairKernel asks hosts on br0, which answer at once, and on eth1, where nobody answers.
type pairKernel struct {
	*fakeKernel
	silent *silentQuestion
}

func (k pairKernel) ask(p IfAddr) (question, error) {
	if p == onEth1 {
		return k.silent, nil
	}
	return promptQuestion{}, nil
}

type promptQuestion struct{}

func (promptQuestion) put() error                        { return nil }
func (promptQuestion) answer(time.Time) ([6]byte, error) { return [6]byte{2, 9}, nil }
func (promptQuestion) close()                            {}

type silentQuestion struct{ puts atomic.Int32 }

func (q *silentQuestion) put() error { q.puts.Add(1); return nil }
func (q *silentQuestion) answer(deadline time.Time) (mac [6]byte, err error) {
	time.Sleep(time.Until(deadline))
	return mac, os.ErrDeadlineExceeded
}
func (q *silentQuestion) close() {}

// One claim is enough: the hosts on other interfaces are not asked again.
func TestNobodyIsAskedAfterAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &silentQuestion{}
		o := open(t, pairKernel{&fakeKernel{on: map[IfAddr]bool{}}, silent}, t.TempDir())
		if claim, found := o.Claimed(t.Context(), []IfAddr{onEth1, onBr0}); !found || claim.Interface != "br0" {
			t.Errorf("%v, %v", claim, found)
		}
		time.Sleep(time.Second)
		if n := silent.puts.Load(); n > 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// An address for which nobody answers is not asked for again at once, on that interface, unless a
// host announces it. Where it was not asked for, or not to the end, it is asked for.
func TestAnAddressIsFreeForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{on: map[IfAddr]bool{}, heard: map[IfAddr][][6]byte{onBr0: nil, onEth1: nil}}
		o := open(t, k, t.TempDir())
		asks := func(what string, ctx context.Context, want int, at ...IfAddr) {
			t.Helper()
			k.asked = nil
			if _, found := o.Claimed(ctx, at); found || len(k.asked) != want {
				t.Errorf("%s: found %v, asked %v", what, found, k.asked)
			}
			synctest.Wait()
		}
		given, up := context.WithCancel(t.Context())
		up()
		asks("given up", given, 1, onBr0)
		asks("at first", t.Context(), 1, onBr0)
		asks("again", t.Context(), 0, onBr0)
		asks("at another interface", t.Context(), 1, onBr0, onEth1)
		time.Sleep(freeFor - time.Nanosecond)
		asks("before the end", t.Context(), 0, onBr0)
		time.Sleep(time.Nanosecond)
		asks("at the end", t.Context(), 1, onBr0)
		o.rival(time.Now(), group, [macBytes]byte{2, 9}, onBr0.IfIndex)
		asks("announced", t.Context(), 1, onBr0)
		k.heard[onBr0] = [][6]byte{{2, 9}}
		o.rival(time.Now(), group, [macBytes]byte{2, 9}, onBr0.IfIndex)
		for range 2 {
			if _, found := o.Claimed(t.Context(), []IfAddr{onBr0}); !found {
				t.Error("a claim is forgotten")
			}
		}
		for range 2 {
			if _, found := o.Claimed(t.Context(), []IfAddr{onBr0}, [6]byte{2, 9}); found {
				t.Error("another box of the group has the address, and is a claim")
			}
		}
		if _, found := o.Claimed(t.Context(), []IfAddr{onBr0}); !found {
			t.Error("the address of another group's box is free")
		}
		time.Sleep(2 * freeFor)
		delete(k.heard, onBr0)
		asks("later", t.Context(), 1, onEth1)
		if len(o.free) != 1 {
			t.Errorf("remembers %v", o.free)
		}
	})
}

func TestTheQuestionsOnTheWire(t *testing.T) {
	arp := "0001" + "0800" + "06" + "04" + "0001" + "02000000000a" + "00000000" + "000000000000" + "0a4d0064"
	if got := hex.EncodeToString(arpRequestOf([6]byte{2, 0, 0, 0, 0, 10}, netip.IPv4Unspecified(), group)); got != arp {
		t.Errorf("\ngot  %s\nwant %s", got, arp)
	}
	nd := "60000000" + "0018" + "3a" + "ff" + strings.Repeat("00", 16) + "ff0200000000000000000001ff345678" +
		"8700" + "be4e" + "00000000" + "fd000000000000000000000012345678"
	if got := hex.EncodeToString(solicitation(netip.MustParseAddr("fd00::1234:5678"))); got != nd {
		t.Errorf("\ngot  %s\nwant %s", got, nd)
	}
}

func TestALivingHostsIPIsClaimed(t *testing.T) {
	box, host := netns.New(t), netns.New(t)
	port, far := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
	other, _ := netns.Veth(t, box, "eth2", box, "eth3", netns.VethOptions{}) // a second interface without hosts
	must(t, far.AddAddress("10.77.0.50/24"))
	must(t, other.AddAddress("10.77.0.60/24"))
	o := openIn(t, box, t.TempDir())
	claimed := func(ip string, boxes ...[6]byte) (claim Claim, found bool) {
		addr := netip.MustParseAddr(ip)
		must(t, box.Do(func() error {
			claim, found = o.Claimed(t.Context(), []IfAddr{{other.Index, addr}, {port.Index, addr}}, boxes...)
			return nil
		}))
		return claim, found
	}
	if claim, found := claimed("10.77.0.50", [6]byte{2, 9}); !found || claim != (Claim{[6]byte(far.MAC), "eth1"}) {
		t.Errorf("the host's IP: %v, %v", claim, found)
	}
	if claim, found := claimed("10.77.0.50", [6]byte{2, 9}, [6]byte(far.MAC)); found {
		t.Errorf("the IP of another box of the group: %v", claim)
	}
	for _, free := range []string{"10.77.0.51", "10.77.0.60"} { // the second is the box's own, which eth3 answers for on eth2
		if claim, found := claimed(free); found {
			t.Errorf("%s: %v", free, claim)
		}
	}
	// The host received the questions, and must not have learned a neighbour from them.
	if learned, err := host.Exec("ip", "neigh"); err != nil || strings.Contains(learned, "10.77") {
		t.Errorf("the host's neighbours: %s%v", learned, err)
	}

	if _, err := host.Exec("ip", "link", "set", "p0", "down"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, box.Do(func() error {
		began := time.Now()
		if claim, found := o.Claimed(ctx, []IfAddr{{port.Index, group}}); found || time.Since(began) >= claimRounds*claimRound {
			t.Errorf("without a carrier: %v %v after %v", claim, found, time.Since(began))
		}
		return nil
	}))
	must(t, o.Close())
}

func TestALivingHostsIPv6IsClaimed(t *testing.T) {
	box, host := netns.New(t), netns.New(t)
	port, far := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
	needIPv6(t, port, far)
	if _, err := host.Exec("ip", "addr", "add", "fd00::50/64", "dev", "p0", "nodad"); err != nil {
		t.Fatal(err)
	}
	o := openIn(t, box, t.TempDir())
	must(t, box.Do(func() error {
		for ip, want := range map[string]bool{"fd00::50": true, "fd00::51": false} {
			claim, found := o.Claimed(t.Context(), []IfAddr{{port.Index, netip.MustParseAddr(ip)}})
			if found != want || found && claim != (Claim{[6]byte(far.MAC), "eth1"}) {
				t.Errorf("%s: %v, %v", ip, claim, found)
			}
		}
		return nil
	}))
	must(t, o.Close())
}

// A truncated answer, or an answer about another IP, does not count.
func TestOnlyAWholeAnswerCounts(t *testing.T) {
	ipv6 := netip.MustParseAddr("fd00::1234:5678")
	arp := arpRequestOf([6]byte{2, 0, 0, 0, 0, 10}, netip.IPv4Unspecified(), netip.MustParseAddr("10.77.0.1"))
	copy(arp[arpSender:], group.AsSlice())
	advertisement := solicitation(ipv6)
	advertisement[ipv6Bytes] = neighbourAdvertisement
	if !isARPReply(arp, group) || isARPReply(arp, ipv6) || !isAdvertisement(advertisement, ipv6) || isAdvertisement(advertisement, group) {
		t.Error("a whole answer, or one about another IP, is taken wrong")
	}
	for n := range arp {
		if isARPReply(arp[:n:n], group) {
			t.Errorf("%d bytes of ARP are an answer", n)
		}
	}
	for n := range advertisement {
		if isAdvertisement(advertisement[:n:n], ipv6) {
			t.Errorf("%d bytes of IPv6 are an answer", n)
		}
	}
	if isAdvertisement(solicitation(ipv6), ipv6) {
		t.Error("a question is taken for an answer")
	}
}
