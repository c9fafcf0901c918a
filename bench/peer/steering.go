package peer

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// steering redirects every frame of every port to the AF_XDP socket of its queue, with the shortest
// programs that do so. The socket of queue q of port p has key p*Workers+q in the map.
type steering struct {
	sockets *ebpf.Map
	links
}

func newSteering(s Setting) (*steering, error) {
	t := &steering{}
	if err := t.open(s); err != nil {
		return nil, errors.Join(fmt.Errorf("steer frames to AF_XDP: %w", err), t.close())
	}
	return t, nil
}

func (t *steering) open(s Setting) (err error) {
	t.sockets, err = ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(len(s.Lab.Ports) * s.Workers),
	})
	if err != nil {
		return err
	}
	for i, port := range s.Lab.Ports {
		if err := t.steer(port, i*s.Workers); err != nil {
			return err
		}
	}
	return nil
}

// steer attaches the program of a port whose sockets have keys from first on.
func (t *steering) steer(port netns.Link, first int) error {
	const xdpPass, offRxQueueIndex = 2, 16
	instructions := asm.Instructions{asm.LoadMem(asm.R2, asm.R1, offRxQueueIndex, asm.Word)}
	if first > 0 {
		instructions = append(instructions, asm.Add.Imm(asm.R2, int32(first)))
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS, Instructions: append(instructions,
			asm.LoadMapPtr(asm.R1, t.sockets.FD()),
			asm.Mov.Imm(asm.R3, xdpPass), // without a socket
			asm.FnRedirectMap.Call(),
			asm.Return(),
		),
	})
	if err != nil {
		return err
	}
	return errors.Join(t.attach(port, program), program.Close()) // the link holds it
}

// file returns the socket map as a file for another process.
func (t *steering) file() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(t.sockets.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "sockets"), nil
}

func (t *steering) close() error {
	err := t.links.close()
	if t.sockets != nil {
		err = errors.Join(err, t.sockets.Close())
	}
	return err
}

// links are the attachments of XDP programs to ports.
type links []link.Link

func (l *links) attach(port netns.Link, program *ebpf.Program) error {
	attached, err := port.AttachXDP(program, link.XDPDriverMode)
	if err == nil {
		*l = append(*l, attached)
	}
	return err
}

func (l links) close() error {
	var errs []error
	for _, attached := range l {
		errs = append(errs, attached.Close())
	}
	return errors.Join(errs...)
}
