package bpf

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// passAtTheFarEnd lets the far end of addVeth's veth run an XDP program.
func passAtTheFarEnd(t *testing.T) {
	t.Helper()
	far, err := netlink.LinkByName("rc1")
	fatal(t, err)
	prog, err := newProbe(0, asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	fatal(t, err)
	t.Cleanup(func() { prog.Close() })
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: far.Attrs().Index, Flags: link.XDPDriverMode})
	fatal(t, err)
	t.Cleanup(func() { l.Close() })
}

// A veth takes redirected frames once its far end runs an XDP program, and refuses them before.
func TestProbeTransmit(t *testing.T) {
	enterNamespace(t)
	near := addVeth(t)
	if err := ProbeTransmit(near); !errors.Is(err, ErrRefuses) {
		t.Fatalf("a veth without XDP or GRO at its far end: %v", err)
	}
	passAtTheFarEnd(t)
	fatal(t, ProbeTransmit(near))
}

// Frames that another thread redirects meanwhile say nothing about the probe: the data path does so
// all the time.
func TestTheProbeCountsFramesOfItsThread(t *testing.T) {
	enterNamespace(t)
	near := addVeth(t)
	passAtTheFarEnd(t)
	seen, stop, err := watchTransmit()
	fatal(t, err)
	defer stop()
	counted := func() (n uint64) {
		t.Helper()
		fatal(t, seen.Lookup(uint32(0), &n))
		return n
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	fatal(t, err)
	defer namespace.Close()
	sent := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends, because it cannot go back
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			sent <- err
			return
		}
		sent <- sendProbe(near)
	}()
	fatal(t, <-sent)
	if n := counted(); n != 0 {
		t.Errorf("%d frames of another thread are counted", n)
	}
	fatal(t, sendProbe(near))
	if n := counted(); n != 1 {
		t.Errorf("%d frames are counted, want 1", n)
	}
}
