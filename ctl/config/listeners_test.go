package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestTwoListenersHaveTwoPorts(t *testing.T) {
	for _, c := range []struct{ metrics, api, hosts, want string }{
		{"127.0.0.1:7000", "127.0.0.2:7000", "127.0.0.3:7000", ""},
		{"127.0.0.1:7000", "127.0.0.1:7000", "", "line 3: api: listen 127.0.0.1:7000 is taken by metrics: 127.0.0.1:7000; write another port"},
		{"0.0.0.0:7000", "", "10.77.0.1:7000", "line 4: hosts: listen 10.77.0.1:7000 is taken by metrics: 0.0.0.0:7000; write another port"},
		{"", "10.77.0.1:7000", "10.77.0.1:7000", "line 4: hosts: listen 10.77.0.1:7000 is taken by api: listen 10.77.0.1:7000; write another port"},
		{"", "", "127.0.0.1:7470", ""}, // no metrics
	} {
		text := fmt.Sprintf("ports: [eth1]\nmetrics: %q\n", c.metrics)
		if c.api != "" {
			text += fmt.Sprintf("api: {listen: %q, cert: /c, key: /k, ca: /a}\n", c.api)
		} else {
			text += "# none\n"
		}
		if c.hosts != "" {
			text += fmt.Sprintf("hosts: {listen: %q, groupIPs: [10.77.0.100]}\n", c.hosts)
		}
		if _, err := Parse([]byte(text)); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s%v, want %q", text, err, c.want)
		}
	}
	_, err := Parse([]byte("ports: [eth1]\nhosts: {listen: '0.0.0.0:7470', groupIPs: [10.77.0.100]}\n"))
	if err == nil || !strings.Contains(err.Error(), "is taken by metrics: 127.0.0.1:7470") {
		t.Errorf("the port of the metrics that nobody has written: %v", err)
	}
}

// The kernel is asked for what excludes says of it.
func TestWhatTheKernelExcludes(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "::", "::1"} {
		first, err := net.Listen("tcp", net.JoinHostPort(a, "0"))
		if err != nil {
			t.Skipf("needs %s: %v", a, err)
		}
		at := netip.AddrPortFrom(netip.MustParseAddr(a), netip.MustParseAddrPort(first.Addr().String()).Port())
		for _, b := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "::", "::1"} {
			other := netip.AddrPortFrom(netip.MustParseAddr(b), at.Port())
			second, err := net.Listen("tcp", other.String())
			if err == nil {
				second.Close()
			}
			if got := excludes(at, other); got != (err != nil) {
				t.Errorf("%v and %v: %v, and the kernel says %v", at, other, got, err)
			}
		}
		first.Close()
		if other := netip.AddrPortFrom(at.Addr(), at.Port()^1); excludes(at, other) {
			t.Errorf("%v and %v", at, other)
		}
	}
}
