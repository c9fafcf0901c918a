package bpf

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"unsafe"

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

// portsMax bounds the ports that are open at one time.
const portsMax = 256

// Port is the classifier attached to one interface, with the sockets of that interface.
type Port struct {
	c       *Classifier
	name    string
	ifindex int
	number  uint32
	mode    AttachMode
	refused error
	link    link.Link
	row     int    // in the map of the sockets; -1: none
	queues  uint32 // that were given a socket: no others
}

// OpenPort attaches to an interface in the network namespace of the calling thread. Until sockets
// are set, every frame goes to the kernel. The slots of fan-out name the port by number. The error
// does not name the interface.
func (c *Classifier) OpenPort(ifindex int, number uint32, mode AttachMode) (*Port, error) {
	iface, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return nil, fmt.Errorf("open port: no interface with index %d: %w", ifindex, err)
	}
	p := &Port{c: c, name: iface.Name, ifindex: ifindex, number: number, row: noRow}
	if err := p.open(mode); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open attaches the program that all ports have. They do not get another one meanwhile.
func (p *Port) open(mode AttachMode) error {
	c := p.c
	c.programs.Lock()
	defer c.programs.Unlock()
	err := p.attach(p.ifindex, mode)
	if err == nil {
		err = p.register()
	}
	if err == nil && c.fan != nil {
		err = c.fan.sendBy(p)
	}
	if err == nil {
		c.ports = append(c.ports, p)
	}
	return err
}

const noRow = -1

// register makes the entry by which the programs know the port.
func (p *Port) register() error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	e := p.entry()
	row := slices.Index(p.c.rows[:], false)
	switch {
	case row < 0:
		return fmt.Errorf("%d ports are open, and the classifier has room for no more", portsMax)
	case e.Ifindex != 0:
		return fmt.Errorf("its interface has the number %d, which the classifier cannot tell from the number %d of another port; "+
			"remove one of the two interfaces and make it again", p.ifindex, e.Ifindex)
	}
	p.c.rows[row], p.row = true, row
	e.Number, e.FirstSocket, e.Room, e.Redirected = p.number, uint32(row)*QueuesMax, 0, 0
	atomic.StoreUint32(&e.Ifindex, uint32(p.ifindex))
	return nil
}

// unregister removes the entry and the sockets.
func (p *Port) unregister() (err error) {
	if p.row == noRow {
		return nil
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	atomic.StoreUint32(&p.entry().Ifindex, 0)
	for q := range p.queues {
		err = errors.Join(err, p.c.maps.Sockets.Delete(p.socket(q)))
	}
	p.c.rows[p.row], p.row = false, noRow
	return err
}

// entry is the place of the port's entry, whether it is there or not.
func (p *Port) entry() *programsRocastPort {
	ports := &p.c.shared().Ports
	return (*programsRocastPort)(unsafe.Pointer(&ports[p.ifindex%len(ports)]))
}

// socket is the key of a queue in the map of the sockets.
func (p *Port) socket(queue uint32) uint32 { return uint32(p.row)*QueuesMax + queue }

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
	l, err := link.AttachXDP(link.XDPOptions{Program: p.c.classify(), Interface: ifindex, Flags: mode.flags()})
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

// isFinal reports whether the other mode would meet the same error.
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
	const noRoom = 2 // NO_ROOM of classifier.h
	return p.room() == noRoom
}

// Seen reports whether a frame has come to the classifier since the port was opened.
func (p *Port) Seen() bool {
	return p.room() != 0
}

// Redirected reports whether a frame was redirected to a socket of the port since the last call.
func (p *Port) Redirected() bool { return atomic.SwapUint32(&p.entry().Redirected, 0) != 0 }

func (p *Port) room() uint32 { return atomic.LoadUint32(&p.entry().Room) }

// SetSocket redirects the group frames of one queue to the AF_XDP socket fd, which must be bound to
// this interface and queue. The kernel removes the socket from the map when the socket is closed.
func (p *Port) SetSocket(queue uint32, fd int) error {
	if queue >= QueuesMax {
		return fmt.Errorf("set socket of port %s queue %d: only queues below %d can have one, reduce them with: "+
			"ethtool -L %s combined %d",
			p.name, queue, QueuesMax, p.name, QueuesMax)
	}
	err := p.c.maps.Sockets.Update(p.socket(queue), uint32(fd), ebpf.UpdateAny)
	p.queues = max(p.queues, queue+1)
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
	p.c.programs.Lock()
	p.c.ports = slices.DeleteFunc(p.c.ports, func(o *Port) bool { return o == p })
	p.c.programs.Unlock()
	var err error
	if p.link != nil {
		err = p.link.Close()
	}
	if err = errors.Join(err, p.unregister()); err != nil {
		return fmt.Errorf("close port %s: %w", p.name, err)
	}
	return nil
}
