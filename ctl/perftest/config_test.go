package perftest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/yamldoc"
)

func addrs(text string) (list []netip.Addr) {
	for _, s := range strings.Fields(text) {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

// manyAddrs are n different receivers.
func manyAddrs(n int) string {
	var list []string
	for i := range n {
		list = append(list, netip.AddrFrom4([4]byte{10, 78, byte(i >> 8), byte(i)}).String())
	}
	return strings.Join(list, " ")
}

func TestConfigMistakes(t *testing.T) {
	for _, c := range []struct{ group, receivers, want string }{
		{"10.77.0.100", "10.77.0.2", ""},
		{"fd77::100", "fd77::2 fd77::3", ""},
		{"10.77.0.100", "", "there are no receivers; name at least one"},
		{"224.0.0.9", "10.77.0.2", "group IP 224.0.0.9 is not a unicast address to which packets can be routed"},
		{"255.255.255.255", "10.77.0.2", "group IP 255.255.255.255 is not a unicast address to which packets can be routed"},
		{"10.77.0.100", "240.0.0.2", "receiver 240.0.0.2 is not a unicast address to which packets can be routed"},
		{"0.0.0.0", "10.77.0.2", "group IP 0.0.0.0 is not a unicast address to which packets can be routed"},
		{"::ffff:10.77.0.100", "10.77.0.2", "group IP ::ffff:10.77.0.100 is not a unicast address to which packets can be routed"},
		{"fd77::100", "fd77::2%eth1", "receiver fd77::2%eth1 is not a unicast address to which packets can be routed"},
		{"10.77.0.100", manyAddrs(groupip.MaxReceivers), ""},
		{"10.77.0.100", manyAddrs(groupip.MaxReceivers + 1), fmt.Sprintf("%d receivers are more than the %d that a group can have", groupip.MaxReceivers+1, groupip.MaxReceivers)},
		{"fd77::100", "fe80::2", "receiver fe80::2 is not a unicast address to which packets can be routed"},
		{"10.77.0.100", "10.77.0.2 10.77.0.3 10.77.0.2", "receiver 10.77.0.2 is named twice; remove one of them"},
		{"10.77.0.100", "10.77.0.2 10.77.0.100", "receiver 10.77.0.100 is the group IP itself; give the group an address that no host has"},
		{"10.77.0.100", "fd77::2", "receiver fd77::2 and the group IP 10.77.0.100 are of different IP versions; a packet has one"},
	} {
		config := Config{GroupIP: netip.MustParseAddr(c.group), Receivers: addrs(c.receivers)}
		got := ""
		if err := check(&config); err != nil {
			got = err.Error()
		}
		if got != c.want || config.Port != DefaultPort {
			t.Errorf("%s for %s, port %d:\ngot  %s\nwant %s", c.group, c.receivers, config.Port, got, c.want)
		}
	}
	if err := check(&Config{Receivers: addrs("10.77.0.2")}); err == nil {
		t.Error("no group IP is taken")
	}
}

func TestConfigAsWritten(t *testing.T) {
	read := func(text string) (Config, error) {
		v, err := yamldoc.Parse([]byte(text), "the config")
		if err != nil {
			t.Fatal(err)
		}
		return ReadConfig(v)
	}
	got, err := read("groupIP: 10.77.0.100\nreceivers: [10.77.0.2, 10.77.0.3]\n")
	if err != nil || got.GroupIP != netip.MustParseAddr("10.77.0.100") || got.Port != DefaultPort || !slices.Equal(got.Receivers, addrs("10.77.0.2 10.77.0.3")) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = read("{groupIP: 10.77.0.100, receivers: 10.77.0.2, port: 18516}"); err != nil || got.Port != 18516 || len(got.Receivers) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = read("{groupIP: 10.77.0.100, receivers: 10.77.0.2, allow: [10.78.3.4/16, 10.79.0.1]}")
	if want := []netip.Prefix{netip.MustParsePrefix("10.78.0.0/16"), netip.MustParsePrefix("10.79.0.1/32")}; err != nil || !slices.Equal(got.Allow, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"groupIP: 10.77.0.100\nreceivers: 10.77.0.2\nallow: [10.77.0.0/24, lab]": `line 3: network 2 "lab" is not a network; write one such as 10.77.0.0/24, or a host's address`,
		"groupIP: 10.77.0.100\nreceivers: 10.77.0.2\nallow: 10.77.0.0/33":        `line 3: network 1 "10.77.0.0/33" is not a network; write one such as 10.77.0.0/24, or a host's address`,
		"groupIP: 10.77.0.100\nreceivers: 10.77.0.2\nallow: [[10.77.0.0/24]]":    "line 3: network 1 is a list; write one word",
		"groupIP: 10.77.0.100\nreceivers: 10.77.0.2\nallow: ::ffff:10.1.1.1":     `line 3: network 1 "::ffff:10.1.1.1" is not a network; write one such as 10.77.0.0/24, or a host's address`,
		"groupIP: 10.77.0.100\nreceivers: 10.77.0.2\nallow: fd00::/64":           "line 1: the config is refused: network fd00::/64 and the group IP 10.77.0.100 are of different IP versions; no client of it can connect",
		"groupIP: 10.77.0.100":                                        "line 1: the config has no receivers; add receivers: [ADDRESS, ...], where perftest's servers run",
		"groupIP: 10.77.0.100\nreceivers: [10.77.0.2, here]":          `line 2: receiver 2 "here" is not an IP address; write one such as 10.77.0.2 or fd00::2`,
		"groupIP: 10.77.0.100\nreceivers: [10.77.0.2, 10.77.0.2]":     "line 1: the config is refused: receiver 10.77.0.2 is named twice; remove one of them",
		"groupIP: 10.77.0.100\nreceivers: [10.77.0.2]\nport: 65536":   "line 3: port is not a whole number from 0 to 65535 (0xffff); write one, without quotes",
		"groupIP: 10.77.0.100\nreceiver: [10.77.0.2]":                 `line 2: key "receiver" is unknown here; the known keys are groupIP, receivers, port, allow, ack, nak, on-fatal, silent-after, evict, cnp, cnp-interval, credits, repair, on-slow, repair-window, repair-bytes, repair-attempts, repair-timer-floor, repair-timer-cap`,
		"groupIP: 10.77.0.100\nreceivers: [10.77.0.2]\nack: quorum 1": "line 1: the config is refused: ack is a quorum, and perftest waits for every receiver; leave ack out",
		"groupIP: 10.77.0.100\nreceivers: [10.77.0.2]\nevict: true":   "line 3: evict has no effect without silent-after, which says when a receiver counts as silent; add silent-after: 200ms, or remove evict",
	} {
		if _, err := read(text); err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}
