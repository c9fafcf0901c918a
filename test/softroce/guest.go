package softroce

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/test/softroce/wire"
)

// Guest is one host of the lab. Its methods may be called from any goroutine.
type Guest struct {
	Number int // from 1
	Addr   netip.Addr
	Addr6  netip.Addr
	MAC    net.HardwareAddr
	Wire   *wire.Wire // to PortName(Number)
	Second *wire.Wire // of a guest with a bond: to the other lower device of the box's bond; else nil
	Kernel string     // its release, known after the boot
	Device string     // the RDMA device

	*computer
	lab *Lab
}

// guestMemoryMiB is the memory of a guest whose lab does not ask for more.
const guestMemoryMiB = 256

func guestAddr(number int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(number)}) }

func guestAddr6(number int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd77::%d", number)) }

func newGuest(l *Lab, n int, w *wire.Wire) *Guest {
	return &Guest{
		Number: n,
		Addr:   guestAddr(n),
		Addr6:  guestAddr6(n),
		MAC:    net.HardwareAddr{0x52, 0x54, 0x00, 0x77, 0x00, byte(n)},
		Wire:   w,
		Device: l.device(n),

		computer: &computer{name: fmt.Sprintf("guest %d", n)},
		lab:      l,
	}
}

func (g *Guest) wires() []*wire.Wire {
	if g.Second == nil {
		return []*wire.Wire{g.Wire}
	}
	return []*wire.Wire{g.Wire, g.Second}
}

// Boot powers the guest on and returns when its RDMA device can be used.
func (g *Guest) Boot(ctx context.Context) error {
	if err := g.boot(ctx); err != nil {
		return fmt.Errorf("boot guest %d: %w", g.Number, err)
	}
	return nil
}

func (g *Guest) boot(ctx context.Context) error {
	m, err := g.powerOn(g.start)
	if err != nil {
		return err
	}
	for i, w := range g.wires() {
		w.Plug(m.nics[i])
	}
	hello, err := m.hello(ctx)
	if err == nil {
		g.Kernel = hello.Kernel
		err = g.configure(ctx)
	}
	if err != nil {
		g.PowerOff()
	}
	return err
}

func (g *Guest) start() (*machine, error) {
	if g.lab.here {
		return startHere(g.MAC.String())
	}
	h := hardware{memoryMiB: g.lab.memoryMiB, cpus: 1}
	for i := range g.wires() {
		h.nics = append(h.nics, nic{virtioNet, net.HardwareAddr{g.MAC[0], g.MAC[1], g.MAC[2], g.MAC[3], byte(3 * i), g.MAC[5]}})
	}
	return powerOn(g.lab.image, g.lab.accel, h)
}

// configure gives the guest its addresses and its RDMA device. rxe refuses a VLAN device below it,
// but its device on eth0 has the GIDs of the VLAN devices above eth0, and sends by them. It waits
// until both addresses have a GID: a kernel worker adds the GIDs later.
func (g *Guest) configure(ctx context.Context) error {
	device, more := tagOf(g.lab.tags, g.Number).device()
	below := "eth0" // the RDMA device
	if g.Second != nil {
		device, below, more = bondName, bondName, guestBond(g.MAC, g.lab.mtu)
	}
	script := fmt.Sprintf(`set -e
ip link set lo up
ip link set eth0 mtu %[1]d up
%[2]sip address add %[4]s/24 dev %[3]s
ip address add %[5]s/64 dev %[3]s nodad
ip route add default via %[6]s
rdma link add %[10]s type rxe netdev %[9]s
gids=/sys/class/infiniband/%[10]s/ports/1/gids
until grep -q %[7]s $gids/* && grep -q %[8]s $gids/*; do sleep 0.02; done
`, g.lab.mtu, more, device, g.Addr, g.Addr6, boxAddr, gidText(g.Addr), gidText(g.Addr6), below, g.Device)
	if g.lab.here {
		script += testlab.OnlyDevice + "only_device " + g.Device + "\n"
	}
	_, err := g.Run(ctx, "dash", "-c", script)
	return err
}

// gidText is the GID of an address as sysfs prints it.
func gidText(addr netip.Addr) string {
	raw := addr.As16()
	groups := make([]string, 0, len(raw)/2)
	for i := 0; i < len(raw); i += 2 {
		groups = append(groups, fmt.Sprintf("%02x%02x", raw[i], raw[i+1]))
	}
	return strings.Join(groups, ":")
}

// GIDIndex is the index of an address in the GID table, for perftest's option -x.
func (g *Guest) GIDIndex(ctx context.Context, addr netip.Addr) (string, error) {
	dir := "/sys/class/infiniband/" + g.Device + "/ports/1/gids"
	// Most files of the table are empty and cannot be read. That is not an error of the search.
	out, err := g.Run(ctx, "dash", "-c", "grep -l "+gidText(addr)+" "+dir+"/* 2>/dev/null")
	if err != nil {
		return "", fmt.Errorf("guest %d has no GID for %s", g.Number, addr)
	}
	return strings.TrimPrefix(strings.TrimSpace(out), dir+"/"), nil
}
