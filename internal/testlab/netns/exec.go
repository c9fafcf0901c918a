package netns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// MustRun runs a command line of words without quotes inside the namespace, and returns its output.
// The test ends if the command fails.
func (n *NS) MustRun(t testing.TB, line string, args ...any) string {
	t.Helper()
	words := strings.Fields(fmt.Sprintf(line, args...))
	output, err := n.Exec(words[0], words[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// Sysctl sets one of the namespace's variables, named with dots: net.ipv4.ip_forward.
func (n *NS) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	return n.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
}

// AddAddress gives the link an address such as 10.0.0.1/24, and waits until packets to it are
// received. The kernel does not look for another host that has it.
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
	if err := l.NS.links.AddrAdd(link, address); err != nil {
		return err
	}
	return l.awaitAddress(address.IP)
}

// awaitAddress waits until packets to an address of the link are received. The kernel makes the
// route that says so in a work queue where the address is IPv6 (addrconf_dad_work): before, a
// socket can have the address, and every packet to it is dropped.
func (l Link) awaitAddress(ip net.IP) error {
	for end := time.Now().Add(linkPatience); ; time.Sleep(time.Millisecond) {
		routes, err := l.NS.links.RouteGet(ip)
		switch {
		case err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL:
			return nil
		case time.Now().After(end):
			err = errors.Join(err, fmt.Errorf("the route is %v", routes))
			return fmt.Errorf("%s in %s does not receive for %v after %v: %w", l.Name, l.NS.name, ip, linkPatience, err)
		}
	}
}

// AddNeighbour sets the MAC of a peer, so that no ARP request is among counted frames.
func (l Link) AddNeighbour(address string, mac net.HardwareAddr) error {
	return l.NS.links.NeighAdd(&netlink.Neigh{
		LinkIndex: l.Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(address), HardwareAddr: mac,
	})
}
