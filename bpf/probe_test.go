package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// A veth takes redirected frames once its far end runs an XDP program, and refuses them before.
func TestProbeTransmit(t *testing.T) {
	enterNamespace(t)
	near := addVeth(t)
	if err := ProbeTransmit(near); !errors.Is(err, ErrRefuses) {
		t.Fatalf("a veth without XDP or GRO at its far end: %v", err)
	}
	far, err := netlink.LinkByName("rc1")
	fatal(t, err)
	prog, err := newProbe(0, asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	fatal(t, err)
	defer prog.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: far.Attrs().Index, Flags: link.XDPDriverMode})
	fatal(t, err)
	defer l.Close()
	fatal(t, ProbeTransmit(near))
}
