package afxdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
)

// survey does the part of Open that opens nothing: it fills in what c leaves out, looks the
// interfaces up and sets how many chunks each may receive into.
func (s *Switch) survey(c *Config) (now []seen, err error) {
	if s.attach, s.socket, err = c.Mode.split(); err != nil {
		return nil, err
	}
	if len(c.Ports) == 0 {
		return nil, errors.New("no port to open: name at least one interface")
	}
	if s.openSocket = c.openSocket; s.openSocket == nil {
		s.openSocket = xsk.Open
	}
	if s.noRoom = c.noRoom; s.noRoom == nil {
		s.noRoom = (*bpf.Port).NoRoom
	}
	if s.sees = c.sees; s.sees == nil {
		s.sees = (*bpf.Port).Seen
	}
	c.Workers = max(c.Workers, 1)
	if s.repairChunks, err = repairShare(c.RepairMemory, c.Workers); err != nil {
		return nil, err
	}
	if err := checkEgress(c.Ports, c.Egress); err != nil {
		return nil, err
	}
	if now, err = s.find(*c); err != nil {
		return nil, err
	}
	return now, setRooms(s.interfaces, c.Workers)
}

// Check returns the error with which each Open fails as long as the interfaces stay as they are. It
// opens nothing, so a switch that uses the interfaces goes on. Kernels before 6.3 do not tell
// whether a driver has zero-copy: there only Open finds that out.
func Check(c Config) error {
	s := &Switch{}
	now, err := s.survey(&c)
	if err != nil {
		return err
	}
	for i, f := range s.interfaces {
		if c.Mode == ModeZeroCopy && f.info.State != dataplane.PortGone && lacksZeroCopy(now[i].ifIndex) {
			return misfit{fmt.Errorf("open port %s: the device has no zero-copy; write mode: copy", f.info.Name)}
		}
	}
	return nil
}

// Notes returns sentences about interfaces that can be ports, and do not do all that a port should.
func Notes(ports []string) (notes []string) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	for _, l := range list {
		a := l.Attrs()
		if vlan := underVLAN(a.Index, list); slices.Contains(ports, a.Name) && vlan != "" && takesTags(a.Name, l.Type()) {
			notes = append(notes, dataplane.TagsTaken(a.Name, vlan))
		}
	}
	return notes
}

// Numbers of the generic netlink family netdev of the kernel.
const (
	netdevFamily      = "netdev"
	netdevVersion     = 1
	netdevGet         = 1 // NETDEV_CMD_DEV_GET
	netdevIfIndex     = 1 // NETDEV_A_DEV_IFINDEX
	netdevXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES
	xdpZeroCopy       = 1 << 3
	xdpSendsBuffers   = 1 << 6 // NETDEV_XDP_ACT_NDO_XMIT_SG
)

// lacksZeroCopy reports whether the kernel says that the driver of an interface has no zero-copy.
func lacksZeroCopy(ifIndex int) bool {
	has, ok := xdpFeatures(ifIndex)
	return ok && has&xdpZeroCopy == 0
}

// CheckSeveralBuffers returns why XDP cannot send frames of several buffers on this kernel; nil if
// it can. Kernels that can tell which drivers send them.
func CheckSeveralBuffers() error {
	_, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return errors.ErrUnsupported
	}
	return err
}

// xdpFeatures returns what the driver of an interface can do with XDP. ok is false if the kernel
// does not say.
func xdpFeatures(ifIndex int) (has uint64, ok bool) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return 0, false
	}
	request := nl.NewNetlinkRequest(int(family.ID), 0)
	request.AddData(genlHeader{netdevGet, netdevVersion})
	request.AddData(nl.NewRtAttr(netdevIfIndex, nl.Uint32Attr(uint32(ifIndex))))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(answers) != 1 {
		return 0, false
	}
	attrs, err := nl.ParseRouteAttr(answers[0][nl.SizeofGenlmsg:])
	if err != nil {
		return 0, false
	}
	for _, a := range attrs {
		if a.Attr.Type == netdevXDPFeatures {
			return binary.NativeEndian.Uint64(a.Value), true
		}
	}
	return 0, false
}

// genlHeader is struct genlmsghdr. The kernel refuses one whose reserved bytes are not 0, and the
// library's has no such bytes.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }
