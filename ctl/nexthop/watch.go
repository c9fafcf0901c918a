package nexthop

import (
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/rtnl"
)

// change describes what may have changed. Exactly one field is set.
type change struct {
	subject subject
	route   netip.Prefix // the route to the addresses in this prefix may have changed
	all     bool         // anything may have changed: rules, nexthop objects, or lost notifications
}

// isLinks reports whether the change may concern a link.
func (c change) isLinks() bool { return c.all || c.subject.link != 0 }

// isWay reports whether the change may concern a link or a route.
func (c change) isWay() bool { return c.isLinks() || c.route.IsValid() }

// subscribe joins the netlink groups for everything from which a hop is made.
func subscribe() (*rtnl.Events, error) {
	return rtnl.Subscribe(unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, // includes the FDBs of bridges (AF_BRIDGE)
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP)
}

// parseChanges parses notifications. messages is nil if notifications were lost.
func parseChanges(messages []syscall.NetlinkMessage) []change {
	if messages == nil {
		return []change{{all: true}}
	}
	var changes []change
	for _, m := range messages {
		if c, ok := parseChange(m); ok {
			changes = append(changes, c)
		}
	}
	return changes
}

func parseChange(m syscall.NetlinkMessage) (change, bool) {
	switch m.Header.Type {
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return parseNeighbour(m.Data)
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return change{}, false
		}
		return change{subject: subject{link: int(nl.DeserializeIfInfomsg(m.Data).Index)}}, true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return parseRoute(m.Data)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return change{all: true}, true
	}
	return change{}, false
}

func parseNeighbour(data []byte) (change, bool) {
	if len(data) < unix.SizeofNdMsg {
		return change{}, false
	}
	entry, err := netlink.NeighDeserialize(data)
	if err != nil {
		return change{}, false
	}
	if entry.Family == unix.AF_BRIDGE {
		if len(entry.HardwareAddr) != macBytes {
			return change{}, false
		}
		return change{subject: subject{mac: MAC(entry.HardwareAddr)}}, true
	}
	addr, ok := netip.AddrFromSlice(entry.IP)
	return change{subject: subject{addr: addr}}, ok
}

func parseRoute(data []byte) (change, bool) {
	if len(data) < unix.SizeofRtMsg {
		return change{}, false
	}
	message := nl.DeserializeRtMsg(data)
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofRtMsg:])
	if err != nil || message.Flags&unix.RTM_F_CLONED != 0 { // an exception for one address, not a route
		return change{}, false
	}
	to := netip.IPv4Unspecified()
	if message.Family == unix.AF_INET6 {
		to = netip.IPv6Unspecified()
	}
	for _, attr := range attrs {
		if attr.Attr.Type == unix.RTA_DST {
			to, _ = netip.AddrFromSlice(attr.Value)
		}
	}
	prefix, err := to.Prefix(int(message.Dst_len))
	return change{route: prefix}, err == nil
}
