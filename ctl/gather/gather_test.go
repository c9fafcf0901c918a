package gather

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func addr(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, last}) }

// host returns host 10.77.0.last, whose regions have these lengths.
func host(t *testing.T, last byte, role string, members int, lengths ...uint64) *Host {
	t.Helper()
	r := api.HostRequest{Role: role, QPN: 100 + uint32(last), PSN: uint32(last), Members: members, MTU: 1024}
	for i, n := range lengths {
		key := api.Hex(7 + i)
		r.Regions = append(r.Regions, api.Region{VA: api.Hex(last) << 32, Length: n, RKey: &key})
	}
	h, err := NewHost(addr(last), r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// come lets a host ask, and returns whether all have come.
func come(t *testing.T, l *Hall, h *Host) bool {
	t.Helper()
	_, _, all, err := l.Come(noon, "g1", h)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// isOver reports whether a host waits no more.
func isOver(h *Host) bool {
	select {
	case <-h.Over():
		return true
	default:
		return false
	}
}

func TestTheGroupOfTheHostsThatHaveCome(t *testing.T) {
	var l Hall
	two := host(t, 2, "receiver", 3, 5000, 64)
	two.MTU = 4096
	both := host(t, 3, "both", 3, 4096, 100)
	both.SendPSN = 9
	if come(t, &l, two) || come(t, &l, host(t, 1, "source", 3)) {
		t.Error("all have come before the third has")
	}
	if !come(t, &l, both) {
		t.Error("not all have come")
	}
	p := l.Party("g1")
	if got := strings.Join(p.Came(), " "); got != "10.77.0.2 10.77.0.1 10.77.0.3" {
		t.Error(got)
	}
	text, err := p.File(p.Hosts[0], addr(200), 77, 0x40)
	if err != nil {
		t.Fatal(err)
	}
	f, err := groupfile.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if f.Hosts != groupfile.HostsEnd || f.Name != "g1" || f.IP != addr(200) || f.QPN != 77 || f.PathMTU != 1024 || f.Source.IP != addr(1) || f.Source.FirstPSN != 1 || f.Source.Confirm {
		t.Errorf("%+v", f)
	}
	if want := []mft.VirtualRegion{{Length: 4096, RKey: 0x40}, {Length: 64, RKey: 0x41}}; !slices.Equal(f.Memory, want) {
		t.Errorf("memory %+v", f.Memory)
	}
	r := f.Receivers[1]
	if r.IP != addr(3) || r.QPN != 103 || r.FirstPSN != 3 || r.SendPSN != 9 || !r.Confirm || r.Role != groupfile.Both ||
		!slices.Equal(r.Regions, []mft.Region{{VA: 3 << 32, Length: 4096, RKey: 7}, {VA: 3 << 32, Length: 64, RKey: 8}}) {
		t.Errorf("%+v", r)
	}
	if _, _, _, err := l.Come(noon, "g1", host(t, 4, "receiver", 3)); err == nil || err.Error() != "group g1 is being created; join again" {
		t.Errorf("one more: %v", err)
	}
	closed, waited := l.Leave(noon, "g1", addr(2))
	if closed != two || waited || isOver(two) {
		t.Errorf("a host that leaves a group that is being created: %v, %t", closed, waited)
	}
	if l.Close(noon, p, nil); l.Party("g1") != nil || !isOver(two) || !isOver(both) {
		t.Error("a closed party waits")
	}
}

// Without memory the group refuses all WRITEs: copies would otherwise keep the keys of the source.
func TestAGroupWithoutRegions(t *testing.T) {
	var l Hall
	come(t, &l, host(t, 1, "source", 2))
	come(t, &l, host(t, 2, "receiver", 2))
	text, err := l.Party("g1").File(l.Party("g1").Hosts[0], addr(200), 77, 1)
	if err != nil || !strings.Contains(string(text), `"memory":[]`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestWhatDoesNotGoTogether(t *testing.T) {
	v6 := host(t, 2, "receiver", 2)
	v6.IP = netip.MustParseAddr("fd77::2")
	for _, c := range []struct {
		name          string
		first, second *Host
		want          string
	}{
		{"counts", host(t, 1, "source", 2), host(t, 2, "receiver", 3), "members is 3, and the hosts that came before (10.77.0.1 first) say 2; write the same at all hosts"},
		{"two sources", host(t, 1, "source", 3), host(t, 2, "source", 3),
			"10.77.0.1 is the source of group g1 already; join with role receiver, or let all members that send have role both"},
		{"regions", host(t, 1, "both", 2, 8), host(t, 2, "receiver", 2), "10.77.0.2 has 0 regions, and 10.77.0.1 has 1; all receivers have equally many"},
		{"no source", host(t, 1, "receiver", 2), host(t, 2, "receiver", 2), "all 2 hosts of group g1 are receivers; one has to join with role source or both"},
		{"families", host(t, 1, "source", 2), v6, "fd77::2 and 10.77.0.1 are addresses of two families; a group has one"},
	} {
		var l Hall
		come(t, &l, c.first)
		if _, _, _, err := l.Come(noon, "g1", c.second); err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
		if got := l.Party("g1").Came(); len(got) != 1 {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestWhatNoHostCanBe(t *testing.T) {
	key, longKey := api.Hex(1), api.Hex(1<<32)
	good := api.HostRequest{Role: "receiver", QPN: 2, Members: 2, MTU: 256, Regions: []api.Region{{VA: 1, Length: 1, RKey: &key}}}
	if _, err := NewHost(addr(1), good); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*api.HostRequest){
		`role is "sink"; write receiver, source or both`:                                                              func(r *api.HostRequest) { r.Role = "sink" },
		"qpn is 1; it may be 2 to 16777214":                                                                           func(r *api.HostRequest) { r.QPN = 1 },
		"qpn is 16777215; it may be 2 to 16777214":                                                                    func(r *api.HostRequest) { r.QPN = 1<<24 - 1 },
		"psn is 16777216; it may be 0 to 16777215":                                                                    func(r *api.HostRequest) { r.PSN = 1 << 24 },
		"sendPSN is 16777216; it may be 0 to 16777215":                                                                func(r *api.HostRequest) { r.SendPSN = 1 << 24 },
		"members is 1; it may be 2 to 1025":                                                                           func(r *api.HostRequest) { r.Members = 1 },
		"members is 0; it may be 2 to 1025":                                                                           func(r *api.HostRequest) { r.Members = -5 },
		"members is 1026; it may be 2 to 1025":                                                                        func(r *api.HostRequest) { r.Members = 1026 },
		"regions is 5; it may be 0 to 4":                                                                              func(r *api.HostRequest) { r.Regions = make([]api.Region, 5) },
		"mtu is 1500; write 256, 512, 1024, 2048 or 4096":                                                             func(r *api.HostRequest) { r.MTU = 1500 },
		"the secret may have up to 64 letters, digits and characters of -_.+/=":                                       func(r *api.HostRequest) { r.Secret = strings.Repeat("a", 65) },
		"the secret may have up to 64 letters, digits and characters of -_.+/= ":                                      func(r *api.HostRequest) { r.Secret = `a"` },
		`policy "repair:off" is not KEY=VALUE; write one such as repair=off,nak=lower, with the keys of a group file`: func(r *api.HostRequest) { r.Policy = "repair:off" },
		`policy "nak=[a" is not KEY=VALUE; write one such as repair=off,nak=lower, with the keys of a group file`:     func(r *api.HostRequest) { r.Policy = "repair=off,nak=[a" },
		"mtu is 8192; write 256, 512, 1024, 2048 or 4096":                                                             func(r *api.HostRequest) { r.MTU = 8192 },
		"mtu is 128; write 256, 512, 1024, 2048 or 4096":                                                              func(r *api.HostRequest) { r.MTU = 128 },
		"sendPSN is only for role both; the psn of a source is the first that it sends":                               func(r *api.HostRequest) { r.SendPSN = 1 },
		"a source has no regions, because nobody WRITEs to it; leave them out, or write role both":                    func(r *api.HostRequest) { r.Role = "source" },
		"region 1 needs a length, an rkey of 32 bits and an end below 2^64":                                           func(r *api.HostRequest) { r.Regions = []api.Region{{VA: 1, Length: 1}} },
		"region 1 needs a length, an rkey of 32 bits and an end below 2^64 ":                                          func(r *api.HostRequest) { r.Regions = []api.Region{{VA: 1, RKey: &key}} },
		"region 1 needs a length, an rkey of 32 bits and an end below 2^64  ":                                         func(r *api.HostRequest) { r.Regions = []api.Region{{VA: 1, Length: 1, RKey: &longKey}} },
		"region 1 needs a length, an rkey of 32 bits and an end below 2^64   ":                                        func(r *api.HostRequest) { r.Regions = []api.Region{{VA: 1<<64 - 1, Length: 2, RKey: &key}} },
	} {
		r := good
		change(&r)
		if _, err := NewHost(addr(1), r); err == nil || err.Error() != strings.TrimRight(want, " ") {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
}

// A host that asks no more, or whose connection has ended, is not waited with.
func TestAHostThatHasGone(t *testing.T) {
	var l Hall
	h, other := host(t, 1, "source", 3), host(t, 2, "receiver", 3)
	come(t, &l, h)
	come(t, &l, other)
	p := l.Party("g1")
	l.Answered(noon, p, h, false)
	if come(t, &l, host(t, 1, "source", 3)) || len(p.Hosts) != 2 {
		t.Error("a host that asks again has come twice, or had gone")
	}
	come(t, &l, h) // two questions at once
	l.Answered(noon, p, h, true)
	if len(p.Hosts) != 2 {
		t.Error("a host has gone whose other question waits")
	}
	l.Answered(noon, p, h, true)
	if p.waits(h) || !p.waits(other) || !isOver(h) {
		t.Errorf("%v are there", p.Came())
	}
	l.Answered(noon, p, other, false)
	late := host(t, 9, "source", 2)
	if _, _, _, err := l.Come(noon.Add(Patience), "g2", late); err != nil || l.Party("g1") == nil {
		t.Error("a host has gone too early")
	}
	if _, _, _, err := l.Come(noon.Add(Patience+1), "g2", late); err != nil || l.Party("g1") != nil {
		t.Error("a host that asks no more is waited with")
	}
	if _, waited := l.Leave(noon, "g2", addr(9)); !waited || l.Party("g2") != nil {
		t.Error("a host that has left is there")
	}
	if _, waited := l.Leave(noon, "g2", addr(9)); waited {
		t.Error("a host has left twice")
	}
}

// A host hears why it waits no more, also if that happened between two of its questions. If it
// comes anew, it waits anew.
func TestARefusalIsKeptForAWhile(t *testing.T) {
	other := func(t *testing.T) *Host { h := host(t, 2, "receiver", 3); h.QPN = 500; return h }
	for name, c := range map[string]struct {
		refuse func(*Hall)
		want   string
	}{
		"it has left":     {func(l *Hall) { l.Leave(noon, "g1", addr(2)) }, "10.77.0.2 has left group g1; join it again to be in it"},
		"another program": {func(l *Hall) { come(t, l, other(t)) }, "another program of 10.77.0.2 joins group g1 now, so this one cannot"},
		"the box refuses": {func(l *Hall) { l.Close(noon, l.Party("g1"), errors.New("no memory")) }, "no memory"},
		"it was created":  {func(l *Hall) { l.Close(noon, l.Party("g1"), nil); l.HasLeft("g2", addr(2)); l.HasLeft("g1", addr(3)) }, "<nil>"},
		"it was created, and it has left": {func(l *Hall) { l.Close(noon, l.Party("g1"), nil); l.HasLeft("g1", addr(2)) },
			"10.77.0.2 has left group g1; join it again to be in it"},
		"it was created, and another program is in it": {func(l *Hall) {
			l.Close(noon, l.Party("g1"), nil)
			l.Replaced("g2", addr(2))
			l.Replaced("g1", addr(3))
			l.Replaced("g1", addr(2))
			l.HasLeft("g1", addr(2))
		}, "another program of 10.77.0.2 joins group g1 now, so this one cannot"},
		"the box refuses, and it leaves": {func(l *Hall) { l.Close(noon, l.Party("g1"), errors.New("no memory")); l.HasLeft("g1", addr(2)) }, "no memory"},
	} {
		var l Hall
		first, again := host(t, 2, "receiver", 3), host(t, 2, "receiver", 3)
		text := func(err error) string { return fmt.Sprint(err) }
		ended := func(at time.Time, group string, h *Host) string {
			if ended, why := l.Ended(at, group, h); ended || why != nil {
				return fmt.Sprint(why)
			}
			return "it waits"
		}
		come(t, &l, first)
		l.Answered(noon, l.Party("g1"), first, false)
		if got := ended(noon, "g1", again); got != "it waits" || first.Refusal() != nil {
			t.Errorf("%s: before: %s", name, got)
		}
		c.refuse(&l)
		for who, got := range map[string]string{
			"that asks again":   ended(noon, "g1", again),
			"that asks at last": ended(noon.Add(keepEnding), "g1", again),
		} {
			if got != c.want {
				t.Errorf("%s: a host %s\ngot  %s\nwant %s", name, who, got, c.want)
			}
		}
		want := c.want // what the question hears that waits
		if strings.HasPrefix(name, "it was created") {
			want = "<nil>"
		}
		if !isOver(first) || text(first.Refusal()) != want {
			t.Errorf("%s: a host that waits\ngot  %v\nwant %s", name, first.Refusal(), want)
		}
		for who, got := range map[string]string{
			"too late":           ended(noon.Add(keepEnding+1), "g1", again),
			"of another group":   ended(noon, "g2", again),
			"of another program": ended(noon, "g1", other(t)),
			"of another host":    ended(noon, "g1", host(t, 3, "receiver", 3)),
		} {
			if got != "it waits" {
				t.Errorf("%s: a question %s: %s", name, who, got)
			}
		}
		if l.Forget("g1", other(t)); ended(noon, "g1", again) != c.want {
			t.Errorf("%s: another program joins anew, and what this one is to hear is forgotten", name)
		}
		come(t, &l, again)
		if got := ended(noon, "g1", again); got != "it waits" || again.Refusal() != nil {
			t.Errorf("%s: it has come again: %s", name, got)
		}
	}
}

// What is kept of how waiting ended is bounded, for each host and for all, and a host cannot keep
// others from hearing it.
func TestEndingsAreBounded(t *testing.T) {
	var l Hall
	h := func(last byte) *Host { return host(t, last, "receiver", 3) }
	hears := func(name string, last byte) bool {
		_, why := l.Ended(noon, name, h(last))
		return why != nil
	}
	leaves := func(last byte, name string) {
		t.Helper()
		if _, _, _, err := l.Come(noon, name, h(last)); err != nil {
			t.Fatal(err)
		}
		l.Leave(noon, name, addr(last))
	}
	leaves(9, "g1")
	for i := range maxOfHost + 1 {
		leaves(2, fmt.Sprint(i))
	}
	if !hears("g1", 9) || hears("0", 2) || !hears("1", 2) {
		t.Error("a host has more than its share, or another one has lost its own")
	}
	for i := range maxEndings {
		leaves(byte(10+i/maxOfHost), fmt.Sprint(i))
	}
	if n := len(l.ended); n != maxEndings || hears("g1", 9) {
		t.Errorf("%d endings are kept", n)
	}
	const third = 2 * maxOfHost // the first name of the third host, which has its share
	leaves(12, "one more")
	if n := len(l.ended); n != maxEndings || hears(fmt.Sprint(third), 12) || !hears("0", 10) {
		t.Errorf("%d are kept; a host with its share has pushed out what another one has, or keeps more", n)
	}
	if _, _, _, err := l.Come(noon.Add(keepEnding+1), "g1", h(9)); err != nil || len(l.ended) != 0 {
		t.Errorf("%d endings are kept for ever, %v", len(l.ended), err)
	}
}

// A program that starts again takes the place of the one before, also if it gets a queue pair with
// the same number.
func TestAProgramThatStartsAgain(t *testing.T) {
	for name, change := range map[string]func(*api.HostRequest){
		"QPN":    func(r *api.HostRequest) { r.QPN = 500 },
		"PSN":    func(r *api.HostRequest) { r.PSN = 77 },
		"region": func(r *api.HostRequest) { r.Regions[0].VA++ },
		"key":    func(r *api.HostRequest) { key := api.Hex(99); r.Regions[0].RKey = &key },
		"port":   func(r *api.HostRequest) { r.Port++ },
		"number": func(r *api.HostRequest) { r.Members = 4 },
	} {
		var l Hall
		first, again := host(t, 2, "receiver", 3, 64), host(t, 2, "receiver", 3, 64)
		come(t, &l, first)
		change(&again.HostRequest)
		if come(t, &l, again) {
			t.Errorf("%s: the same host counts twice", name)
		}
		p := l.Party("g1")
		if len(p.Hosts) != 1 || p.waits(first) || !p.waits(again) || !isOver(first) || isOver(again) || p.Members != again.Members {
			t.Errorf("%s: %+v", name, p.Hosts)
		}
		l.Answered(noon, p, first, true) // its connection ends too
		if !p.waits(again) {
			t.Errorf("%s: the new program has gone with the old one", name)
		}
	}
}

// One host cannot keep others out.
func TestBounds(t *testing.T) {
	var full []netip.Addr
	l := Hall{Full: func(host netip.Addr) { full = append(full, host) }}
	name := func(i int) string { return strings.Repeat("x", i+1) }
	for i := range maxOfHost {
		if _, _, _, err := l.Come(noon, name(i), host(t, 1, "source", 2)); err != nil {
			t.Fatal(err)
		}
	}
	const own = "10.77.0.1 waits for 64 groups already; let some of them begin first"
	if _, _, _, err := l.Come(noon, "g1", host(t, 1, "source", 2)); err == nil || err.Error() != own {
		t.Error(err)
	}
	for i := maxOfHost; i < MaxParties; i++ {
		if _, _, _, err := l.Come(noon, name(i), host(t, byte(2+i/maxOfHost), "source", 2)); err != nil {
			t.Fatal(err)
		}
	}
	const all = "4096 groups wait for hosts already; let some of them begin first"
	if _, _, _, err := l.Come(noon, "g1", host(t, 200, "source", 2)); err == nil || err.Error() != all {
		t.Error(err)
	}
	if !slices.Equal(full, []netip.Addr{addr(1), addr(200)}) {
		t.Errorf("counted %v", full)
	}
}

// No packet ever comes from such an address, so no group can have it.
func TestAddressesThatNoGroupHas(t *testing.T) {
	for text, want := range map[string]string{
		"listen: 10.77.0.254:7472\ngroupIPs: [10.77.0.200, fd77::200]\n": "",
		"listen: 10.77.0.254:7472\ngroupIPs: [10.77.0.254]\n":            "has 10.77.0.254 as listen and in groupIPs",
		"listen: 10.77.0.254:7472\ngroupIPs: [224.0.0.5]\n":              "is class D (multicast)",
		"listen: 10.77.0.254:7472\ngroupIPs: ff02::5\n":                  "is multicast",
		"listen: 10.77.0.254:7472\ngroupIPs: [127.0.0.1]\n":              "is not an address that a host can have",
		"listen: 10.77.0.254:7472\ngroupIPs: [fe80::1]\n":                "is link-local",
		"listen: 10.77.0.254:7472\ngroupIPs: [10.0.0.1, 10.0.0.2]\n":     "is a second address of its family",
		"listen: 10.77.0.254:07472\ngroupIPs: [10.77.0.200]\n":           "has a leading zero",
		"listen: 224.0.0.5:7472\ngroupIPs: [10.77.0.200]\n":              `"224.0.0.5:7472" is not an address with a port`,
	} {
		document, err := yamldoc.Parse([]byte(text), "the config")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadConfig(document); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A host that waits elsewhere hears that it has left as one of the hall does, and is kept once.
func TestAHostThatWaitsElsewhere(t *testing.T) {
	var l Hall
	h := host(t, 2, "receiver", 3)
	for i := range 2 {
		l.WaitsElsewhere(noon.Add(time.Duration(i)*time.Second), "g1", h)
	}
	at := noon.Add(keepEnding + time.Second)
	if ended, why := l.Ended(at, "g1", h); !ended || why != nil || len(l.ended) != 1 {
		t.Errorf("%v, %v, %d are kept", ended, why, len(l.ended))
	}
	other := host(t, 2, "receiver", 3)
	other.QPN = 500
	l.WaitsElsewhere(at, "g1", other)
	if _, why := l.Ended(at, "g1", h); why == nil || !strings.HasPrefix(why.Error(), "another program of 10.77.0.2") {
		t.Errorf("another program of it waits now: %v", why)
	}
	l.HasLeft("g1", addr(2))
	if _, why := l.Ended(at, "g1", other); why == nil {
		t.Error("it does not hear that it has left")
	}
}

// What has come to the hall is the hall's: a host that comes again is another one.
func TestAHostIsOverOnce(t *testing.T) {
	var l Hall
	asked := host(t, 2, "receiver", 3)
	first, again := asked.Anew(), asked.Anew()
	come(t, &l, first)
	l.Close(noon, l.Party("g1"), nil)
	come(t, &l, again)
	if !isOver(first) || isOver(again) || isOver(asked) || !first.Is(again) {
		t.Error("it is over before it has waited, or is another program")
	}
	if again.role != asked.role {
		t.Errorf("its role is %v", again.role)
	}
	l.Close(noon, l.Party("g1"), nil)
	if !isOver(again) {
		t.Error("it still waits")
	}
}
