package main

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/client"
)

// On real interfaces: what no host of the subnet can have, and what the box has itself.
func TestAnIPThatCannotWorkIsRefused(t *testing.T) {
	b := newBox(t)
	b.start(t)
	client := client.New(b.socket)
	if _, err := client.CreateGroup(t.Context(), []byte(owned)); err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("g1", "g2", "qpn: 1\n", "qpn: 2\n", "qpn: 17", "qpn: 27", "qpn: 18", "qpn: 28").Replace(owned)
	for _, c := range []struct{ old, new, want string }{
		{"10.77.0.100", "10.77.0.255", "line 2: ip 10.77.0.255 is the broadcast address of 10.77.0.0/24;"},
		{"10.77.0.100", "10.77.0.0", "line 2: ip 10.77.0.0 is the address of the subnet 10.77.0.0/24 itself;"},
		{"10.77.0.100", "240.77.0.1", "line 2: ip 240.77.0.1 is not an address that a host can have;"},
		{"10.77.0.100", "10.78.0.1", "line 2: ip 10.78.0.1 is in no subnet of the interfaces that lead to the members ([10.77.0.0/24]);"},
		{"10.77.0.2,", "10.77.0.255,", "line 7: the member's ip 10.77.0.255 is the broadcast address of 10.77.0.0/24;"},
		{"10.77.0.2,", "10.77.0.254,", "line 7: the member at 10.77.0.254 has an address of this box;"},
		{"10.77.0.2,", "10.77.0.100,", "line 7: member 2 has the group's own ip 10.77.0.100;"},
		{"qpn: 28", "qpn: 18", "line 7: QP 18 of 10.77.0.2 is already in group g1,"},
	} {
		if _, err := client.CreateGroup(t.Context(), []byte(strings.Replace(other, c.old, c.new, 1))); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
	if got := b.addresses(t); got != "10.77.0.254/24 10.77.0.100/32" {
		t.Errorf("br0 has %s", got)
	}
}
