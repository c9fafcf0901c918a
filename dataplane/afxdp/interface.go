package afxdp

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// iface is an interface with the classifier on it. Its queues are divided among
// the workers' ports.
type iface struct {
	info dataplane.PortInfo
	xdp  *bpf.Port
}

// findInterface reads what the kernel knows of an interface.
func findInterface(id mft.PortID, name string) (*iface, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w; `ip link` lists the interfaces there are", name, err)
	}
	a := link.Attrs()
	if len(a.HardwareAddr) != len(roce.MAC{}) {
		return nil, fmt.Errorf("open port %s: it is not an Ethernet interface; name one towards hosts", name)
	}
	queues, err := rxQueues(name)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w", name, err)
	}
	f := &iface{info: dataplane.PortInfo{ID: id, Name: name, IfIndex: a.Index, MTU: a.MTU, Queues: queues}}
	copy(f.info.MAC[:], a.HardwareAddr)
	return f, nil
}

// obtained notes what the interface got, by one of its sockets.
func (f *iface) obtained(s *xsk.Socket) {
	o := s.Obtained()
	f.info.Attach, f.info.Mode, f.info.MultiBuffer = f.xdp.Mode().String(), o.Mode.String(), o.MultiBuffer
}
