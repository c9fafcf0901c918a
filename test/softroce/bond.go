package softroce

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rocast/rocast/test/softroce/image"
)

const (
	bondName = "bond0"
	// secondLower is the second lower device of the bond. The first is the port of guest 1.
	secondLower = "rcq1"
)

// lowers are the lower devices of the bond.
var lowers = [2]string{PortName(1), secondLower}

// bondCable is what is between the two lower devices of a bond in the box and a guest: a switch
// that sends a frame to the lower device from which it heard last, and to both before it has heard.
// It sends nothing to a lower device that is unplugged, also where a frame of that one is late:
// nothing would tell it of the other one if the guest waits for an answer.
type bondCable struct {
	lowers    [2]io.ReadWriteCloser
	unplugged [2]atomic.Bool
	frames    chan []byte
	err       chan error
	heard     atomic.Int32 // the number of the lower device, or none
	ended     chan struct{}
	close     sync.Once
}

const none = -1

func newBondCable(a, b io.ReadWriteCloser) *bondCable {
	c := &bondCable{lowers: [2]io.ReadWriteCloser{a, b}, frames: make(chan []byte), err: make(chan error, 2), ended: make(chan struct{})}
	c.heard.Store(none)
	for i, lower := range c.lowers {
		go c.hear(int32(i), lower)
	}
	return c
}

func (c *bondCable) hear(number int32, lower io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := lower.Read(buffer)
		if err != nil {
			c.err <- err
			return
		}
		c.heard.Store(number)
		select {
		case c.frames <- append([]byte(nil), buffer[:n]...):
		case <-c.ended:
			return
		}
	}
}

// Plug reports whether the switch has a link to a lower device.
func (c *bondCable) Plug(lower int, is bool) { c.unplugged[lower].Store(!is) }

func (c *bondCable) Read(frame []byte) (int, error) {
	select {
	case f := <-c.frames:
		return copy(frame, f), nil
	case err := <-c.err:
		return 0, err
	case <-c.ended:
		return 0, io.EOF
	}
}

func (c *bondCable) Write(frame []byte) (n int, err error) {
	heard := c.heard.Load()
	if heard != none && c.unplugged[heard].Load() {
		heard = none
	}
	for i, lower := range c.lowers {
		if (heard == none || heard == int32(i)) && !c.unplugged[i].Load() {
			if n, err = lower.Write(frame); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (c *bondCable) Close() error {
	c.close.Do(func() {
		close(c.ended)
		for _, lower := range c.lowers {
			lower.Close()
		}
	})
	return nil
}

// lacpMode is the mode in which both ends of a bond speak LACP, once a second here: no switch of
// the lab does.
const lacpMode = "802.3ad"

func bondOptions(mode string) string {
	if mode == lacpMode {
		return mode + " lacp_rate fast"
	}
	return mode
}

// guestBond makes a bond of the two NICs of a guest. LACP needs to know their speed, and virtio-net
// does not.
func guestBond(mac net.HardwareAddr, mtu int) string {
	return fmt.Sprintf(`for module in $(grep -e tls -e bonding %[1]s); do insmod $module max_bonds=0; done
ip link add %[2]s address %[3]v type bond mode %[4]s miimon 50
for nic in eth0 eth1; do
	ethtool -s $nic speed 10000 duplex full
	ip link set $nic down
	ip link set $nic master %[2]s
	ip link set $nic up
done
ip link set %[2]s mtu %[5]d up
`, image.BoxModules, bondName, mac, bondOptions(lacpMode), mtu)
}

// bond makes a bond of the port of guest 1 and the last NIC.
func (b *BoxGuest) bond(mtu int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "ip link add %s type bond mode %s miimon 50\n", bondName, bondOptions(b.bondMode))
	for _, name := range lowers {
		if b.bondMode == lacpMode {
			fmt.Fprintf(&s, "ethtool -s %s speed 10000 duplex full\n", name)
		}
		fmt.Fprintf(&s, "ip link set %[1]s nomaster\nip link set %[1]s down\nip link set %[1]s master %[2]s\nip link set %[1]s up\n", name, bondName)
	}
	fmt.Fprintf(&s, "ip link set %s mtu %d master %s up\n", bondName, mtu, bridgeName)
	return s.String()
}
