package address

import (
	"errors"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/rtnl"
)

// kernel reads and changes the addresses of the box. The test double needs no root.
type kernel interface {
	// add adds an address to an interface. It returns EEXIST if the interface already has the
	// address.
	add(IfAddr) error
	// remove removes an address, and nothing else: the routes through its interface stay.
	remove(IfAddr) error
	// interfacesOf returns the interfaces that have an IP, with any prefix length. It leaves out an
	// IP that carries the package's mark: if no note names it, a crash left it behind, and it
	// belongs to nobody.
	interfacesOf(netip.Addr) ([]IfAddr, error)
	// subnets returns the subnets of an interface's addresses: see Owner.Subnets.
	subnets(ifIndex int) ([]netip.Prefix, error)
	// addresses returns the addresses of an interface, those that the package added and all others.
	addresses(ifIndex int) ([]IfAddr, error)
	// marked returns the addresses that may belong to the package: they carry its mark, or the
	// kernel does not support marks.
	marked() (map[note]bool, error)
	name(ifIndex int) (string, error)
	index(name string) (ifIndex int, err error)
	// macs returns the MACs of the box's interfaces.
	macs() ([][6]byte, error)
	// asker returns the MAC of an interface. It returns an error if no host can hear it there.
	asker(ifIndex int) (mac [6]byte, err error)
	// announce tells the hosts on an interface that the box has an IP.
	announce(IfAddr) error
	// ask prepares a question to the hosts on an interface: which of them has an IP? It returns an
	// error if no host can be asked there.
	ask(IfAddr) (question, error)
	Close()
}

// ifaProto is the attribute IFA_PROTO (linux/if_addr.h), and mark is the value that the package
// writes there. Kernels before 5.18 ignore the attribute.
const (
	ifaProto = 11
	mark     = 114
)

// netlinkKernel implements kernel with netlink requests.
type netlinkKernel struct {
	*rtnl.Conn
}

func (k *netlinkKernel) name(ifIndex int) (string, error) {
	l, err := k.LinkByIndex(ifIndex)
	if err != nil {
		return "", err
	}
	return l.Attrs().Name, nil
}

// index returns 0, which is not a valid ifindex, if the interface is gone.
func (k *netlinkKernel) index(name string) (int, error) {
	l, err := k.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}

func (k *netlinkKernel) macs() ([][6]byte, error) {
	links, err := k.LinkList()
	var macs [][6]byte
	for _, l := range links {
		if mac := l.Attrs().HardwareAddr; len(mac) == macBytes {
			macs = append(macs, [macBytes]byte(mac))
		}
	}
	return macs, err
}

func (k *netlinkKernel) add(p IfAddr) error {
	return k.change(unix.RTM_NEWADDR, p) // without NLM_F_REPLACE it is EEXIST if the address is there
}

func (k *netlinkKernel) remove(p IfAddr) error {
	lost, lookErr := k.lostWith(p)
	if err := k.change(unix.RTM_DELADDR, p); err != nil {
		return err
	}
	if errors.Is(lookErr, unix.ENODEV) {
		lookErr = nil
	}
	return errors.Join(lookErr, k.putBack(lost))
}

func (k *netlinkKernel) change(message int, p IfAddr) error {
	header := nl.NewIfAddrmsg(unix.AF_INET)
	if p.IP.Is6() {
		header.Family = unix.AF_INET6
	}
	header.Prefixlen = uint8(p.IP.BitLen())
	header.Index = uint32(p.IfIndex)
	parts := []nl.NetlinkRequestData{header, nl.NewRtAttr(unix.IFA_LOCAL, p.IP.AsSlice()), nl.NewRtAttr(unix.IFA_ADDRESS, p.IP.AsSlice())}
	parts = append(parts, nl.NewRtAttr(ifaProto, []byte{mark})) // the kernel ignores this and what follows when it removes the address
	if p.IP.Is6() {
		parts = append(parts, silently()...)
	}
	_, err := k.Request(message, unix.NLM_F_ACK, 0, parts...)
	return err
}

// silently prevents two actions of the kernel. The kernel must not run duplicate address detection,
// during which it does not answer ND. And it must not choose the group's IP as the source of its
// own connections (the address is deprecated: RFC 6724, rule 3).
func silently() []nl.NetlinkRequestData {
	lifetimes := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: math.MaxUint32}} // for ever, and preferred for no time
	return []nl.NetlinkRequestData{
		nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD)),
		nl.NewRtAttr(unix.IFA_CACHEINFO, lifetimes.Serialize()),
	}
}
