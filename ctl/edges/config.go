package edges

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Config is the key edges of the daemon's config.
type Config struct {
	// Addresses are the ranges of multicast addresses to which shared copies go. None: nothing is
	// shared.
	Addresses []netip.Prefix
	Wires     []Wire
}

// Wire says that the edge of a host is in front of its NIC, in the wire, and asks from an address
// of its own.
type Wire struct{ IP, Host netip.Addr }

// On reports whether copies may be shared.
func (c *Config) On() bool { return len(c.Addresses) > 0 }

// ReadConfig reads the key edges.
func ReadConfig(v yamldoc.Value) (c Config, err error) {
	err = v.Fields(yamldoc.Field{
		Key: "addresses", Set: c.readAddresses,
		Needed: "addresses: [NETWORK], a range of multicast addresses that nobody else uses, such as 239.77.0.0/28",
	}, yamldoc.Field{Key: "wires", Set: c.readWires})
	return c, err
}

func (c *Config) readWires(v yamldoc.Value) error {
	return v.Each("wire", func(item yamldoc.Value) error {
		var w Wire
		err := item.Fields(
			yamldoc.Field{Key: "ip", Set: yamldoc.Into(&w.IP, yamldoc.Value.Addr), Needed: "ip: IP, the address from which it asks"},
			yamldoc.Field{Key: "host", Set: yamldoc.Into(&w.Host, yamldoc.Value.Addr), Needed: "host: IP, the host that it is in front of"},
		)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(c.Wires, func(o Wire) bool { return o.Host == w.Host })
		switch {
		case w.IP == w.Host:
			return item.Errorf("has %v twice; an edge at the host itself needs no entry", w.IP)
		case at >= 0:
			return item.Errorf("is in front of %v, as wire %d is; a host has one edge", w.Host, at+1)
		}
		c.Wires = append(c.Wires, w)
		return nil
	})
}

// For returns for which host an edge asks: the one that it names, or that from whose IP the
// question comes. The error says why it may not.
func (c *Config) For(from, named netip.Addr) (host netip.Addr, err error) {
	if host = from; named.IsValid() {
		host = named
	}
	asks := host
	if at := slices.IndexFunc(c.Wires, func(w Wire) bool { return w.Host == host }); at >= 0 {
		asks = c.Wires[at].IP
	}
	switch {
	case asks == from:
		return host, nil
	case asks == host:
		return host, api.Errorf(api.Forbidden, "%v may not ask for %v; edges: wires: in this box's rocastd.yaml says which address asks for which host", from, host)
	}
	return host, api.Errorf(api.Forbidden, "%v asks for %v, and %v may not: so say edges: wires: in this box's rocastd.yaml", asks, host, from)
}

func (c *Config) readAddresses(v yamldoc.Value) error {
	return v.EachOrOne("range", func(item yamldoc.Value) error {
		text, err := item.Text()
		if err != nil {
			return err
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.Addr().IsMulticast() || p.Addr().Is4In6() {
			return item.Errorf("%q is not a range of multicast addresses; write one such as 239.77.0.0/28 or ff15::4d00/124", text)
		}
		if isReserved(p) {
			return item.Errorf("%q has addresses that the protocols of the network use, and every switch floods them; write a range such as 239.77.0.0/28 or ff15::4d00/124", text)
		}
		if c.of(p.Addr().Is4()).IsValid() {
			return item.Errorf("is a second range of its family; write one")
		}
		c.Addresses = append(c.Addresses, p.Masked())
		return nil
	})
}

// isReserved reports whether a range has multicast addresses of the network's own protocols
// (224.0.0.0/24, RFC 5771; scopes below link-local, RFC 4291).
func isReserved(p netip.Prefix) bool {
	return slices.ContainsFunc([]netip.Prefix{
		netip.MustParsePrefix("224.0.0.0/24"), netip.MustParsePrefix("ff00::/15"), netip.MustParsePrefix("ff02::/16"),
	}, p.Overlaps)
}

// of returns the range of a family, or an invalid one.
func (c *Config) of(is4 bool) netip.Prefix {
	for _, p := range c.Addresses {
		if p.Addr().Is4() == is4 {
			return p
		}
	}
	return netip.Prefix{}
}

// address returns the multicast address for a set of hosts: the same one for the same hosts,
// because the tables of switches are small. Groups with one address differ by their QPNs.
func (c *Config) address(hosts []netip.Addr) netip.Addr {
	hosts = slices.Clone(hosts)
	slices.SortFunc(hosts, netip.Addr.Compare)
	sum := sha256.New()
	for _, h := range hosts {
		sum.Write(h.AsSlice())
	}
	p := c.of(hosts[0].Is4())
	const most = 32 // bits of an address that differ
	free := min(p.Addr().BitLen()-p.Bits(), most)
	pick := uint64(binary.BigEndian.Uint32(sum.Sum(nil))) & (1<<free - 1)
	bytes := p.Addr().AsSlice()
	for i := len(bytes) - 1; pick > 0; i-- {
		bytes[i] |= byte(pick)
		pick >>= 8
	}
	at, _ := netip.AddrFromSlice(bytes)
	return at
}
