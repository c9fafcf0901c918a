package bpf

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// AttachMode says at which place of an interface's receive path the classifier runs.
type AttachMode uint8

const (
	// ModeAuto tries native mode, and generic mode if the driver refuses that.
	ModeAuto AttachMode = iota
	// ModeNative runs in the driver, before the kernel allocates a socket buffer for the frame.
	ModeNative
	// ModeGeneric runs after the socket buffer is allocated. Every interface supports it.
	ModeGeneric
)

func (m AttachMode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeNative:
		return "native"
	case ModeGeneric:
		return "generic"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

func (m AttachMode) flags() link.XDPAttachFlags {
	if m == ModeGeneric {
		return link.XDPGenericMode
	}
	return link.XDPDriverMode
}

// QueuesMax is the number of queues that can have a socket. Group frames of queues with higher
// numbers go to the kernel.
const QueuesMax = 1024

// Port is the classifier attached to one interface, with the sockets of that interface.
type Port struct {
	name    string
	ifindex int
	mode    AttachMode
	refused error
	link    link.Link
	objs    portObjects
}

type portObjects struct {
	Program *ebpf.Program
	Sockets *ebpf.Map
	FanOut  *ebpf.Program // runs on every copy for this port; nil without fan-out
	Room    *ebpf.Variable
}

// OpenPort attaches to an interface in the network namespace of the calling thread. Until sockets
// are set, every frame goes to the kernel. Number is what the slots of fan-out call the port.
func (c *Classifier) OpenPort(ifindex int, number uint32, mode AttachMode) (*Port, error) {
	iface, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return nil, fmt.Errorf("open port: no interface with index %d: %w", ifindex, err)
	}
	p, err := c.loadPort(iface.Name, number)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w", iface.Name, err)
	}
	p.ifindex = ifindex
	err = p.attach(ifindex, mode)
	if err == nil && c.fan != nil {
		err = c.fan.leaveBy(number, p)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open port %s: %w", p.name, err), p.Close())
	}
	return p, nil
}

// loadPort returns a port with programs and socket map but without a link.
func (c *Classifier) loadPort(name string, number uint32) (*Port, error) {
	p := &Port{name: name}
	options := &ebpf.CollectionOptions{MapReplacements: c.shared()}
	var err error
	if c.fan == nil {
		var objs struct {
			Program *ebpf.Program  `ebpf:"rocast_classify"`
			Sockets *ebpf.Map      `ebpf:"xsks"`
			Room    *ebpf.Variable `ebpf:"metadata_room"`
		}
		err = c.spec.LoadAndAssign(&objs, options)
		p.objs = portObjects{Program: objs.Program, Sockets: objs.Sockets, Room: objs.Room}
	} else {
		var objs struct {
			Program *ebpf.Program  `ebpf:"rocast_classify"`
			Sockets *ebpf.Map      `ebpf:"xsks"`
			FanOut  *ebpf.Program  `ebpf:"rocast_fan_out"`
			Room    *ebpf.Variable `ebpf:"metadata_room"`
		}
		spec := c.spec.Copy()
		if err = spec.Variables[fanoutVarPortNumber].Set(number); err == nil {
			err = spec.LoadAndAssign(&objs, options)
		}
		p.objs = portObjects(objs)
	}
	if err != nil {
		return nil, fmt.Errorf("load classifier: %w", explain(err))
	}
	return p, nil
}

func (p *Port) attach(ifindex int, mode AttachMode) error {
	if mode != ModeAuto {
		return p.attachAs(ifindex, mode)
	}
	native := p.attachAs(ifindex, ModeNative)
	if native == nil || isFinal(native) {
		return native
	}
	if err := p.attachAs(ifindex, ModeGeneric); err != nil {
		return fmt.Errorf("%w; %w", native, err)
	}
	p.refused = native
	return nil
}

func (p *Port) attachAs(ifindex int, mode AttachMode) error {
	l, err := link.AttachXDP(link.XDPOptions{Program: p.objs.Program, Interface: ifindex, Flags: mode.flags()})
	switch {
	case err == nil:
		p.link, p.mode = l, mode
		return nil
	case isHeld(err):
		return fmt.Errorf("attach in %s mode: %s: %w", mode, describeHolder(p.name, ifindex), err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("attach in %s mode: the driver has no native XDP; mode: copy and mode: generic work without it: %w", mode, err)
	}
	return fmt.Errorf("attach in %s mode: %w", mode, explain(err))
}

// isFinal says whether the other mode would meet the same error.
func isFinal(err error) bool {
	return isHeld(err) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV)
}

// Mode is the mode in which the port is attached: native or generic.
func (p *Port) Mode() AttachMode { return p.mode }

// NativeRefused is the reason why a port that was opened with ModeAuto runs in generic mode. It is
// nil in all other cases.
func (p *Port) NativeRefused() error { return p.refused }

// NoRoom reports that the driver leaves no room for metadata in front of a frame: group frames go
// to the kernel then. It is known from the first frame on that arrives. In generic mode there is
// room.
func (p *Port) NoRoom() bool {
	const noRoom = 2 // NO_ROOM of classifier.c
	var room uint32
	return p.objs.Room.Get(&room) == nil && room == noRoom
}

// Seen reports whether a frame has come to the classifier since the port was opened.
func (p *Port) Seen() bool {
	var room uint32
	return p.objs.Room.Get(&room) == nil && room != 0
}

// SetSocket redirects the group frames of one queue to the AF_XDP socket fd, which must be bound to
// this interface and queue. The kernel removes the socket from the map when the socket is closed.
func (p *Port) SetSocket(queue uint32, fd int) error {
	if queue >= QueuesMax {
		return fmt.Errorf("set socket of port %s queue %d: only queues below %d can have one, reduce them with: "+
			"ethtool -L %s combined %d",
			p.name, queue, QueuesMax, p.name, QueuesMax)
	}
	err := p.objs.Sockets.Update(queue, uint32(fd), ebpf.UpdateAny)
	switch {
	case errors.Is(err, unix.ENOTSOCK), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("set socket of port %s queue %d: fd %d is no AF_XDP socket with a receive ring: %w",
			p.name, queue, fd, err)
	case err != nil:
		return fmt.Errorf("set socket of port %s queue %d: %w", p.name, queue, err)
	}
	return nil
}

// Close detaches the classifier. Later frames go to the kernel.
func (p *Port) Close() error {
	var err error
	if p.link != nil {
		err = p.link.Close()
	}
	if err = errors.Join(err, p.objs.Program.Close(), p.objs.Sockets.Close(), p.objs.FanOut.Close()); err != nil {
		return fmt.Errorf("close port %s: %w", p.name, err)
	}
	return nil
}
