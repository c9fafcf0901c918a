package ctltest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// AnotherGroup returns the text of a group beside g1, whose QPNs are 1 and 17 to 19, with the same
// hosts and other QPs.
func AnotherGroup(g1, name string, qpn int) string {
	return strings.NewReplacer("name: g1", "name: "+name, "qpn: 1\n", fmt.Sprintf("qpn: %d\n", qpn),
		"qpn: 17", fmt.Sprintf("qpn: %d", 100*qpn+17), "qpn: 18", fmt.Sprintf("qpn: %d", 100*qpn+18),
		"qpn: 19", fmt.Sprintf("qpn: %d", 100*qpn+19)).Replace(g1)
}

// HostAsks returns what a host says that joins: its QPN is 100 times the last number of its
// address, which is of IPv4.
func HostAsks(ip, role string, members int) api.HostRequest {
	last := uint32(netip.MustParseAddr(ip).As4()[3])
	r := api.HostRequest{Role: role, QPN: 100 * last, PSN: last, Members: members, MTU: 1024, Port: uint16(7000 + last)}
	if role != "source" {
		key := api.Hex(last)
		r.Regions = []api.Region{{VA: api.Hex(last) << 20, Length: 4096, RKey: &key}}
	}
	return r
}

// Members returns the last numbers of the addresses of a group's members, or why there is no group.
func Members(g api.Group, err error) string {
	if err != nil {
		return err.Error()
	}
	var ips []string
	for _, m := range g.Members {
		ips = append(ips, strings.TrimPrefix(m.IP, "10.77.0."))
	}
	return strings.Join(ips, " ")
}
