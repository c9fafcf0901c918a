package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrRefuses says that the driver of an interface drops the frames that XDP redirects to it.
var ErrRefuses = errors.New("its driver drops frames that XDP redirects to it; if it is a veth, " +
	"switch GRO on at its far end (ethtool -K IFACE gro on), or attach an XDP program there")

// probeFrame returns a frame that disturbs no network: bridges do not forward its destination MAC
// (IEEE 802.1Q, 8.6.3), and its EtherType is reserved for local experiments (IEEE 802, 9.2.3).
func probeFrame() []byte {
	frame := make([]byte, 60)
	copy(frame, []byte{0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E, 0x02, 0, 0, 0, 0, 0, 0x88, 0xB5})
	return frame
}

// ProbeTransmit sends one frame to an interface in the way that fan-out does. It returns nil if the
// driver takes the frame, and [ErrRefuses] if the driver drops it. No counter of the interface
// shows the difference, so ProbeTransmit reads the kernel's tracepoint xdp_devmap_xmit. Like
// OpenPort it works in the calling thread's network namespace.
func ProbeTransmit(ifindex int) error {
	runtime.LockOSThread() // the program at the tracepoint counts only frames of this thread
	defer runtime.UnlockOSThread()
	seen, stop, err := watchTransmit()
	if err != nil {
		return fmt.Errorf("watch a probe frame: %w", explain(err))
	}
	defer stop()
	if err := sendProbe(ifindex); err != nil {
		return fmt.Errorf("send a probe frame: %w", err)
	}
	var result [8]byte
	if err := seen.Lookup(uint32(0), &result); err != nil {
		return fmt.Errorf("read what became of a probe frame: %w", err)
	}
	if sent := binary.NativeEndian.Uint64(result[:]); sent == 0 {
		return ErrRefuses
	}
	return nil
}

// watchTransmit counts, in sent, the frames that drivers take from the calling thread until stop.
func watchTransmit() (sent *ebpf.Map, stop func(), err error) {
	sent, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, nil, err
	}
	thread := int64(os.Getpid())<<32 | int64(unix.Gettid())
	const argSent = 2 * 8 // offset among the arguments from_dev, to_dev, sent, drops, err (docs/wire.md#sources)
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name: "rocast_probe_tx", Type: ebpf.RawTracepoint, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.FnGetCurrentPidTgid.Call(),
			asm.LoadImm(asm.R1, thread, asm.DWord),
			asm.JNE.Reg(asm.R0, asm.R1, "out"),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, sent.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.LoadMem(asm.R1, asm.R6, argSent, asm.DWord),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return nil, nil, errors.Join(err, sent.Close())
	}
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "xdp_devmap_xmit", Program: prog})
	if err != nil {
		return nil, nil, errors.Join(err, prog.Close(), sent.Close())
	}
	return sent, func() { l.Close(); prog.Close(); sent.Close() }, nil
}

func sendProbe(ifindex int) error {
	prog, err := newProbe(0,
		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	)
	if err != nil {
		return err
	}
	defer prog.Close()
	_, err = prog.Run(&ebpf.RunOptions{Data: probeFrame(), Repeat: 1, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("live frames need a kernel >= 5.18: %w", ebpf.ErrNotSupported)
	}
	return err
}
