package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// With the last IPv4 address of an interface the kernel removes all IPv4 routes through it, also
// those that were there before the address (fib_disable_ip). An interface without an address may
// well have routes: hosts behind it are reached with the address of another one. Of a route with
// several next hops the kernel marks those through the interface as dead, and removes the route
// only with its last one. A route to a nexthop object stays as it is.

// route is a route as the kernel tells it: struct rtmsg, and the attributes that follow it.
type route struct {
	head  [unix.SizeofRtMsg]byte
	attrs []nl.NetlinkRequestData
	stays bool // with other next hops; those through the interface are dead
}

func (r *route) Len() int          { return len(r.head) }
func (r *route) Serialize() []byte { return r.head[:] }

// Offsets in struct rtmsg, and in struct rtnexthop.
const (
	rtmProtocol, rtmScope, rtmFlags = 5, 6, 8
	rtnhFlags, rtnhIfIndex          = 2, 4
)

// rtaNextHopID is the RTA_NH_ID of rtnetlink: the route names a nexthop object.
const rtaNextHopID = 30

// lostWith returns the routes that the kernel removes or marks with an IPv4 address: none, unless
// it is the last one of its interface. Routes that send from the address go for good, as does the
// one to the address itself.
func (k *netlinkKernel) lostWith(p IfAddr) (routes []route, err error) {
	if !p.IP.Is4() {
		return nil, nil
	}
	link, err := k.LinkByIndex(p.IfIndex)
	if err != nil {
		return nil, err
	}
	addrs, err := k.AddrList(link, netlink.FAMILY_V4)
	if err != nil || len(addrs) != 1 {
		return nil, err
	}
	messages, err := k.Request(unix.RTM_GETROUTE, unix.NLM_F_DUMP, unix.RTM_NEWROUTE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET}})
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		r, through, source := readRoute(m)
		if slices.Contains(through, p.IfIndex) && source != p.IP {
			r.stays = slices.ContainsFunc(through, func(i int) bool { return i != p.IfIndex })
			routes = append(routes, r)
		}
	}
	// A route through a gateway needs the one that leads to the gateway.
	slices.SortStableFunc(routes, func(a, b route) int { return int(b.head[rtmScope]) - int(a.head[rtmScope]) })
	return routes, nil
}

// readRoute reads a route as it can be written again, the interfaces of its next hops (none if it
// names a nexthop object), and the address that it sends from, if it names one.
func readRoute(message []byte) (r route, through []int, source netip.Addr) {
	if len(message) < len(r.head) {
		return route{}, nil, netip.Addr{}
	}
	copy(r.head[:], message)
	flags := binary.NativeEndian.Uint32(r.head[rtmFlags:])
	binary.NativeEndian.PutUint32(r.head[rtmFlags:], flags&unix.RTNH_F_ONLINK) // the others are the state of the link
	attrs, err := nl.ParseRouteAttr(message[len(r.head):])
	if err != nil {
		return route{}, nil, netip.Addr{}
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case rtaNextHopID:
			return route{}, nil, netip.Addr{}
		case unix.RTA_OIF:
			through = append(through, int(binary.NativeEndian.Uint32(a.Value)))
		case unix.RTA_MULTIPATH:
			through = append(through, readNextHops(a.Value)...)
		case unix.RTA_PREFSRC:
			source, _ = netip.AddrFromSlice(a.Value)
		}
		r.attrs = append(r.attrs, nl.NewRtAttr(int(a.Attr.Type), a.Value))
	}
	return r, through, source
}

// readNextHops returns the interface of each struct rtnexthop in hops, and clears there the flags
// that are the state of a link.
func readNextHops(hops []byte) (through []int) {
	for len(hops) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(hops))
		if length < unix.SizeofRtNexthop || length > len(hops) {
			return through
		}
		hops[rtnhFlags] &= unix.RTNH_F_ONLINK
		through = append(through, int(binary.NativeEndian.Uint32(hops[rtnhIfIndex:])))
		hops = hops[min(len(hops), unix.RTA_ALIGNTO*((length+unix.RTA_ALIGNTO-1)/unix.RTA_ALIGNTO)):]
	}
	return through
}

// putBack adds routes that have gone, and revives the next hops of those that stay. A route that is
// there is no error.
//
// The kernel stores the next hops of equal routes once, and a route that is replaced by an equal
// one keeps the dead ones. So each is first replaced by a route of another protocol, and when none
// uses the old next hops any more, by itself. No packet meets a moment without a route.
func (k *netlinkKernel) putBack(routes []route) error {
	var errs []error
	write := func(r route, how int) {
		_, err := k.Request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|how|unix.NLM_F_ACK, 0, append([]nl.NetlinkRequestData{&r}, r.attrs...)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("put back a route that went with the address: %w", err))
		}
	}
	for _, r := range routes {
		write(r, unix.NLM_F_EXCL)
	}
	for _, other := range []byte{1, 0} {
		for _, r := range routes {
			if r.stays {
				r.head[rtmProtocol] ^= other
				write(r, unix.NLM_F_REPLACE)
			}
		}
	}
	return errors.Join(errs...)
}
