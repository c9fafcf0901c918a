package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/netns"
)

const receivers = 3

// bed is the topology: a box with four ports, a source and three receivers, each in a namespace of
// its own.
type bed struct {
	payload int
	mtu     int
	box     *netns.NS
	hosts   []*netns.NS // source, then receivers
	ports   []netns.Link
	ends    []netns.Link // the hosts' side
	sinks   []*sink
}

func newBed(payload int) (*bed, error) {
	b := &bed{payload: payload, mtu: 1500}
	if payload > 1024 {
		b.mtu = 4200
	}
	if err := b.open(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bed) open() (err error) {
	if b.box, err = netns.Create(); err != nil {
		return err
	}
	for i := range 1 + receivers {
		host, err := netns.Create()
		if err != nil {
			return err
		}
		b.hosts = append(b.hosts, host)
		port, end, err := netns.CreateVeth(b.box, fmt.Sprintf("p%d", i), host, "eth0", netns.VethOptions{MTU: b.mtu})
		if err != nil {
			return err
		}
		b.ports, b.ends = append(b.ports, port), append(b.ends, end)
	}
	for i := range receivers {
		s, err := newSink(b.ends[1+i])
		if err != nil {
			return err
		}
		b.sinks = append(b.sinks, s)
	}
	return nil
}

func (b *bed) close() error {
	var errs []error
	for _, s := range b.sinks {
		errs = append(errs, s.close())
	}
	for _, ns := range b.hosts {
		errs = append(errs, ns.Close())
	}
	if b.box != nil {
		errs = append(errs, b.box.Close())
	}
	return errors.Join(errs...)
}

// received returns how many copies have arrived at the receivers, all together.
func (b *bed) received() (sum uint64, err error) {
	for _, s := range b.sinks {
		n, err := s.count()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// awaitCopies returns when every receiver has received enough copies to know that the forwarder
// works.
func (b *bed) awaitCopies() error {
	const warm = 10_000
	deadline := time.Now().Add(5 * time.Second)
	for _, s := range b.sinks {
		for {
			n, err := s.count()
			if err != nil {
				return err
			}
			if n >= warm {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("a receiver got %d copies in 5 s", n)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// sink counts the frames that arrive at a receiver, and drops them in XDP. No receiver costs less,
// and it is the same for every contestant.
type sink struct {
	counts  *ebpf.Map
	program *ebpf.Program
	link    link.Link
}

func newSink(end netns.Link) (s *sink, err error) {
	s = &sink{}
	s.counts, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	s.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS, Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, s.counts.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "drop"),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("drop"), // XDP_DROP
			asm.Return(),
		},
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.link, err = end.AttachXDP(s.program, link.XDPDriverMode); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *sink) count() (sum uint64, err error) {
	var perCPU []uint64
	if err := s.counts.Lookup(uint32(0), &perCPU); err != nil {
		return 0, err
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

func (s *sink) close() error {
	var errs []error
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	if s.program != nil {
		errs = append(errs, s.program.Close())
	}
	return errors.Join(append(errs, s.counts.Close())...)
}
