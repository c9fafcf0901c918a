// Package lossy makes a link lose RoCE packets in both directions, at random from a seed, of
// IPv4 and IPv6, with a VLAN tag and without. Two small programs at one end of the link do so: XDP
// for packets that arrive, tc for packets that leave. Other traffic passes.
//
// The loss is random, and not every Nth packet: a source that resends rounds of a fixed length
// would lose the same packet each time.
package lossy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// Link is a link that loses packets until it is closed.
type Link struct {
	in, out *direction
	xdp     link.Link
}

// dice is the only entry of the map. A packet is lost if the next number of a generator is not
// above the threshold. The generator (xorshift32) makes every number but 0.
type dice struct {
	State     uint32
	Threshold uint32
	Passed    uint64
	Lost      uint64
}

type direction struct {
	dice    *ebpf.Map
	program *ebpf.Program
}

// Attach makes the link lose perMillion of a million RoCE packets in each direction, at the given
// end.
func Attach(end netns.Link, seed uint32, perMillion int) (*Link, error) {
	return attach(end, seed, perMillion, false)
}

// AttachToAll is Attach for a link that loses IP packets of all protocols.
func AttachToAll(end netns.Link, seed uint32, perMillion int) (*Link, error) {
	return attach(end, seed, perMillion, true)
}

func attach(end netns.Link, seed uint32, perMillion int, all bool) (l *Link, err error) {
	if perMillion < 0 || perMillion > 1_000_000 {
		return nil, fmt.Errorf("make %s lossy: %d packets of a million cannot be lost", end.Name, perMillion)
	}
	l = &Link{}
	if l.in, err = newDirection(ebpf.XDP, seed, perMillion, all); err != nil {
		return nil, err
	}
	if l.out, err = newDirection(ebpf.SchedCLS, seed^0x5bd1e995, perMillion, all); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if l.xdp, err = end.AttachXDP(l.in.program, link.XDPDriverMode); err == nil {
		err = attachEgress(end, l.out.program)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make %s lossy: %w", end.Name, err), l.Close())
	}
	return l, nil
}

// attachEgress uses a classic tc filter, because tcx links need kernel 6.6. The filter is removed
// together with the interface.
func attachEgress(end netns.Link, program *ebpf.Program) error {
	nl := end.NS.Netlink()
	err := nl.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: end.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil {
		return err
	}
	return nl.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: end.Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: program.FD(), Name: "rocast-lossy", DirectAction: true,
	})
}

// Lose changes how many packets of a million the link loses in each direction.
func (l *Link) Lose(perMillion int) error { return l.LoseEach(perMillion, perMillion) }

// LoseEach changes how many packets of a million the link loses on their way to its end, and from
// its end.
func (l *Link) LoseEach(in, out int) error {
	var errs []error
	for i, d := range []*direction{l.in, l.out} {
		v, err := d.read()
		v.Threshold = threshold([]int{in, out}[i])
		errs = append(errs, err, d.dice.Put(uint32(0), v))
	}
	return errors.Join(errs...)
}

func threshold(perMillion int) uint32 { return uint32(uint64(perMillion) * math.MaxUint32 / 1_000_000) }

// Lost returns how many packets the link lost on their way to its end, and from its end.
func (l *Link) Lost() (in, out uint64, err error) {
	a, errIn := l.in.read()
	b, errOut := l.out.read()
	return a.Lost, b.Lost, errors.Join(errIn, errOut)
}

// Passed returns how many packets reached the link's end, and how many left it.
func (l *Link) Passed() (in, out uint64, err error) {
	a, errIn := l.in.read()
	b, errOut := l.out.read()
	return a.Passed, b.Passed, errors.Join(errIn, errOut)
}

// Close makes the link lossless again.
func (l *Link) Close() error {
	var errs []error
	if l.xdp != nil {
		errs = append(errs, l.xdp.Close())
	}
	for _, d := range []*direction{l.in, l.out} {
		if d != nil {
			errs = append(errs, d.program.Close(), d.dice.Close())
		}
	}
	return errors.Join(errs...)
}

func (d *direction) read() (v dice, err error) {
	err = d.dice.Lookup(uint32(0), &v)
	return v, err
}

func newDirection(kind ebpf.ProgramType, seed uint32, perMillion int, all bool) (*direction, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	// The state must not be 0, and small seeds must not begin with small numbers.
	state := seed*2654435761 | 1
	if err := m.Put(uint32(0), dice{State: state, Threshold: threshold(perMillion)}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: kind, License: "Dual BSD/GPL", Instructions: instructions(kind, m.FD(), all), Flags: fragsFlag(kind),
	})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &direction{m, p}, nil
}

func fragsFlag(kind ebpf.ProgramType) uint32 {
	if kind == ebpf.XDP {
		return unix.BPF_F_XDP_HAS_FRAGS
	}
	return 0
}

// What the programs look for, as loaded little-endian. The flags and the fragment offset of an IPv4
// header are not looked at: no NIC fragments RoCE.
const (
	roceDstPort   = 0xb712
	etherTypeIPv4 = 0x0008
	etherTypeIPv6 = 0xdd86
	etherTypeVLAN = 0x0081
	protocolUDP   = 17
)

// instructions throws the dice for packets to UDP port 4791, of IPv4 without options and of IPv6
// without extension headers, with or without a VLAN tag. All others pass, unless all IP packets are
// meant.
func instructions(kind ebpf.ProgramType, mapFD int, all bool) asm.Instructions {
	data, dataEnd, pass, drop := int16(0), int16(4), int32(2), int32(1) // struct xdp_md, XDP_PASS, XDP_DROP
	if kind == ebpf.SchedCLS {
		data, dataEnd, pass, drop = 76, 80, 0, 2 // struct __sk_buff, TC_ACT_OK, TC_ACT_SHOT
	}
	etherType := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, dataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 42),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R5, etherTypeVLAN, "untagged"),
		asm.LoadMem(asm.R5, asm.R2, 16, asm.Half),
		asm.Add.Imm(asm.R2, 4), // what follows the tag is where it is in an untagged frame
	}
	match := asm.Instructions{
		asm.JEq.Imm(asm.R5, etherTypeIPv6, "IPv6").WithSymbol("untagged"),
		asm.JNE.Imm(asm.R5, etherTypeIPv4, "pass"),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 42),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 23, asm.Byte),
		asm.JNE.Imm(asm.R5, protocolUDP, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 36, asm.Half),
		asm.Ja.Label("port"),

		asm.Mov.Reg(asm.R4, asm.R2).WithSymbol("IPv6"),
		asm.Add.Imm(asm.R4, 62),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 20, asm.Byte),
		asm.JNE.Imm(asm.R5, protocolUDP, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 56, asm.Half),

		asm.JNE.Imm(asm.R5, roceDstPort, "pass").WithSymbol("port"),
	}
	if all {
		match = asm.Instructions{
			asm.JEq.Imm(asm.R5, etherTypeIPv6, "dice").WithSymbol("untagged"),
			asm.JNE.Imm(asm.R5, etherTypeIPv4, "pass"),
		}
	}
	throw := asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("dice"),
		asm.LoadMapPtr(asm.R1, mapFD),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),

		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word), // xorshift32
		asm.Mov.Reg32(asm.R2, asm.R1), asm.LSh.Imm32(asm.R2, 13), asm.Xor.Reg32(asm.R1, asm.R2),
		asm.Mov.Reg32(asm.R2, asm.R1), asm.RSh.Imm32(asm.R2, 17), asm.Xor.Reg32(asm.R1, asm.R2),
		asm.Mov.Reg32(asm.R2, asm.R1), asm.LSh.Imm32(asm.R2, 5), asm.Xor.Reg32(asm.R1, asm.R2),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.Word),
		asm.LoadMem(asm.R2, asm.R0, 4, asm.Word),
		asm.Mov.Imm(asm.R3, 1),
		asm.JLE.Reg(asm.R1, asm.R2, "lose"),
		asm.AddAtomic.Mem(asm.R0, asm.R3, asm.DWord, 8),
		asm.Ja.Label("pass"),

		asm.AddAtomic.Mem(asm.R0, asm.R3, asm.DWord, 16).WithSymbol("lose"),
		asm.Mov.Imm(asm.R0, drop),
		asm.Return(),

		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return(),
	}
	return slices.Concat(etherType, match, throw)
}
