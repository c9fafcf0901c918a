package gather

import (
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Config is the key hosts of the daemon's config.
type Config struct {
	Listen netip.AddrPort // not valid: off
	// GroupIPs are the IPs of the groups that hosts make, at most one of each family. The groups
	// differ by their QPNs.
	GroupIPs []netip.Addr
}

// On reports whether hosts may make groups.
func (c *Config) On() bool { return c.Listen.IsValid() }

// GroupIP returns the IP of the groups of a host, or an invalid one.
func (c *Config) GroupIP(host netip.Addr) netip.Addr {
	for _, ip := range c.GroupIPs {
		if ip.Is4() == host.Is4() {
			return ip
		}
	}
	return netip.Addr{}
}

// ReadConfig reads the key hosts.
func ReadConfig(v yamldoc.Value) (c Config, err error) {
	err = v.Fields(
		yamldoc.Field{Key: "listen", Set: yamldoc.Into(&c.Listen, listen), Needed: "listen: ADDRESS:PORT, where hosts reach this box"},
		yamldoc.Field{Key: "groupIPs", Set: c.readGroupIPs, Needed: "groupIPs: [ADDRESS], the IP of the groups that hosts make; no host has it"},
	)
	if err == nil && slices.Contains(c.GroupIPs, c.Listen.Addr()) {
		err = v.Errorf("has %v as listen and in groupIPs, and the IP of groups is one that nobody has; write another one into groupIPs", c.Listen.Addr())
	}
	return c, err
}

func listen(v yamldoc.Value) (netip.AddrPort, error) {
	const example = "10.77.0.254:7472"
	at, err := v.AddrPort(example)
	if err == nil && (at.Addr().Is4In6() || at.Addr().IsMulticast()) {
		err = v.Errorf("%q is not an address with a port; write one such as %s", at, example)
	}
	return at, err
}

func (c *Config) readGroupIPs(v yamldoc.Value) error {
	return v.EachOrOne("group IP", func(item yamldoc.Value) error {
		ip, err := groupfile.Unicast(item)
		if err != nil {
			return err
		}
		if c.GroupIP(ip).IsValid() {
			return item.Errorf("is a second address of its family; write one, because the groups differ by their QPNs")
		}
		c.GroupIPs = append(c.GroupIPs, ip)
		return nil
	})
}
