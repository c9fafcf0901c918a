package perftest

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rocast/rocast/ctl/yamldoc"
)

// Config describes one group IP on which perftest clients are served.
type Config struct {
	GroupIP   netip.Addr
	Receivers []netip.Addr // addresses of the receivers' perftest servers and of their RDMA devices
	Port      uint16       // TCP port, on the box and at the receivers; 0: DefaultPort
	// Allow lists the networks whose hosts are served. If it is empty, hosts in the box's subnets
	// that contain the group IP are served.
	Allow []netip.Prefix
}

// check fills in defaults. Its error is a sentence that tells the operator which value is wrong.
func (c *Config) check() error {
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if err := checkAddress("group IP", c.GroupIP); err != nil {
		return err
	}
	switch n := len(c.Receivers); {
	case n == 0:
		return errors.New("there are no receivers; name at least one")
	case n > MaxReceivers:
		return fmt.Errorf("%d receivers are more than the %d that a group can have", n, MaxReceivers)
	}
	seen := map[netip.Addr]bool{}
	for _, ip := range c.Receivers {
		switch err := checkAddress("receiver", ip); {
		case err != nil:
			return err
		case ip == c.GroupIP:
			return fmt.Errorf("receiver %v is the group IP itself; give the group an address that no host has", ip)
		case seen[ip]:
			return fmt.Errorf("receiver %v is named twice; remove one of them", ip)
		case ip.Is4() != c.GroupIP.Is4():
			return fmt.Errorf("receiver %v and the group IP %v are of different IP versions; a packet has one",
				ip, c.GroupIP)
		}
		seen[ip] = true
	}
	for _, network := range c.Allow {
		if network.Addr().Is4() != c.GroupIP.Is4() {
			return fmt.Errorf("network %v and the group IP %v are of different IP versions; no client of it can "+
				"connect", network, c.GroupIP)
		}
	}
	return nil
}

func checkAddress(what string, ip netip.Addr) error {
	const classE = 240 // first byte of the reserved IPv4 addresses (RFC 1112)
	if !ip.IsValid() || ip.Is4In6() || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() ||
		ip.Is4() && ip.As4()[0] >= classE {
		return fmt.Errorf("%s %v is not a unicast address to which packets can be routed", what, ip)
	}
	return nil
}

// ReadConfig reads one item of the daemon's config:
//
//	perftest:
//	  - {groupIP: 10.77.0.100, receivers: [10.77.0.2, 10.77.0.3], port: 18515, allow: [10.77.0.0/24]}
func ReadConfig(v yamldoc.Value) (Config, error) {
	var c Config
	err := v.Fields(
		yamldoc.Field{Key: "groupIP", Set: yamldoc.Into(&c.GroupIP, yamldoc.Value.Addr), Needed: "groupIP: ADDRESS, what the client is told to connect to"},
		yamldoc.Field{Key: "receivers", Set: c.readReceivers, Needed: "receivers: [ADDRESS, ...], where perftest's " +
			"servers run"},
		yamldoc.Field{Key: "port", Set: yamldoc.Into(&c.Port, tcpPort)},
		yamldoc.Field{Key: "allow", Set: c.readAllow},
	)
	if err == nil {
		if mistake := c.check(); mistake != nil {
			err = v.Errorf("is refused: %v", mistake)
		}
	}
	return c, err
}

func (c *Config) readReceivers(v yamldoc.Value) error {
	return v.EachOrOne("receiver", func(item yamldoc.Value) error {
		ip, err := item.Addr()
		c.Receivers = append(c.Receivers, ip)
		return err
	})
}

func (c *Config) readAllow(v yamldoc.Value) error {
	return v.EachOrOne("network", func(item yamldoc.Value) error {
		text, err := item.Text()
		if err != nil {
			return err
		}
		network, err := netip.ParsePrefix(text)
		if host, isHost := netip.ParseAddr(text); isHost == nil {
			network, err = host.Prefix(host.BitLen())
		}
		if err != nil || network.Addr().Is4In6() {
			return item.Errorf("%q is not a network; write one such as 10.77.0.0/24, or a host's address", text)
		}
		c.Allow = append(c.Allow, network.Masked())
		return nil
	})
}

func tcpPort(v yamldoc.Value) (uint16, error) {
	n, err := v.Uint(65535)
	return uint16(n), err
}
