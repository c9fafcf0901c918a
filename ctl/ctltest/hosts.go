package ctltest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// G1 is the file of a group with a source, which ctl's world has on eth1, and two receivers on eth2
// and eth3.
const G1 = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
memory: {va: 0x10000, rkey: 0xfeedbea7}
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 4096, rkey: 0xfeedbea8}]}
  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [{va: 0x7f1000000000, length: 4096, rkey: 0xfeedbea9}]}
`

// BothG1 is the file of a group with the hosts of G1, of which two may send.
const BothG1 = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 5, sendPSN: 1000, role: both}
  - {ip: 10.77.0.2, qpn: 18, psn: 6, sendPSN: 2000, role: both}
  - {ip: 10.77.0.3, qpn: 19, psn: 7}
`

// TurnOfB is the turn of 10.77.0.2 in a group of BothG1.
func TurnOfB() mft.Turn {
	return mft.Turn{
		Source: mft.QP{IP: netip.MustParseAddr("10.77.0.2"), RemoteQPN: 1},
		Members: []mft.Standing{
			{QP: mft.QP{IP: netip.MustParseAddr("10.77.0.1"), RemoteQPN: 1}, Expects: 5, Sender: mft.Sender{
				NextPSN: 1003, Messages: 3, HadTurn: true, Round: feedback.Round{Pos: 1002, Back: 1001, Awaited: true},
			}},
			{QP: mft.QP{IP: netip.MustParseAddr("10.77.0.2"), RemoteQPN: 1}, Expects: 9, Messages: 3, Sender: mft.Sender{NextPSN: 2000, Messages: 7}},
			{QP: mft.QP{IP: netip.MustParseAddr("10.77.0.3"), RemoteQPN: 1}, Expects: 10, Messages: 3, Sender: mft.Sender{Ended: true}},
		},
	}
}

// AnotherGroup returns the text of a group beside G1 with the same hosts and other QPs.
func AnotherGroup(name string, qpn int) string {
	return strings.NewReplacer("name: g1", "name: "+name, "qpn: 1\n", fmt.Sprintf("qpn: %d\n", qpn),
		"qpn: 17", fmt.Sprintf("qpn: %d", 100*qpn+17), "qpn: 18", fmt.Sprintf("qpn: %d", 100*qpn+18),
		"qpn: 19", fmt.Sprintf("qpn: %d", 100*qpn+19)).Replace(G1)
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
