package softroce

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/rocast/rocast/test/softroce/image"
)

// boxMemoryMiB is more than the box needs. With zero-copy, virtio_net of 6.18 gives the device a
// wrong address for the header of every frame that it sends, if the driver is a module: that of an
// address in module memory, as if it were in the kernel's linear map. The address is above 1 GiB.
// There must be memory, which is zero as the header is; otherwise QEMU says 'bogus descriptor' and
// the NIC sends nothing any more.
const boxMemoryMiB = 3072

// BoxGuest is a box that is a guest: what runs in it meets another kernel than that of this
// machine, and the drivers of emulated NICs.
type BoxGuest struct {
	*computer
	Kernel string // its release

	image image.Image
	accel string
	nics  []nicModel

	bondMode string     // of the bond towards guest 1, of whose NICs the last is the second; "": none
	cable    *bondCable // of the bond; nil with 802.3ad
	tags     []Tag      // of the guests
}

func newBoxGuest(i image.Image, accel string, c Config) *BoxGuest {
	return &BoxGuest{computer: &computer{name: "the box"}, image: i, accel: accel, nics: c.BoxNICs, bondMode: c.BondMode, tags: c.Tags}
}

func (b *BoxGuest) build(ctx context.Context, guests, mtu int) (ports []io.ReadWriteCloser, err error) {
	h := hardware{memoryMiB: boxMemoryMiB, cpus: 1}
	if guests == 0 {
		h.cpus = 2 // it holds all hosts
	}
	nics := guests
	if b.bondMode != "" {
		nics++
	}
	for n := range nics {
		h.nics = append(h.nics, nic{b.nics[n], net.HardwareAddr{0x52, 0x54, 0x00, 0x77, 0x01, byte(n + 1)}})
	}
	m, err := b.powerOn(func() (*machine, error) { return powerOn(b.image, b.accel, h) })
	if err != nil {
		return nil, err
	}
	ports = slices.Clone(m.nics)
	if b.bondMode != "" && b.bondMode != lacpMode {
		b.cable = newBondCable(ports[0], ports[guests])
		ports[0], ports = b.cable, ports[:guests]
	}
	hello, err := m.hello(ctx)
	if err != nil {
		return ports, fmt.Errorf("boot the box: %w", err)
	}
	b.Kernel = hello.Kernel
	return ports, b.configure(ctx, h.nics, mtu)
}

// configure loads the modules of the box, names the NICs, and joins them with a bridge. It knows
// the NICs by their MACs: the kernel numbers them in the order in which their drivers come.
func (b *BoxGuest) configure(ctx context.Context, nics []nic, mtu int) error {
	var s strings.Builder
	fmt.Fprintf(&s, `set -e
for module in $(cat %s); do
	case $module in
	*/bonding.ko) insmod $module max_bonds=0 ;; # else it makes bond0
	*) insmod $module ;;
	esac
done
ip link set lo up
ip link add %[2]s type bridge mcast_snooping 0
`, image.BoxModules, bridgeName)
	for i, nic := range nics {
		fmt.Fprintf(&s, `for d in /sys/class/net/*/; do
	d=${d%%%%/}
	[ "$(cat $d/address)" != %s ] || ip link set ${d##*/} name %[2]s
done
ip link set %[2]s mtu %[3]d master %[4]s up
`, nic.mac, b.nameOf(i), mtu, bridgeName)
	}
	if b.bondMode != "" {
		s.WriteString(b.bond(mtu))
	}
	fmt.Fprintf(&s, `ip link set %[1]s mtu %[2]d up
ip address add %[3]s/24 dev %[1]s
ip address add %[4]s/64 dev %[1]s nodad
`, bridgeName, mtu, boxAddr, boxAddr6)
	s.WriteString(vlanDevices(bridgeName, b.tags))
	_, err := b.Run(ctx, "dash", "-c", s.String())
	return err
}

func (b *BoxGuest) nameOf(nic int) string {
	if b.bondMode != "" && nic == len(b.nics)-1 {
		return secondLower
	}
	return PortName(nic + 1)
}

func (b *BoxGuest) setMTU(ctx context.Context, guests, mtu int) error {
	names := []string{bridgeName}
	for n := 1; n <= guests; n++ {
		names = append(names, PortName(n))
	}
	for _, name := range names {
		if _, err := b.Run(ctx, "ip", "link", "set", name, "mtu", fmt.Sprint(mtu)); err != nil {
			return err
		}
	}
	return nil
}

func (b *BoxGuest) close() error {
	b.PowerOff()
	return nil
}
