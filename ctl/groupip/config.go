package groupip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// MaxReceivers bounds the receivers of one service. A config with more receivers is refused.
const MaxReceivers = mft.MaxPaths

// Config describes one group IP.
type Config struct {
	GroupIP   netip.Addr
	Receivers []netip.Addr
	Port      uint16 // on the box and at the receivers
	// Allow lists the networks whose hosts are served. If it is empty, hosts in the box's subnets
	// that contain the group IP are served.
	Allow []netip.Prefix
	// Policy is that of the groups; see PolicyFor.
	Policy feedback.Policy
}

// PolicyFor returns the merging policy of a group of this path MTU.
func (c *Config) PolicyFor(pathMTU int) feedback.Policy {
	if c.Policy.Repair == feedback.RepairOff {
		return c.Policy
	}
	return groupfile.WithRepair(c.Policy, pathMTU)
}

// Check refuses what no service can have. Its error is a sentence that tells the operator which
// value is wrong.
func (c *Config) Check() error {
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
	if !ip.IsValid() || ip.Is4In6() || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() ||
		ip.Is4() && ip.As4()[0] >= groupfile.ClassE {
		return fmt.Errorf("%s %v is not a unicast address to which packets can be routed", what, ip)
	}
	return nil
}

// allowOr fills in the networks that are allowed if the config names none.
func (c *Config) allowOr(subnets []netip.Prefix) error {
	if len(c.Allow) == 0 {
		c.Allow = subnets
	}
	if len(c.Allow) == 0 {
		return errors.New("the box has no address in the group IP's subnet, so it is unknown which clients " +
			"are allowed; give the box one, or name the networks of the clients with allow")
	}
	return nil
}

// Allows reports whether a host is in one of the allowed networks.
func (c *Config) Allows(host netip.Addr) bool {
	return slices.ContainsFunc(c.Allow, func(network netip.Prefix) bool { return network.Contains(host) })
}

// Read reads a service: its own keys, those of a group file's policy, and more. run says which
// programs run at the receivers.
func (c *Config) Read(v yamldoc.Value, run string, more ...yamldoc.Field) error {
	lines := map[string]int{}
	c.Policy.Repair = feedback.RepairLocal
	policy := slices.DeleteFunc(groupfile.PolicyFields(&c.Policy, lines), func(f yamldoc.Field) bool {
		return f.Key == feedback.KeySourceSwitch // the receivers of a service never send
	})
	if err := v.Fields(slices.Concat(c.fields(run), more, policy)...); err != nil {
		return err
	}
	// The path MTU is that of each group, so bounds of repair that are left out stay so.
	const largest = 4096
	whole := c.Policy
	if err := groupfile.CheckPolicy(&whole, lines, largest); err != nil {
		return err
	}
	c.Policy.OnFatal = whole.OnFatal
	return nil
}

func (c *Config) fields(run string) []yamldoc.Field {
	return []yamldoc.Field{
		{Key: "groupIP", Set: yamldoc.Into(&c.GroupIP, yamldoc.Value.Addr), Needed: "groupIP: ADDRESS, what the client is told to connect to"},
		{Key: "receivers", Set: c.readReceivers, Needed: "receivers: [ADDRESS, ...], where " + run + " run"},
		{Key: "port", Set: yamldoc.Into(&c.Port, port)},
		{Key: "allow", Set: c.readAllow},
	}
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

func port(v yamldoc.Value) (uint16, error) {
	n, err := v.Uint(65535)
	return uint16(n), err
}
