package netns

import (
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// VethOptions says what a pair looks like; the zero value is the kernel's default pair: MTU 1500, one queue, random MACs.
type VethOptions struct {
	MTU    int
	Queues int                 // RX and TX queues of each end; veth fixes them at creation
	MACs   [2]net.HardwareAddr // of a's and b's end
}

// Link is one end of a veth pair.
type Link struct {
	NS    *NS
	Name  string
	Index int
	MAC   net.HardwareAddr
}

// Veth joins a and b with a veth pair whose both ends are up, and fails the test if it cannot. The pair goes with
// either namespace.
func Veth(t testing.TB, a *NS, aName string, b *NS, bName string, o VethOptions) (aEnd, bEnd Link) {
	t.Helper()
	aEnd, bEnd, err := CreateVeth(a, aName, b, bName, o)
	if err != nil {
		t.Fatal(err)
	}
	return aEnd, bEnd
}

// CreateVeth is Veth for programs that are not tests. The ends may be in one namespace.
func CreateVeth(a *NS, aName string, b *NS, bName string, o VethOptions) (aEnd, bEnd Link, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = aName
	attrs.MTU = o.MTU
	attrs.HardwareAddr = o.MACs[0]
	attrs.NumTxQueues = max(o.Queues, 1)
	attrs.NumRxQueues = max(o.Queues, 1)
	veth := netlink.NewVeth(attrs)
	veth.PeerName = bName
	veth.PeerNamespace = netlink.NsFd(b.file.Fd())
	veth.PeerMTU = uint32(o.MTU)
	veth.PeerHardwareAddr = o.MACs[1]
	veth.PeerNumTxQueues = uint32(max(o.Queues, 1))
	veth.PeerNumRxQueues = uint32(max(o.Queues, 1))
	if err := a.links.LinkAdd(veth); err != nil {
		return Link{}, Link{}, fmt.Errorf("create veth %s in %s - %s in %s: %w", aName, a.name, bName, b.name, err)
	}
	if aEnd, err = a.up(aName); err != nil {
		return Link{}, Link{}, err
	}
	if bEnd, err = b.up(bName); err != nil {
		return Link{}, Link{}, err
	}
	return aEnd, bEnd, nil
}

func (n *NS) up(name string) (Link, error) {
	link, err := n.links.LinkByName(name)
	if err == nil {
		err = n.links.LinkSetUp(link)
	}
	if err != nil {
		return Link{}, fmt.Errorf("bring up %s in %s: %w", name, n.name, err)
	}
	return Link{NS: n, Name: name, Index: link.Attrs().Index, MAC: link.Attrs().HardwareAddr}, nil
}
