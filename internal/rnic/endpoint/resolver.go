package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

const (
	// resolvePatience is how long a queue pair waits for a neighbour on the way to RTR. The
	// kernel's RDMA core waits for 1 s. That is no longer than the kernel takes to ask a second
	// time, and on a busy machine the first question may be lost.
	resolvePatience = 2500 * time.Millisecond
	resolvePause    = 2 * time.Millisecond

	usableNeighbour = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE |
		netlink.NUD_PERMANENT | netlink.NUD_NOARP
)

var errOtherInterface = errors.New("the route leaves by another interface")

// resolver asks the kernel of the namespace for the MAC of the next hop to a peer.
type resolver struct {
	handle  *netlink.Handle
	ifIndex int
}

func openResolver(ifIndex int) (*resolver, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &resolver{handle: handle, ifIndex: ifIndex}, nil
}

func (r *resolver) close() { r.handle.Close() }

// resolve finds the MAC of the next hop towards ip. If the kernel does not know it, the kernel is
// made to ask.
func (r *resolver) resolve(ctx context.Context, ip netip.Addr) (roce.MAC, error) {
	hop, err := r.nextHop(ip)
	if err != nil {
		return roce.MAC{}, fmt.Errorf("route to %s: %w", ip, err)
	}
	ctx, cancel := context.WithTimeout(ctx, resolvePatience)
	defer cancel()
	for asked := false; ; asked = true {
		mac, ok, err := r.neighbour(hop)
		if ok || err != nil {
			return mac, err
		}
		if !asked {
			if err := r.ask(hop); err != nil {
				return roce.MAC{}, fmt.Errorf("ask for neighbour %s: %w", hop, err)
			}
		}
		select {
		case <-ctx.Done():
			return roce.MAC{}, fmt.Errorf("neighbour %s does not answer: %w", hop, ctx.Err())
		case <-time.After(resolvePause):
		}
	}
}

func (r *resolver) nextHop(ip netip.Addr) (net.IP, error) {
	routes, err := r.handle.RouteGet(ip.AsSlice())
	if err != nil {
		return nil, err
	}
	if len(routes) == 0 || routes[0].LinkIndex != r.ifIndex {
		return nil, errOtherInterface
	}
	if routes[0].Gw != nil {
		return routes[0].Gw, nil
	}
	return ip.AsSlice(), nil
}

// ask makes the kernel look for a neighbour as if it had a packet for it.
func (r *resolver) ask(hop net.IP) error {
	return r.handle.NeighSet(&netlink.Neigh{LinkIndex: r.ifIndex, IP: hop, Flags: netlink.NTF_USE})
}

func (r *resolver) neighbour(ip net.IP) (mac roce.MAC, ok bool, err error) {
	neighbours, err := r.handle.NeighList(r.ifIndex, netlink.FAMILY_ALL)
	if err != nil {
		return mac, false, fmt.Errorf("neighbour table: %w", err)
	}
	for _, n := range neighbours {
		if n.IP.Equal(ip) && n.State&usableNeighbour != 0 && len(n.HardwareAddr) == len(mac) {
			return roce.MAC(n.HardwareAddr), true, nil
		}
	}
	return mac, false, nil
}
