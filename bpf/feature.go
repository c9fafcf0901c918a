package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Feature is a kernel feature that the classifier needs. It is detected by trying it. The zero
// value is not useful: see Features.
type Feature struct {
	Name  string
	Since string // the kernel version that introduced it
	probe func() error

	mu     sync.Mutex
	done   bool
	result error
}

// Check tries the feature. The result is nil if the kernel has the feature, and wraps
// [ebpf.ErrNotSupported] if it does not; both results are kept. Any other error means that the
// feature could not be tried, for example because a privilege is missing.
func (f *Feature) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return f.result
	}
	err := f.probe()
	switch {
	case err == nil:
		f.done = true
		return nil
	case errors.Is(err, ebpf.ErrNotSupported):
		f.done = true
		f.result = fmt.Errorf("%s needs a kernel >= %s: %w", f.Name, f.Since, ebpf.ErrNotSupported)
		return f.result
	}
	return fmt.Errorf("try %s: %w", f.Name, err)
}

var (
	xdpMetadata = &Feature{Name: "XDP metadata", Since: "4.15", probe: func() error {
		return features.HaveProgramHelper(ebpf.XDP, asm.FnXdpAdjustMeta)
	}}
	socketMap = &Feature{Name: "XDP redirect to AF_XDP sockets or else to the kernel",
		Since: "5.3", probe: probeSocketMap}
	xdpLink     = &Feature{Name: "XDP bpf_link", Since: "5.9", probe: probeLink}
	multiBuffer = &Feature{Name: "XDP multi-buffer", Since: "5.18", probe: probeMultiBuffer}
)

// Features lists what the classifier needs of the kernel, oldest first. What it needs of a driver
// shows only when it is attached.
func Features() []*Feature {
	return []*Feature{xdpMetadata, socketMap, xdpLink, multiBuffer}
}

// probeSocketMap runs a redirect through an empty map. Kernels that do not know the fallback action
// in the flags return XDP_ABORTED.
func probeSocketMap() error {
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if errors.Is(err, unix.EINVAL) {
		return ebpf.ErrNotSupported
	}
	if err != nil {
		return err
	}
	defer sockets.Close()
	prog, err := newProbe(0,
		asm.LoadMapPtr(asm.R1, sockets.FD()),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, xdpPass),
		asm.FnRedirectMap.Call(),
		asm.Return(),
	)
	if err != nil {
		return err
	}
	defer prog.Close()
	action, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err == nil && action != xdpPass {
		err = ebpf.ErrNotSupported
	}
	return err
}

// probeLink attaches to the loopback of a new network namespace, so that no interface in use is
// touched.
func probeLink() error {
	prog, err := newProbe(0, asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	if err != nil {
		return err
	}
	defer prog.Close()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its namespace end with this goroutine
		const loopback = 1
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("make a network namespace (needs CAP_SYS_ADMIN): %w", err)
			return
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: loopback, Flags: link.XDPGenericMode})
		if err != nil {
			result <- notSupportedIfInvalid(err)
			return
		}
		result <- l.Close()
	}()
	return <-result
}

func probeMultiBuffer() error {
	prog, err := newProbe(unix.BPF_F_XDP_HAS_FRAGS, asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	if err != nil {
		return notSupportedIfInvalid(err)
	}
	return prog.Close()
}

const xdpPass = 2

func newProbe(flags uint32, insns ...asm.Instruction) (*ebpf.Program, error) {
	return ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name:         "rocast_probe",
		Type:         ebpf.XDP,
		Flags:        flags,
		Instructions: insns,
		License:      "Dual BSD/GPL",
	}, ebpf.ProgramOptions{LogDisabled: true})
}

// notSupportedIfInvalid turns EINVAL, the kernel's answer to what it does not know, into
// [ebpf.ErrNotSupported].
func notSupportedIfInvalid(err error) error {
	if errors.Is(err, unix.EINVAL) {
		return ebpf.ErrNotSupported
	}
	return err
}
