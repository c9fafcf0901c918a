package groupip

import (
	"net/netip"
	"slices"
)

// Addresses adds IPs to the box: the kernel answers ARP and ND for these IPs and terminates their
// TCP connections.
type Addresses interface {
	// Own adds ip to the box until release is called. towards lists the hosts that must be able to
	// reach ip. subnets are the box's subnets that contain ip.
	Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error)
}

// Own adds the group IP to the box until release is called, and fills in the networks that are
// allowed if the config names none. From then on c shares no slice with the config that it is a
// copy of.
func (c *Config) Own(a Addresses) (release func(), err error) {
	c.Receivers, c.Allow = slices.Clone(c.Receivers), slices.Clone(c.Allow)
	subnets, release, err := a.Own(c.GroupIP, c.Receivers)
	if err != nil {
		return nil, err
	}
	if err := c.allowOr(subnets); err != nil {
		release()
		return nil, err
	}
	return release, nil
}
