package bed

import (
	"errors"
	"net/netip"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// The interfaces of a machine in the wire. They are in its bridge, Bridge.
const (
	WireUplink = "uplink"
	WireToHost = "tohost"
)

// InsertWire puts a machine with two ports into the wire between the switch and a host. A bridge
// with the IP joins its ports. The caller closes it.
func (b *Bed) InsertWire(h *Host, ip netip.Addr) (*netns.NS, error) {
	wire, err := b.Create()
	if err != nil {
		return nil, err
	}
	run := func(at *netns.NS, words ...string) {
		if err == nil {
			_, err = at.Exec(words[0], words[1:]...)
		}
	}
	// The kernel leaves checksums out between namespaces. Here frames are as they are on a cable.
	run(h.NS, "ethtool", "-K", h.End.Name, "tx", "off")
	run(b.Box, "ip", "link", "set", h.Port.Name, "netns", wire.Name(), "name", WireToHost)
	if err == nil {
		h.Port, _, err = netns.CreateVeth(b.Box, h.Port.Name, wire, WireUplink, netns.VethOptions{MTU: b.MTU})
	}
	run(b.Box, "ip", "link", "set", h.Port.Name, "master", Bridge)
	run(wire, "ip", "link", "add", Bridge, "type", "bridge")
	for _, port := range []string{WireUplink, WireToHost, Bridge} {
		if port != Bridge {
			run(wire, "ip", "link", "set", port, "master", Bridge)
		}
		run(wire, "ip", "link", "set", port, "up")
	}
	run(wire, "ip", "addr", "add", b.in(ip), "dev", Bridge, "nodad")
	if err != nil {
		return nil, errors.Join(err, wire.Close())
	}
	return wire, nil
}
