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
// well have routes: hosts behind it are reached with the address of another one.

// route is a route as the kernel tells it: struct rtmsg, and the attributes that follow it.
type route struct {
	head  [unix.SizeofRtMsg]byte
	attrs []nl.NetlinkRequestData
}

func (r *route) Len() int          { return len(r.head) }
func (r *route) Serialize() []byte { return r.head[:] }

// Offsets in struct rtmsg.
const (
	rtmScope, rtmFlags = 6, 8
)

// lostWith returns the routes that the kernel removes with an IPv4 address: none, unless it is the
// last one of its interface. Routes that send from the address go for good, as does the one to the
// address itself. Routes with several next hops are left out.
func (k *netlinkKernel) lostWith(p Place) (routes []route, err error) {
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
		if r, through, source := readRoute(m); through == p.IfIndex && source != p.IP {
			routes = append(routes, r)
		}
	}
	// A route through a gateway needs the one that leads to the gateway.
	slices.SortStableFunc(routes, func(a, b route) int { return int(b.head[rtmScope]) - int(a.head[rtmScope]) })
	return routes, nil
}

// readRoute reads a route as it can be written again, its interface (0: it has several), and the
// address that it sends from, if it names one.
func readRoute(message []byte) (r route, through int, source netip.Addr) {
	if len(message) < len(r.head) {
		return route{}, 0, netip.Addr{}
	}
	copy(r.head[:], message)
	flags := binary.NativeEndian.Uint32(r.head[rtmFlags:])
	binary.NativeEndian.PutUint32(r.head[rtmFlags:], flags&unix.RTNH_F_ONLINK) // the others are the state of the link
	attrs, err := nl.ParseRouteAttr(message[len(r.head):])
	if err != nil {
		return route{}, 0, netip.Addr{}
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_OIF:
			through = int(binary.NativeEndian.Uint32(a.Value))
		case unix.RTA_PREFSRC:
			source, _ = netip.AddrFromSlice(a.Value)
		}
		r.attrs = append(r.attrs, nl.NewRtAttr(int(a.Attr.Type), a.Value))
	}
	return r, through, source
}

// putBack adds routes. One that is there is no error.
func (k *netlinkKernel) putBack(routes []route) error {
	var errs []error
	for i := range routes {
		r := &routes[i]
		_, err := k.Request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, 0, append([]nl.NetlinkRequestData{r}, r.attrs...)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("put back a route that went with the address: %w", err))
		}
	}
	return errors.Join(errs...)
}
