package netns

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// VethOptions describe a pair. The zero value is the kernel's default: MTU 1500, one queue, random
// MACs.
type VethOptions struct {
	MTU    int
	Queues int                 // RX and TX queues of each end, which veth fixes at creation; 0: 1
	MACs   [2]net.HardwareAddr // of a's and b's end
}

// Link is one end of a veth pair.
type Link struct {
	NS    *NS
	Name  string
	Index int
	MAC   net.HardwareAddr
}

// Veth joins a and b with a veth pair, brings both ends up, and fails the test if that is not
// possible. The pair is removed together with either namespace.
func Veth(t testing.TB, a *NS, aName string, b *NS, bName string, o VethOptions) (aEnd, bEnd Link) {
	t.Helper()
	aEnd, bEnd, err := CreateVeth(a, aName, b, bName, o)
	if err != nil {
		t.Fatal(err)
	}
	return aEnd, bEnd
}

// CreateVeth is Veth for programs that are not tests. Both ends may be in the same namespace.
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
	return aEnd, bEnd, errors.Join(aEnd.AwaitCarrier(), bEnd.AwaitCarrier())
}

// AwaitCarrier waits until the kernel sends what it is given for the link. It sees the carrier of a
// new link in a work queue, and drops all frames before (linkwatch_do_dev).
func (l Link) AwaitCarrier() error {
	for end := time.Now().Add(linkPatience); ; time.Sleep(time.Millisecond) {
		now, err := l.NS.links.LinkByIndex(l.Index)
		switch {
		case err != nil:
			return fmt.Errorf("look at %s in %s: %w", l.Name, l.NS.name, err)
		case now.Attrs().OperState == netlink.OperUp:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s in %s is %v after %v", l.Name, l.NS.name, now.Attrs().OperState, linkPatience)
		}
	}
}

const linkPatience = 10 * time.Second

func (n *NS) up(name string) (Link, error) {
	l, err := n.links.LinkByName(name)
	if err == nil {
		err = n.links.LinkSetUp(l)
	}
	if err != nil {
		return Link{}, fmt.Errorf("bring up %s in %s: %w", name, n.name, err)
	}
	return Link{NS: n, Name: name, Index: l.Attrs().Index, MAC: l.Attrs().HardwareAddr}, nil
}

// AttachXDP attaches a program to the link. The program is detached when the returned link is
// closed.
func (l Link) AttachXDP(program *ebpf.Program, flags link.XDPAttachFlags) (attached link.Link, err error) {
	err = l.NS.Do(func() (err error) {
		attached, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: l.Index, Flags: flags})
		return err
	})
	return attached, err
}
