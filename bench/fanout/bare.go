package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane/xsk"
)

// startBare replicates the frames of port 0 with the product's rings and nothing else. It has no
// classifier, and it neither reads nor writes a byte of a frame.
func startBare(b *bed) (stop func() error, err error) {
	f := &bare{ended: make(chan struct{})}
	if err := b.box.Do(func() error { return f.open(b) }); err != nil {
		return nil, errors.Join(err, f.close())
	}
	go func() {
		defer close(f.ended)
		_ = b.box.Do(func() error { f.run(); return nil })
	}()
	return func() error {
		f.quit.Store(true)
		<-f.ended
		return f.close()
	}, nil
}

type bare struct {
	quit    atomic.Bool
	ended   chan struct{}
	umem    *xsk.UMEM
	sockets []*xsk.Socket
	xsks    *ebpf.Map
	program *ebpf.Program
	link    link.Link
}

func (f *bare) open(b *bed) (err error) {
	if f.umem, err = xsk.NewUMEM(4 * 2048); err != nil {
		return err
	}
	for _, p := range b.ports {
		s, err := xsk.Open(f.umem, p.Index, 0, xsk.SocketConfig{
			Mode: xsk.ModeCopy, MultiBuffer: b.payload > 1024, TxOnly: p.Index != b.ports[0].Index,
		})
		if err != nil {
			return fmt.Errorf("port %s: %w", p.Name, err)
		}
		f.sockets = append(f.sockets, s)
	}
	f.xsks, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	f.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS, Instructions: asm.Instructions{
			asm.LoadMapPtr(asm.R1, f.xsks.FD()),
			asm.Mov.Imm(asm.R2, 0),
			asm.Mov.Imm(asm.R3, 2), // XDP_PASS without a socket
			asm.FnRedirectMap.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		return err
	}
	if f.link, err = b.ports[0].AttachXDP(f.program, link.XDPDriverMode); err != nil {
		return err
	}
	return f.xsks.Put(uint32(0), uint32(f.sockets[0].FD()))
}

// run replicates in place, as the product does: it lends the received chunks to one port after the
// other.
func (f *bare) run() {
	const descsAtOnce = 64
	descs := make([]xsk.Desc, descsAtOnce)
	in := f.sockets[0]
	for !f.quit.Load() {
		n := in.Receive(descs)
		for _, out := range f.sockets[1:] {
			if n > 0 {
				out.Transmit(descs[:n])
				_, _ = out.Flush(time.Millisecond)
			}
		}
		in.Recycle(descs[:n])
	}
}

func (f *bare) close() error {
	var errs []error
	if f.link != nil {
		errs = append(errs, f.link.Close())
	}
	for _, s := range f.sockets {
		errs = append(errs, s.Close())
	}
	if f.umem != nil {
		errs = append(errs, f.umem.Close())
	}
	if f.program != nil {
		errs = append(errs, f.program.Close())
	}
	if f.xsks != nil {
		errs = append(errs, f.xsks.Close())
	}
	return errors.Join(errs...)
}
