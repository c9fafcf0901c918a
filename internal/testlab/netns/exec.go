package netns

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Exec runs a command inside the namespace and returns its output. The command sees the file
// systems of the caller, so /sys/class/net still shows the interfaces of the namespace in which the
// program started.
func (n *NS) Exec(name string, args ...string) (string, error) {
	var output []byte
	err := n.Do(func() (err error) {
		output, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s: %s %s: %w: %s", n.name, name, strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// Sysctl sets one of the namespace's variables, named with dots: net.ipv4.ip_forward.
func (n *NS) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	return n.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
}

// AddAddress gives the link an address such as 10.0.0.1/24. An IPv6 address can be used at once:
// the kernel does not look for another host that has it.
func (l Link) AddAddress(cidr string) error {
	address, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	link, err := l.NS.links.LinkByIndex(l.Index)
	if err != nil {
		return err
	}
	if address.IP.To4() == nil {
		address.Flags |= unix.IFA_F_NODAD
	}
	return l.NS.links.AddrAdd(link, address)
}

// AddNeighbour sets the MAC of a peer, so that no ARP request is among counted frames.
func (l Link) AddNeighbour(address string, mac net.HardwareAddr) error {
	return l.NS.links.NeighAdd(&netlink.Neigh{
		LinkIndex: l.Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(address), HardwareAddr: mac,
	})
}
