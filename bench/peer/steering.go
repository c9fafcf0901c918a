package peer

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// steering redirects every frame of the source's port to the AF_XDP socket of its queue, with the
// shortest program that does so.
type steering struct {
	sockets *ebpf.Map
	program *ebpf.Program
	link    link.Link
}

func newSteering(s Setting) (*steering, error) {
	t := &steering{}
	if err := t.open(s); err != nil {
		return nil, errors.Join(fmt.Errorf("steer frames to AF_XDP: %w", err), t.close())
	}
	return t, nil
}

func (t *steering) open(s Setting) (err error) {
	const xdpPass, offRxQueueIndex = 2, 16
	t.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(s.Workers)})
	if err != nil {
		return err
	}
	t.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS, Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, offRxQueueIndex, asm.Word),
			asm.LoadMapPtr(asm.R1, t.sockets.FD()),
			asm.Mov.Imm(asm.R3, xdpPass), // without a socket
			asm.FnRedirectMap.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		return err
	}
	t.link, err = s.Lab.Ports[0].AttachXDP(t.program, link.XDPDriverMode)
	return err
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
	var errs []error
	if t.link != nil {
		errs = append(errs, t.link.Close())
	}
	if t.program != nil {
		errs = append(errs, t.program.Close())
	}
	if t.sockets != nil {
		errs = append(errs, t.sockets.Close())
	}
	return errors.Join(errs...)
}
