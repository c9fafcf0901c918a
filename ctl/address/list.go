package address

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/rtnl"
)

// assigned is an address in the kernel's list.
type assigned struct {
	IfAddr
	bits  int
	net   netip.Prefix // the subnet of the address, or of its peer if it has one
	proto int          // the mark
}

func (k *netlinkKernel) list() ([]assigned, error) {
	messages, err := k.Request(unix.RTM_GETADDR, unix.NLM_F_DUMP, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	return parseAll(messages), err
}

// parseAll leaves out what has no address.
func parseAll(messages [][]byte) (list []assigned) {
	for _, m := range messages {
		if a, ok := parse(m); ok {
			list = append(list, a)
		}
	}
	return list
}

func parse(data []byte) (assigned, bool) {
	if len(data) < unix.SizeofIfAddrmsg {
		return assigned{}, false
	}
	header := nl.DeserializeIfAddrmsg(data)
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return assigned{}, false
	}
	a := assigned{IfAddr: IfAddr{IfIndex: int(header.Index)}, bits: int(header.Prefixlen)}
	var address, local []byte // if address is the peer's address, local is the box's own
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.IFA_ADDRESS:
			address = attr.Value
		case unix.IFA_LOCAL:
			local = attr.Value
		case ifaProto:
			a.proto = int(attr.Value[0])
		}
	}
	if local == nil {
		local = address
	}
	ip, ok := netip.AddrFromSlice(local)
	a.IP = ip
	peer, _ := netip.AddrFromSlice(address)
	a.net, _ = peer.Prefix(a.bits) // the zero Prefix if there is no address
	return a, ok
}

func (k *netlinkKernel) subnets(ifIndex int) ([]netip.Prefix, error) {
	list, err := k.list()
	var nets []netip.Prefix
	for _, a := range list {
		if a.IfIndex == ifIndex && a.net.IsValid() && !a.net.IsSingleIP() && !a.IP.IsLinkLocalUnicast() {
			nets = append(nets, a.net)
		}
	}
	return nets, err
}

func (k *netlinkKernel) addresses(ifIndex int) (all []IfAddr, err error) {
	list, err := k.list()
	for _, a := range list {
		if a.IfIndex == ifIndex {
			all = append(all, a.IfAddr)
		}
	}
	return all, err
}

func (k *netlinkKernel) interfacesOf(ip netip.Addr) ([]IfAddr, error) {
	list, err := k.list()
	var found []IfAddr
	for _, a := range list {
		ours := a.proto == mark && a.bits == ip.BitLen()
		if a.IP == ip && !ours {
			found = append(found, a.IfAddr)
		}
	}
	return found, err
}

func (k *netlinkKernel) marked() (map[note]bool, error) {
	list, err := k.list()
	links, linksErr := k.LinkList()
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	marks := knowsMarks(list)
	marked := map[note]bool{}
	for _, a := range list {
		if a.bits == a.IP.BitLen() && (a.proto == mark || !marks) {
			marked[note{ip: a.IP, name: names[a.IfIndex]}] = true
		}
	}
	return marked, errors.Join(err, linksErr)
}

// CheckMarks returns errors.ErrUnsupported if the kernel does not support marks.
func CheckMarks() error {
	conn, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return checkMarks((&netlinkKernel{conn}).list())
}

func checkMarks(list []assigned, err error) error {
	if err == nil && !knowsMarks(list) {
		err = errors.ErrUnsupported
	}
	return err
}

// knowsMarks reports whether the kernel supports marks. Such a kernel sets a mark of its own on
// 127.0.0.1, so the list then contains at least one mark.
func knowsMarks(list []assigned) bool {
	return slices.ContainsFunc(list, func(a assigned) bool { return a.proto != 0 })
}
