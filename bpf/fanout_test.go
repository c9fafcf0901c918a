package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

// fanBench runs a port's programs on frames that never were on a wire.
type fanBench struct {
	*bench
	fan  *FanOut
	copy *ebpf.Program // rocast_fan_out as a program that can be run
}

const (
	fanGroup = 5
	fanPort  = 3
	fanEpoch = 77
	// fanRetained is how many packets of a group that retains are kept.
	fanRetained = 8
)

func testTables() Tables {
	return Tables{CRC: roce.CRCTables(), Operator: func(words int) *[4][256]uint32 { return roce.Operator(4 * words) }}
}

func newFanBench(t *testing.T) *fanBench {
	t.Helper()
	c, err := LoadFanOut(testTables(), 2*fanRetained)
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_BPF and CAP_NET_ADMIN")
	}
	fatal(t, err)
	t.Cleanup(func() { fatal(t, c.Close()) })
	enterNamespace(t)
	p := unattached(t, c, fanPort)
	fatal(t, p.SetSocket(0, openSocket(t, loopback).fd))
	b := &fanBench{bench: &bench{c, p}, fan: c.FanOut()}
	b.copy = copyProgram(t, c)
	fatal(t, b.fan.PutFan(0, nil))
	fatal(t, b.fan.sendBy(&Port{ifindex: loopback, number: fanPort + 1}))
	return b
}

// copyProgram is rocast_fan_out as a program that can be run.
func copyProgram(t *testing.T, c *Classifier) *ebpf.Program {
	t.Helper()
	var objs struct {
		Copy *ebpf.Program `ebpf:"rocast_fan_out_test"`
	}
	loadSome(t, c, 1, &objs)
	t.Cleanup(func() { fatal(t, objs.Copy.Close()) })
	return objs.Copy
}

// loadSome loads programs of fan-out that use the maps of c.
func loadSome(t *testing.T, c *Classifier, mergesAnswers uint32, to any) {
	t.Helper()
	spec, err := loadPrograms()
	fatal(t, err)
	spec.Maps[programsMapRetained].MaxEntries = c.fan.maps.Retained.MaxEntries()
	fatal(t, spec.Variables[programsVarMergesAnswers].Set(mergesAnswers))
	fatal(t, spec.LoadAndAssign(to, &ebpf.CollectionOptions{MapReplacements: c.fan.with(c.share(spec, c.maps.Groups))}))
}
func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flow has the addresses and numbers of a test group.
type flow struct {
	in, out roce.Flow
	tclass  uint8
	l2      []byte
	tags    []byte // of the packets: VLAN tags
	keeps   uint8  // of the tags of l2
	delta   int32
	at      int // the region's place among those of the group
	region  Region
	target  roce.Target
	edit    roce.Edit
}

// Region is a memory region of the source, and its place at a receiver.
type Region struct {
	fromVA, length, toVA uint64
	fromKey, toKey       uint32
}

func newFlow(ipv6 bool, l2 []byte) *flow {
	f := &flow{
		in:     roce.Flow{Src: hostA, Dst: groupIP, DestQPN: groupQPN},
		out:    roce.Flow{Src: groupIP, Dst: netip.MustParseAddr("10.77.9.9"), DestQPN: 0xABCDEF},
		tclass: 0x28, l2: l2, delta: 0x123456,
		region: Region{fromVA: 0x10000, length: 1 << 20, fromKey: 0x77, toVA: 0x7FFF_FFFF_FFF0, toKey: 0x1234},
	}
	if ipv6 {
		f.in = roce.Flow{Src: hostA6, Dst: group6, DestQPN: groupQPN}
		f.out = roce.Flow{Src: group6, Dst: netip.MustParseAddr("fd77::9:9"), DestQPN: 0xABCDEF}
	}
	r := f.region
	f.target = roce.NewTarget(r.fromVA, r.fromKey, r.toVA, r.toKey)
	f.edit = roce.NewEdit(f.in, f.out, l2)
	return f
}

// packet is a packet of the flow with a right ICRC.
func (f *flow) packet(o roce.Opcode, psn roce.PSN, payload int) []byte {
	ip := roce.IPUDP{Src: f.in.Src, Dst: f.in.Dst, HopLimit: 64, SrcPort: 0xC123, TrafficClass: f.tclass | 2}
	bth := roce.BTH{Opcode: o, PKey: 0xFFFF, DestQPN: f.in.DestQPN, AckReq: true, PSN: psn, PadCount: roce.PadFor(payload)}
	body := make([]byte, 0, 5000)
	if o.Headers().Has(roce.HasRETH) {
		reth := roce.RETH{VA: f.region.fromVA + 24, RKey: f.region.fromKey, DMABytes: uint32(max(payload, 1))}
		body = reth.Append(body)
	}
	if o.Headers().Has(roce.HasImmDt) {
		body = append(body, 1, 2, 3, 4)
	}
	for i := range payload {
		body = append(body, byte(i*7))
	}
	body = append(body, make([]byte, bth.PadCount)...)
	b := roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, 2}, roce.MAC{2, 0, 0, 0, 0, 1}, ip.EtherType())
	b = append(bth.Append(ip.Append(b, roce.BTHBytes+len(body))), body...)
	b, err := roce.AppendICRC(b)
	if err != nil {
		panic(err)
	}
	return slices.Insert(b, 12, f.tags...)
}

// want returns the copy that roce.Edit makes. The tests of roce compare that with one that is made
// field by field.
func (f *flow) want(t *testing.T, frame []byte) []byte {
	t.Helper()
	b := append(slices.Clone(f.l2), frame[14+len(f.tags):]...)
	for i := 14; i < len(f.l2) && len(f.tags) > 0; i += 4 {
		if f.keeps&(1<<(i/4-3)) != 0 {
			b[i] |= f.tags[2] & 0xE0
		}
	}
	var v roce.View
	fatal(t, v.Decode(b, len(b)))
	var o roce.Original
	o.Read(&v, [][]byte{b})
	var target *roce.Target
	if v.Opcode.Headers().Has(roce.HasRETH) {
		target = &f.target
	}
	o.PutICRC(b, f.edit.Apply(b, v.PSN(b).Add(f.delta), target, &o))
	return b
}

// arm arms the flow's group; psn is the next packet. The group has n paths, all behind the bench's
// port; the path of the flow is the last one.
func (b *fanBench) arm(f *flow, psn roce.PSN, n int) {
	slot, paths := b.fan.Slot(fanGroup), b.fan.Paths(fanGroup)
	*slot = Slot{
		Limit: uint32(psn.Add(100)), Group: fanGroup, Fan: 0, Ingress: loopback,
		Src: wordsOf(f.in.Src), Dst: wordsOf(f.in.Dst), Qpn: uint32(f.in.DestQPN), Pkey: 0xFFFF, TrafficClass: f.tclass,
		Mtu: 4096, RegionCount: uint8(f.at + 1),
	}
	if f.in.Dst.Is6() {
		slot.Ipv6 = 1
	}
	for i, n := 0, 0; i < len(f.tags); i += 4 {
		if tag := binary.BigEndian.Uint32(f.tags[i:]); tag&0xFFF != 0 {
			slot.Vlans[n] = tag &^ 0xF000
			n++
		}
	}
	r := &slot.Regions[f.at]
	r.Va, r.Length, r.Rkey = f.region.fromVA, f.region.length, f.region.fromKey
	slot.Copies[fanPort].First, slot.Copies[fanPort].Count = 2, uint8(n)
	p := &paths[2+n-1]
	*p = Path{Crc: f.edit.CRC, Qpn: uint32(f.edit.DestQPN), DeltaPsn: uint32(f.delta), Checksum: f.edit.Checksum, L2Bytes: f.edit.L2Bytes, L2: f.edit.L2, Keeps: f.keeps}
	for i := range p.Addresses {
		p.Addresses[i] = binary.NativeEndian.Uint32(f.edit.Addresses[4*i:])
	}
	p.Targets[f.at].DeltaVa, p.Targets[f.at].Rkey, p.Targets[f.at].Crc = f.target.DeltaVA, f.target.RKey, f.edit.CRCWith(&f.target)
	b.fan.Word(fanGroup).Store(uint64(psn) | 1<<49 | fanEpoch<<50)
}

// retain makes the armed group retain packets, as many as entries says, in the second part of the
// map.
func (b *fanBench) retain(entries uint32) {
	slot := b.fan.Slot(fanGroup)
	slot.RetainedFirst, slot.RetainedPackets = fanRetained, entries
}

// retained returns the packet that the group retained; nil: it has not.
func (b *fanBench) retained(psn roce.PSN) []byte {
	slot := b.fan.Slot(fanGroup)
	head, rest := b.fan.Retained(fanGroup, int(slot.RetainedFirst)+int(psn)%fanRetained<<slot.Wide, uint32(psn))
	if head == nil {
		return nil
	}
	return slices.Concat(head, rest)
}

func wordsOf(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// classify runs the classifier and returns what it left of the frame.
func (b *fanBench) classify(t *testing.T, frame []byte) (Verdict, []byte) {
	t.Helper()
	before := counters(t, b.c)
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1}
	_, err := b.c.classify().Run(&opts)
	fatal(t, err)
	return b.onlyVerdict(t, before), opts.DataOut
}

func (b *fanBench) run(t *testing.T, tagged []byte) (action uint32, out []byte) {
	t.Helper()
	opts := ebpf.RunOptions{Data: tagged, DataOut: make([]byte, len(tagged)+256), Repeat: 1}
	action, err := b.copy.Run(&opts)
	fatal(t, err)
	return action, opts.DataOut
}

// Every kind of packet of every length that fits into one buffer is carried. Its copy equals, byte
// for byte, the copy that View's setters make.
func TestCarriedCopies(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	put(t, b.c, Key{Dst: group6, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	plain := roce.AppendEthernet(nil, roce.MAC{2, 9, 9, 9, 9, 9}, roce.MAC{2, 8, 8, 8, 8, 8}, 0x0800)
	opcodes := []roce.Opcode{
		roce.OpSendFirst, roce.OpSendMiddle, roce.OpSendLast, roce.OpSendLastImm, roce.OpSendOnly, roce.OpSendOnlyImm,
		roce.OpWriteFirst, roce.OpWriteMiddle, roce.OpWriteLast, roce.OpWriteLastImm, roce.OpWriteOnly, roce.OpWriteOnlyImm,
	}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		payload := n
		if n >= 100 {
			payload = r.IntN(2049)
		}
		o := opcodes[n%len(opcodes)]
		ipv6 := n/len(opcodes)%2 == 1
		l2 := slices.Clone(plain)
		for range n % 3 {
			l2 = slices.Insert(l2, 12, 0x81, 0x00, 0x00, 0x07)
		}
		if ipv6 {
			copy(l2[len(l2)-2:], []byte{0x86, 0xDD})
		}
		f := newFlow(ipv6, l2)
		f.keeps = uint8(n / 2 % 4)
		f.tags = [][]byte{nil, {0x81, 0, 0x60, 7}, {0x88, 0xA8, 0xBF, 0xFF, 0x81, 0, 0xE0, 1}, {0x81, 0, 0xA0, 0}, {0x81, 0, 0x20, 0, 0x81, 0, 0x40, 9}}[n%5]
		psn := roce.PSN(0xFFFFFF - n%2) // the wrap
		f.at = n % SlotRegions
		b.arm(f, psn, 1)
		b.retain(fanRetained)
		if !o.IsFirst() && !o.IsOnly() {
			b.fan.Word(fanGroup).Or(1 << 48) // inside a message
		}
		frame := f.packet(o, psn, payload)
		setUnchecked(t, frame, byte(n))
		verdict, tagged := b.classify(t, frame)
		if verdict != RedirectFanOut {
			t.Fatalf("%v with %d bytes, IPv6 %v: %v, events %v", o, payload, ipv6, verdict, events(t, b.fan))
		}
		wantWord := uint64(psn.Next()) | 1<<49 | fanEpoch<<50
		if o.EndsMessage() {
			wantWord |= 1 << 24
		} else {
			wantWord |= 1 << 48
		}
		if got := b.fan.Word(fanGroup).Load(); got != wantWord {
			t.Fatalf("%v: word %#x, want %#x", o, got, wantWord)
		}
		if got := b.fan.Payload(fanGroup); got != uint64(payload) {
			t.Fatalf("%v with %d bytes, IPv6 %v: %d bytes are counted", o, payload, ipv6, got)
		}
		if got := b.retained(psn); !bytes.Equal(got, frame) {
			t.Fatalf("%v with %d bytes, IPv6 %v: retained\n%x\n%x", o, payload, ipv6, got, frame)
		}
		action, out := b.run(t, tagged)
		if want := f.want(t, frame); action != actionPass || !bytes.Equal(out, want) {
			t.Fatalf("%v with %d bytes, IPv6 %v: action %d\n%x\n%x", o, payload, ipv6, action, out, want)
		}
	}
}

// setUnchecked sets what a packet may have beside its fields: a UDP checksum, and the bits of the
// BTH next to the QPN and the PSN.
func setUnchecked(t *testing.T, frame []byte, value byte) {
	t.Helper()
	var v roce.View
	fatal(t, v.Decode(frame, len(frame)))
	frame[v.BTH-1], frame[v.BTH+4] = value, 0xC0
	frame[v.BTH+8] |= 0x2A
	v.PutICRC([][]byte{frame}, v.ComputeICRC([][]byte{frame}))
}

func events(t *testing.T, f *FanOut) map[string]uint64 {
	t.Helper()
	sum, err := f.Events()
	fatal(t, err)
	m := map[string]uint64{}
	for e, n := range sum {
		if n > 0 {
			m[FanEvent(e).String()] = n
		}
	}
	return m
}

// moved returns the events since before.
func movedEvents(before, after map[string]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for e, n := range after {
		if n > before[e] {
			m[e] = n - before[e]
		}
	}
	return m
}

// One packet is plain, and each row changes one thing of it. A packet that is not plain disarms the
// group, is counted under its reason, and reaches user space unchanged.
func TestEverythingElseDisarms(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	const psn, payload = 0x000042, 64
	l2 := roce.AppendEthernet(nil, roce.MAC{2, 9, 9, 9, 9, 9}, roce.MAC{2, 8, 8, 8, 8, 8}, 0x0800)
	const l3, udp, bth, reth = 14, 34, 42, 54
	const window = 1 << 21 // feedback.Window
	set := func(at int, value byte) func([]byte, *Slot) { return func(f []byte, _ *Slot) { f[at] = value } }
	follows := func(limit, told, span int32, epoch uint64) func([]byte, *Slot) { // merging has been ended meanwhile
		return func(_ []byte, s *Slot) {
			s.Limit, s.Span, s.Told = uint32(limit)&0xFFFFFF, uint32(span), uint64(told)&0xFFFFFF|epoch<<50
		}
	}
	for _, tt := range []struct {
		name   string
		opcode roce.Opcode
		change func(frame []byte, s *Slot)
		want   string // "": carried
	}{
		{"plain", roce.OpWriteOnly, func([]byte, *Slot) {}, ""},
		{"ECN marked", roce.OpWriteOnly, func(f []byte, _ *Slot) { f[l3+1] |= 3 }, ""},
		{"the last PSN within the limit", roce.OpWriteOnly, func(_ []byte, s *Slot) { s.Limit = psn }, ""},
		{"no memory named", roce.OpWriteOnly, func(_ []byte, s *Slot) { s.RegionCount = 0 }, ""},
		{"Ethernet padding", roce.OpSendOnly, nil, ""},
		{"PSN ahead", roce.OpWriteOnly, set(bth+11, 0x43), "disarmed_psn"},
		{"PSN behind", roce.OpWriteOnly, set(bth+11, 0x41), "disarmed_psn"},
		{"beyond the limit", roce.OpWriteOnly, func(_ []byte, s *Slot) { s.Limit = psn - 1 }, "disarmed_limit"},
		{"as far beyond what the source was told as it may be", roce.OpWriteOnly, follows(psn-1, psn-5, 5, fanEpoch), ""},
		{"farther beyond that", roce.OpWriteOnly, follows(psn-1, psn-6, 5, fanEpoch), "disarmed_limit"},
		{"beyond what another block was told", roce.OpWriteOnly, follows(psn-1, psn-5, 5, fanEpoch-1), "disarmed_limit"},
		{"as far beyond the limit as it may be", roce.OpWriteOnly, follows(psn-window, psn-5, 5, fanEpoch), ""},
		{"farther beyond the limit", roce.OpWriteOnly, follows(psn-window-1, psn-5, 5, fanEpoch), "disarmed_limit"},
		{"READ", roce.OpWriteOnly, set(bth, byte(roce.OpReadRequest)), "disarmed_header"},
		{"SEND with invalidate", roce.OpSendLastImm, set(bth, byte(roce.OpSendLastInv)), "disarmed_header"},
		{"unknown opcode", roce.OpSendOnly, set(bth, 0x1F), "disarmed_header"},
		{"UD", roce.OpSendOnly, set(bth, byte(roce.OpUDSendOnlyImm)), "disarmed_header"},
		{"transport version", roce.OpWriteOnly, set(bth+1, 1), "disarmed_header"},
		{"P_Key", roce.OpWriteOnly, set(bth+2, 0x7F), "disarmed_header"},
		{"traffic class", roce.OpWriteOnly, set(l3+1, 0x2C), "disarmed_header"},
		{"hop limit", roce.OpWriteOnly, set(l3+8, 1), "disarmed_header"},
		{"IP length", roce.OpWriteOnly, func(f []byte, _ *Slot) { f[l3+3] -= 4 }, "disarmed_header"},
		{"UDP length", roce.OpWriteOnly, func(f []byte, _ *Slot) { f[udp+5] -= 4 }, "disarmed_header"},
		{"lengths beyond the frame", roce.OpWriteOnly, func(f []byte, _ *Slot) { f[l3+3] += 4; f[udp+5] += 4 }, "disarmed_header"},
		{"no whole words", roce.OpWriteOnly, func(f []byte, s *Slot) { f[l3+3] += 2; f[udp+5] += 2 }, "disarmed_header"},
		{"pad without payload", roce.OpSendOnly, nil, "disarmed_header"},
		{"too short for its RETH", roce.OpSendOnly, func(f []byte, _ *Slot) {
			f[bth], f[l3+3], f[udp+5] = byte(roce.OpWriteOnly), 20+8+12+12+4, 8+12+12+4
		}, "disarmed_header"},
		{"more than the path MTU", roce.OpWriteOnly, func(_ []byte, s *Slot) { s.Mtu = payload - 1 }, "disarmed_header"},
		{"no fan", roce.OpWriteOnly, func(_ []byte, s *Slot) { s.Fan = 1 }, "disarmed_fan"},
		{"R_Key", roce.OpWriteOnly, set(reth+11, 0x78), "disarmed_region"},
		{"below the region", roce.OpWriteOnly, set(reth+5, 0), "disarmed_region"},
		{"beyond the region", roce.OpWriteOnly, func(_ []byte, s *Slot) { s.Regions[0].Length = 24 + payload - 1 }, "disarmed_region"},
		{"a WRITE of nothing", roce.OpWriteOnly, set(reth+15, 0), "disarmed_region"},
		{"none of the regions", roce.OpWriteOnly, func(_ []byte, s *Slot) { s.Regions[1] = s.Regions[0]; s.Regions[0].Rkey++ }, "disarmed_region"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFlow(false, l2)
			b.arm(f, psn, 1)
			frame := f.packet(tt.opcode, psn, payload)
			switch {
			case tt.change == nil && tt.want == "":
				frame = append(f.packet(tt.opcode, psn, 0), 0, 0)
			case tt.change == nil:
				frame = f.packet(tt.opcode, psn, 0)
				frame[bth+1] |= 1 << 4
			case tt.name == "no whole words":
				frame = append(frame, 0, 0)
				tt.change(frame, b.fan.Slot(fanGroup))
			default:
				tt.change(frame, b.fan.Slot(fanGroup))
			}
			before := events(t, b.fan)
			verdict, out := b.classify(t, frame)
			happened := movedEvents(before, events(t, b.fan))
			armed := b.fan.Word(fanGroup).Load()&(1<<49) != 0
			if tt.want == "" {
				if verdict != RedirectFanOut || !armed || len(happened) != 0 {
					t.Errorf("%v, armed %v, %v", verdict, armed, happened)
				}
				return
			}
			if verdict != RedirectData || armed || len(happened) != 1 || happened[tt.want] != 1 {
				t.Errorf("%v, armed %v, %v", verdict, armed, happened)
			}
			if !bytes.Equal(out[MetaBytes:], frame) {
				t.Errorf("the frame changed")
			}
		})
	}
}

// A packet that does not come from where the source is, or does not go to where the source sends,
// goes to user space and disarms nothing: neither with the PSN that the group expects, nor with
// another. The source's own packet disarms the group although it comes by another port, where the
// source has several.
func TestAStrangersPacketDisarmsNothing(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	put(t, b.c, Key{Dst: group6, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	const psn = 0x000042
	slot := func(change func(s *Slot)) func([]byte, *Slot) []byte {
		return func(f []byte, s *Slot) []byte { change(s); return f }
	}
	tag := func(tpid uint16, tcis ...byte) func([]byte, *Slot) []byte {
		return func(f []byte, _ *Slot) []byte {
			for _, tci := range tcis {
				f = slices.Insert(f, 12, byte(tpid>>8), byte(tpid), tci, tci&1)
			}
			return f
		}
	}
	for _, tt := range []struct {
		name    string
		change  func(f []byte, s *Slot) []byte
		disarms bool
	}{
		{"source address, word 0", slot(func(s *Slot) { s.Src[0]++ }), false},
		{"source address, word 1", slot(func(s *Slot) { s.Src[1]++ }), false},
		{"source address, word 2", slot(func(s *Slot) { s.Src[2]++ }), false},
		{"source address, word 3", slot(func(s *Slot) { s.Src[3]++ }), false},
		{"destination address, word 0", slot(func(s *Slot) { s.Dst[0]++ }), false},
		{"destination address, word 1", slot(func(s *Slot) { s.Dst[1]++ }), false},
		{"destination address, word 2", slot(func(s *Slot) { s.Dst[2]++ }), false},
		{"destination address, word 3", slot(func(s *Slot) { s.Dst[3]++ }), false},
		{"dest QPN", slot(func(s *Slot) { s.Qpn++ }), false},
		{"address family", slot(func(s *Slot) { s.Ipv6 ^= 1 }), false},
		{"port", slot(func(s *Slot) { s.Ingress = 99 }), false},
		{"port of several", slot(func(s *Slot) { s.Ingress, s.Multipath = 99, 1 }), true},
		{"VLAN", tag(0x8100, 1), false},
		{"VLAN behind a priority", tag(0x8100, 1, 0x60), false},
		{"VLAN in front of a priority", tag(0x88A8, 0x60, 1), false},
	} {
		for _, ipv6 := range []bool{false, true} {
			for _, ahead := range []int32{0, 1, -1} {
				f := newFlow(ipv6, roce.AppendEthernet(nil, roce.MAC{}, roce.MAC{}, 0x0800))
				b.arm(f, psn, 1)
				frame := tt.change(f.packet(roce.OpSendOnly, roce.PSN(psn).Add(ahead), 64), b.fan.Slot(fanGroup))
				before := events(t, b.fan)
				verdict, out := b.classify(t, frame)
				happened := movedEvents(before, events(t, b.fan))
				armed := b.fan.Word(fanGroup).Load() == psn|1<<49|fanEpoch<<50
				if verdict != RedirectData || armed == tt.disarms || len(happened) > 0 != tt.disarms || !bytes.Equal(out[MetaBytes:], frame) {
					t.Errorf("%s, IPv6 %v, %+d: %v, armed %v, %v", tt.name, ipv6, ahead, verdict, armed, happened)
				}
			}
		}
	}
}

// A group retains as many packets as it has entries, and each new packet replaces the oldest.
// Nothing is written outside these entries, and nothing by a group that does not retain.
func TestRetainedPackets(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9, 9, 9, 9, 9}, roce.MAC{2, 8, 8, 8, 8, 8}, 0x0800))
	carry := func(psn roce.PSN, payload int) []byte {
		frame := f.packet(roce.OpSendOnly, psn, payload)
		if verdict, _ := b.classify(t, frame); verdict != RedirectFanOut {
			t.Fatalf("packet %d: %v", psn, verdict)
		}
		return frame
	}
	const first = roce.PSN(0xFFFFFA) // before the wrap
	b.arm(f, first, 1)
	b.retain(fanRetained)
	var sent [][]byte
	for i := range 2*fanRetained - 1 {
		sent = append(sent, carry(first.Add(int32(i)), 300-i)) // each is shorter than the one that it replaces
	}
	for i, frame := range sent {
		switch got := b.retained(first.Add(int32(i))); {
		case i < fanRetained-1 && len(got) > 0:
			t.Errorf("packet %d is still there", i)
		case i >= fanRetained-1 && !bytes.Equal(got, frame):
			t.Errorf("packet %d: %x, want %x", i, got, frame)
		}
	}
	for i := range fanRetained {
		if b.fan.entries()[i].Bytes != 0 {
			t.Errorf("entry %d of another group was written", i)
		}
	}
	next := first.Add(int32(len(sent)))
	b.retain(0)
	carry(next, 64)
	if got := b.retained(next); len(got) > 0 {
		t.Errorf("retained without an entry: %x", got)
	}
}

// A group that is removed and made again may have the addresses, QPNs and PSNs of the one before
// it, and gets its memory. What is retained of the one before is none of its packets, whether it
// was written before the new block or is written late.
func TestARetainedPacketIsOfOneBlock(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9, 9, 9, 9, 9}, roce.MAC{2, 8, 8, 8, 8, 8}, 0x0800))
	const psn = roce.PSN(0xABCDEF)
	word, other := b.fan.Word(fanGroup), b.fan.Word(fanGroup+1)
	for _, epoch := range []uint64{1, 2, 0x2AAA, 0x3FFF} {
		b.arm(f, psn, 1)
		b.retain(fanRetained)
		word.Store(uint64(psn) | 1<<49 | epoch<<50)
		frame := f.packet(roce.OpWriteFirst, psn, 1024)
		if verdict, _ := b.classify(t, frame); verdict != RedirectFanOut {
			t.Fatalf("epoch %d: %v", epoch, verdict)
		}
		if got := b.retained(psn); !bytes.Equal(got, frame) {
			t.Errorf("epoch %d: its packet has %d bytes, want %d", epoch, len(got), len(frame))
		}
		entry := fanRetained + int(psn%fanRetained)
		if got, _ := b.fan.Retained(fanGroup, entry, uint32(psn^fanRetained)); got != nil {
			t.Errorf("epoch %d: another packet has %d bytes", epoch, len(got))
		}
		for _, later := range []uint64{epoch + 1, epoch ^ 0x2000, epoch + 0x100} {
			word.Store(uint64(psn) | 1<<49 | (later&0x3FFF)<<50)
			if got := b.retained(psn); got != nil {
				t.Errorf("epoch %d has the packet of epoch %d", later, epoch)
			}
		}
		other.Store(uint64(psn) | 1<<49 | epoch<<50)
		if got, _ := b.fan.Retained(fanGroup+1, entry, uint32(psn)); got != nil {
			t.Errorf("another slot in epoch %d has the packet", epoch)
		}
	}
}

// The longest frame that can be retained is. A longer one goes to user space, and so does a packet
// whose entry does not exist.
func TestWhatCannotBeRetainedDisarms(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9, 9, 9, 9, 9}, roce.MAC{2, 8, 8, 8, 8, 8}, 0x0800))
	const psn = 5 // not in the last entry: the one behind it is another packet's
	room := (RetainedBytes - len(f.packet(roce.OpSendOnly, psn, 0))) / 4 * 4
	for _, tt := range []struct {
		name    string
		payload int
		entries uint32
		want    Verdict
	}{
		{"the longest", room, fanRetained, RedirectFanOut},
		{"longer", room + 4, fanRetained, RedirectData},
		{"longer, and the group retains nothing", room + 4, 0, RedirectFanOut},
		{"an entry beyond the map", 64, 2 * fanRetained, RedirectFanOut},
		{"an entry beyond the map", 64, 4 * fanRetained, RedirectData},
	} {
		b.arm(f, psn, 1)
		if tt.entries > fanRetained {
			b.arm(f, roce.PSN(tt.entries/2+psn-fanRetained), 1)
		}
		b.retain(tt.entries)
		at := roce.PSN(b.fan.Word(fanGroup).Load() & 0xFFFFFF)
		before := events(t, b.fan)
		frame := f.packet(roce.OpSendOnly, at, tt.payload)
		verdict, _ := b.classify(t, frame)
		if verdict != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, verdict, tt.want)
		}
		if got := movedEvents(before, events(t, b.fan)); (got["disarmed_retain"] == 1) != (tt.want == RedirectData) {
			t.Errorf("%s: events %v", tt.name, got)
		}
		if tt.want == RedirectFanOut && tt.entries == fanRetained && !bytes.Equal(b.retained(at), frame) {
			t.Errorf("%s: not retained", tt.name)
		}
	}
}

// User space sees which carried packet asked for an ACK last. A packet that is not the next one
// does not count.
func TestWhatCarriedPacketsAsk(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9, 9, 9, 9, 9}, roce.MAC{2, 8, 8, 8, 8, 8}, 0x0800))
	const first = roce.PSN(0xFFFFFE)
	b.arm(f, first, 1)
	asked := func(want roce.PSN, some bool) {
		t.Helper()
		if psn, ok := b.fan.Asked(fanGroup); ok != some || ok && roce.PSN(psn) != want {
			t.Errorf("packet %#x asks (%v), want %#x (%v)", psn, ok, want, some)
		}
	}
	asked(0, false)
	for i, asks := range []bool{false, true, false, true, false} {
		psn := first.Add(int32(i))
		frame := f.packet(roce.OpSendOnly, psn, 8)
		if !asks {
			frame[14+20+8+8] &^= 0x80
		}
		if verdict, _ := b.classify(t, frame); verdict != RedirectFanOut {
			t.Fatal(verdict)
		}
		if last := first.Add(int32(i - 1 + i%2)); i > 0 {
			asked(last, true)
		} else {
			asked(0, false)
		}
	}
	b.classify(t, f.packet(roce.OpSendOnly, first.Add(9), 8)) // disarms
	asked(first.Add(3), true)
}

// The same with frames of other lengths and address families.
func TestMoreThatDisarms(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	put(t, b.c, Key{Dst: group6, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	const psn, bth, reth = 0x000042, 42, 54
	type row struct {
		name    string
		ipv6    bool
		payload int
		change  func(f []byte, s *Slot) []byte
		want    string // "": carried
	}
	only := func(change func(s *Slot)) func([]byte, *Slot) []byte {
		return func(f []byte, s *Slot) []byte { change(s); return f }
	}
	rows := []row{
		{"as much as the path MTU", false, 64, only(func(s *Slot) { s.Mtu = 64 }), ""},
		{"the path MTU, and padding", false, 61, only(func(s *Slot) { s.Mtu = 61 }), ""},
		{"IPv6", true, 64, only(func(*Slot) {}), ""},
		{"bytes behind the packet", false, 64, func(f []byte, _ *Slot) []byte { return append(f, 0, 0, 0, 0) }, "disarmed_header"},
		{"cut short of its RETH", false, 0, func(f []byte, _ *Slot) []byte {
			f[14+3], f[34+5] = 20+8+12+12+4, 8+12+12+4
			return f[:14+20+8+12+12+4]
		}, "disarmed_header"},
		{"far beyond the region", false, 64, func(f []byte, _ *Slot) []byte { f[reth+4] = 1; return f }, "disarmed_region"},
		{"far below the region", false, 64, only(func(s *Slot) { s.Regions[0].Va += 1 << 32 }), "disarmed_region"},
		{"IPv6, another PSN", true, 64, func(f []byte, _ *Slot) []byte { f[bth+20+11]++; return f }, "disarmed_psn"},
		{"IPv6, traffic class", true, 64, func(f []byte, _ *Slot) []byte { f[14] ^= 1; return f }, "disarmed_header"},
		{"IPv6, hop limit", true, 64, func(f []byte, _ *Slot) []byte { f[14+7] = 1; return f }, "disarmed_header"},
		{"IPv6, length", true, 64, func(f []byte, _ *Slot) []byte { f[14+5] -= 4; return f }, "disarmed_header"},
	}
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			f := newFlow(tt.ipv6, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
			b.arm(f, psn, 1)
			frame := tt.change(f.packet(roce.OpWriteOnly, psn, tt.payload), b.fan.Slot(fanGroup))
			before := events(t, b.fan)
			verdict, _ := b.classify(t, frame)
			happened := movedEvents(before, events(t, b.fan))
			switch {
			case tt.want == "" && (verdict != RedirectFanOut || len(happened) != 0),
				tt.want != "" && (verdict != RedirectData || len(happened) != 1 || happened[tt.want] != 1):
				t.Errorf("%v, %v", verdict, happened)
			}
		})
	}
}

// The number of messages wraps within its bits, and a packet inside a message leaves it alone.
func TestMessagesWrapInTheWord(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
	const messages = 0xFFFFFF << 24
	for o, want := range map[roce.Opcode]uint64{roce.OpWriteOnly: 8, roce.OpSendFirst: 8 | messages | 1<<48} {
		b.arm(f, 7, 1)
		b.fan.Word(fanGroup).Or(messages)
		if verdict, _ := b.classify(t, f.packet(o, 7, 4)); verdict != RedirectFanOut {
			t.Fatal(verdict)
		}
		if got := b.fan.Word(fanGroup).Load(); got != want|1<<49|fanEpoch<<50 {
			t.Errorf("%v: word %#x", o, got)
		}
	}
}

// runOften runs the classifier on a frame again and again, until stop.
func (b *fanBench) runOften(t *testing.T, frame []byte) (stop func()) {
	var ends atomic.Bool
	ran := make(chan error)
	go func() {
		for !ends.Load() {
			opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 10_000}
			if _, err := b.c.classify().Run(&opts); err != nil {
				ran <- err
				return
			}
		}
		ran <- nil
	}()
	return func() {
		t.Helper()
		ends.Store(true)
		fatal(t, <-ran)
	}
}

// A packet that was looked at in another state of the group is not carried: between the program's
// look at the word and its swap, user space or another CPU has changed the word.
func TestALostSwapDisarms(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
	b.arm(f, 7, 1)
	word, frame := b.fan.Word(fanGroup), f.packet(roce.OpWriteOnly, 7, 4)
	stop := b.runOften(t, frame)
	deadline := time.Now().Add(time.Minute)
	for lost := uint64(0); lost == 0 && time.Now().Before(deadline) && !t.Failed(); lost = events(t, b.fan)["disarmed_race"] {
		for n := range 10_000 {
			armed := uint64(n+1)<<50 | 1<<49
			word.Store(armed | 7)
			// Until the next change the program carries packet 7 of this epoch, or disarms the
			// group.
			if w := word.Load(); w>>50 != armed>>50 {
				t.Errorf("a packet of an earlier epoch changed the word from %#x to %#x", armed|7, w)
				break
			}
		}
	}
	stop()
	if n := events(t, b.fan)["disarmed_race"]; n == 0 && !t.Failed() {
		t.Error("no swap was lost")
	}
}

// Whoever sees a packet counted also sees that it asks for an ACK. That is noted before the swap,
// so it is noted even for a packet whose swap fails.
func TestWhatAsksIsNotedInFrontOfTheSwap(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
	b.arm(f, 7, 1)
	word, slot := b.fan.Word(fanGroup), b.fan.Slot(fanGroup)
	asked := (*atomic.Uint32)(unsafe.Pointer(&slot.Asked))
	frame := f.packet(roce.OpWriteOnly, 7, 4)
	var ends, counted atomic.Bool
	ended := make(chan bool)
	go func() { // the program sees the armed word, and another one when it swaps
		defer close(ended)
		for n := uint64(0); !ends.Load(); n++ {
			word.Store(n<<50 | 1<<49 | 7)
			if word.Swap(n<<50)&0xFFFFFF == 8 {
				counted.Store(true)
			}
			for range 20 { // when this thread stops, the group is seldom armed
				word.Load()
			}
		}
	}()
	deadline := time.Now().Add(3 * time.Minute)
	for before, judged := uint64(0), false; !judged; { // in more runs a swap would be lost and another one not
		asked.Store(0)
		counted.Store(false)
		opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 100}
		if _, err := b.c.classify().Run(&opts); err != nil || time.Now().After(deadline) {
			t.Errorf("no swap was lost alone (%v)", err)
			break
		}
		lost := events(t, b.fan)["disarmed_race"]
		judged = lost > before && !counted.Load()
		if before = lost; judged && asked.Load() != 7|asks {
			t.Errorf("asked is %#x", asked.Load())
		}
	}
	ends.Store(true)
	<-ended
}

// Whoever finds a packet in its entry finds all of it: while the entry is written it has no packet.
func TestARetainedPacketIsWhole(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
	const payload, enough = 2048, 20
	entry := &b.fan.entries()[fanRetained]
	var wrong, whole, written atomic.Int64 // looks that found such a packet, or none
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			packet := entry.packet().Load()
			switch {
			case packet == ^uint64(0):
				written.Add(1)
				continue
			case entry.Bytes == 0:
				continue
			}
			first, last := entry.Frame[100], entry.Frame[payload]
			switch {
			case entry.packet().Load() != packet:
			case first != byte(packet) || last != byte(packet):
				wrong.Add(1)
			default:
				whole.Add(1)
			}
		}
	}()
	frame := f.packet(roce.OpSendOnly, 0, payload)
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1}
	deadline := time.Now().Add(time.Minute)
	for n := 0; min(whole.Load(), written.Load()) < enough && time.Now().Before(deadline); n++ { // all have the same entry
		b.arm(f, roce.PSN(n), 1)
		b.retain(1)
		frame[14+20+8+9], frame[14+20+8+10], frame[14+20+8+11] = byte(n>>16), byte(n>>8), byte(n)
		for i := 100; i <= payload; i++ {
			frame[i] = byte(n)
		}
		_, err := b.c.classify().Run(&opts)
		fatal(t, err)
	}
	close(stop)
	<-stopped
	if min(whole.Load(), written.Load()) < enough || wrong.Load() > 0 {
		t.Errorf("of all looks %d found a whole packet, %d one with bytes of another one, %d none", whole.Load(), wrong.Load(), written.Load())
	}
}

// A frame of two buffers of any length goes to user space, because it cannot be broadcast.
func TestFramesOfTwoBuffersDisarm(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
	for payload := 3700; payload <= 4096; payload += 4 { // BPF_PROG_TEST_RUN puts some 3.5 KB into the first buffer
		for _, o := range []roce.Opcode{roce.OpWriteOnlyImm, roce.OpSendMiddle} {
			b.arm(f, 7, 1)
			before := events(t, b.fan)
			verdict, _ := b.classify(t, f.packet(o, 7, payload))
			if happened := movedEvents(before, events(t, b.fan)); verdict != RedirectData || happened["disarmed_header"] != 1 {
				t.Errorf("%v with %d bytes: %v, %v", o, payload, verdict, happened)
			}
		}
	}
}

// The packets of a group that is not armed, or whose slot another group has, go to user space, and
// no event is counted.
func TestOtherGroupsAreLeftAlone(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup+Slots)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
	b.arm(f, 7, 1)
	word := b.fan.Word(fanGroup).Load()
	verdict, _ := b.classify(t, f.packet(roce.OpWriteOnly, 7, 4))
	if verdict != RedirectData || b.fan.Word(fanGroup).Load() != word || len(events(t, b.fan)) != 0 {
		t.Errorf("%v, word %#x, %v", verdict, b.fan.Word(fanGroup).Load(), events(t, b.fan))
	}
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	word &^= 1 << 49
	b.fan.Word(fanGroup).Store(word)
	verdict, _ = b.classify(t, f.packet(roce.OpWriteOnly, 7, 4))
	if verdict != RedirectData || b.fan.Word(fanGroup).Load() != word || len(events(t, b.fan)) != 0 {
		t.Errorf("not armed: %v, word %#x, %v", verdict, b.fan.Word(fanGroup).Load(), events(t, b.fan))
	}
}

// The packet behind a carried one is of the same group only if it has its addresses and QPN, and
// then as long as that group is armed.
func TestThePacketBehindACarriedOne(t *testing.T) {
	const psn, other = 7, 9
	for _, tt := range []struct {
		name    string
		entries []Key // of the other group
		next    []byte
		verdict Verdict
		group   uint32
	}{
		{"another QPN", []Key{{Dst: groupIP, QPN: 2, Match: MatchDstQPN}}, frame(hostA, groupIP, roce.OpSendOnly, 2, 4), RedirectData, other},
		{"another destination", []Key{{Dst: hostB, QPN: 1, Match: MatchDstQPN}}, frame(hostA, hostB, roce.OpSendOnly, 1, 4), RedirectData, other},
		{"another source", []Key{{Src: hostC, Dst: groupIP, QPN: 1, Match: MatchPairQPN}}, frame(hostC, groupIP, roce.OpSendOnly, 1, 4), RedirectData, other},
		{"a message of RDMA-CM", nil, frame(hostA, groupIP, udSend, 1, 4), PassNoGroup, 0},
		{"an answer", []Key{{Dst: groupIP, QPN: 2, Match: MatchDstQPN}}, frame(hostA, groupIP, roce.OpAck, 2, 4), RedirectFeedback, other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newFanBench(t)
			put(t, b.c, Key{Src: hostA, Dst: groupIP, QPN: 1, Match: MatchPairQPN}, fanGroup)
			for _, k := range tt.entries {
				put(t, b.c, k, other)
			}
			f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
			f.in.DestQPN = 1
			b.arm(f, psn, 1)
			if verdict, _ := b.classify(t, f.packet(roce.OpWriteOnly, psn, 4)); verdict != RedirectFanOut {
				t.Fatal(verdict)
			}
			verdict, out := b.classify(t, tt.next)
			if verdict != tt.verdict {
				t.Errorf("%v, want %v", verdict, tt.verdict)
			}
			if meta, ok := DecodeMeta(out[:min(len(out), MetaBytes)]); ok && meta.Group != tt.group {
				t.Errorf("it is of group %d, want %d", meta.Group, tt.group)
			}
		})
	}
	t.Run("disarmed and removed", func(t *testing.T) {
		b := newFanBench(t)
		k := Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}
		put(t, b.c, k, fanGroup)
		f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
		b.arm(f, psn, 1)
		if verdict, _ := b.classify(t, f.packet(roce.OpWriteOnly, psn, 4)); verdict != RedirectFanOut {
			t.Fatal(verdict)
		}
		b.fan.Word(fanGroup).And(^uint64(1 << 49))
		fatal(t, b.c.DeleteGroup(k))
		if verdict, _ := b.classify(t, f.packet(roce.OpWriteOnly, psn+1, 4)); verdict != PassNoGroup {
			t.Error(verdict)
		}
	})
}

// A packet whose group gives its slot to another one is never taken for the other group's.
func TestAPacketIsOfOneBlock(t *testing.T) {
	b := newFanBench(t)
	const psn, other = 7, fanGroup + Slots
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
	b.arm(f, psn, 1)
	if verdict, _ := b.classify(t, f.packet(roce.OpWriteOnly, psn, 4)); verdict != RedirectFanOut {
		t.Fatal(verdict)
	}
	word, slot := b.fan.Word(fanGroup), b.fan.Slot(fanGroup)
	written, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		r := rand.New(rand.NewPCG(1, 2))
		for e := uint64(1); ; e = e%0x3FFF + 1 {
			select {
			case <-stop:
				return
			default:
			}
			group, qpn := uint32(fanGroup), uint32(groupQPN)
			if e%2 == 0 {
				group, qpn = other, 3
			}
			word.Store(e << 50)
			atomic.StoreUint32(&slot.Group, group)
			for range r.IntN(50) {
				word.Load()
			}
			atomic.StoreUint32(&slot.Qpn, qpn)
			word.Store(e<<50 | 1<<49 | 0x800000)
			for range r.IntN(100) {
				word.Load()
			}
		}
	}()
	next := f.packet(roce.OpWriteOnly, psn+9, 4) // never the next one
	for range 100_000 {
		opts := ebpf.RunOptions{Data: next, DataOut: make([]byte, len(next)+256), Repeat: 1}
		_, err := b.c.classify().Run(&opts)
		fatal(t, err)
		if meta, ok := DecodeMeta(opts.DataOut[:MetaBytes]); !ok || meta.Group != fanGroup {
			t.Errorf("it is of group %d, %v", meta.Group, ok)
			break
		}
	}
	close(stop)
	<-written
}

// Feedback to an armed group does not disarm it.
func TestFeedbackDoesNotDisarm(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, 0x0800))
	b.arm(f, 7, 1)
	word := b.fan.Word(fanGroup).Load()
	if verdict, _ := b.classify(t, frame(hostA, groupIP, roce.OpAck, groupQPN, 4)); verdict != RedirectFeedback || b.fan.Word(fanGroup).Load() != word {
		t.Errorf("%v, word %#x", verdict, b.fan.Word(fanGroup).Load())
	}
}

// A merged ACK leaves as it is: it passes the program of the copies that leave by the same port.
func TestAMergedACKIsNoCopy(t *testing.T) {
	b := newFanBench(t)
	for _, in := range [][]byte{frame(hostA, groupIP, roce.OpAck, groupQPN, 4), frame(hostA6, group6, roce.OpAck, groupQPN, 4)} {
		if action, out := b.run(t, in); action != actionPass || !bytes.Equal(out, in) {
			t.Errorf("action %d\n%x\n%x", action, out, in)
		}
	}
	if e := events(t, b.fan); len(e) != 0 {
		t.Error(e)
	}
}

// The copies of one packet for one port are those of the port's paths, in order. A surplus copy, or
// a copy of an older block, is dropped.
func TestCopiesForOnePort(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
	b.arm(f, 7, 2)
	first := &b.fan.Paths(fanGroup)[2]
	*first = b.fan.Paths(fanGroup)[3]
	first.Qpn = 0x111111 // the ICRC will not agree, which does not matter here
	var tagged [2][]byte
	for i := range tagged {
		verdict, out := b.classify(t, f.packet(roce.OpWriteOnly, roce.PSN(7+i), 4))
		if tagged[i] = out; verdict != RedirectFanOut {
			t.Fatal(verdict)
		}
	}
	qpns := func(frame []byte) (qpns []roce.QPN) {
		for range 2 {
			action, out := b.run(t, frame)
			var v roce.View
			fatal(t, v.Decode(out, len(out)))
			if action != actionPass {
				t.Fatalf("action %d, %v", action, events(t, b.fan))
			}
			qpns = append(qpns, v.DestQPN(out))
		}
		return qpns
	}
	for _, frame := range tagged {
		if got := qpns(frame); got[0] != 0x111111 || got[1] != f.out.DestQPN {
			t.Errorf("the copies are for %x", got)
		}
	}
	if action, _ := b.run(t, tagged[1]); action != actionDrop || events(t, b.fan)["copy_stale"] != 1 {
		t.Errorf("a third copy: action %d, %v", action, events(t, b.fan))
	}
	b.fan.Word(fanGroup).Store(uint64(fanEpoch+1) << 50)
	if action, _ := b.run(t, tagged[0]); action != actionDrop || events(t, b.fan)["copy_stale"] != 2 {
		t.Errorf("a copy of a block that is gone: action %d, %v", action, events(t, b.fan))
	}
}

// What makes no sense is dropped and counted: a copy for a port that the block does not name, one
// whose block is not complete, one shorter than its headers. The copies of another block of the
// slot, or of another packet, begin with the port's first path again.
func TestCopiesThatAreDropped(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
	b.arm(f, 7, 2)
	slot, paths := b.fan.Slot(fanGroup), b.fan.Paths(fanGroup)
	paths[2] = paths[3]
	paths[3].Qpn = 0x333333
	_, tagged := b.classify(t, f.packet(roce.OpWriteOnly, 7, 4))
	first := func(epoch uint64) {
		t.Helper()
		b.fan.Word(fanGroup).Store(epoch << 50)
		binary.NativeEndian.PutUint16(tagged[2:], uint16(epoch))
		action, out := b.run(t, tagged)
		var v roce.View
		fatal(t, v.Decode(out, len(out)))
		if action != actionPass || v.DestQPN(out) != f.out.DestQPN {
			t.Errorf("epoch %d: action %d, QPN %#x", epoch, action, v.DestQPN(out))
		}
	}
	first(fanEpoch)
	first(fanEpoch + 1)
	for _, tt := range []struct {
		name   string
		change func(frame []byte) []byte
		event  string
	}{
		{"no path at the port", func(f []byte) []byte { slot.Copies[fanPort].Count = 0; return f }, "copy_stale"},
		{"no L2", func(f []byte) []byte { paths[2].L2Bytes = 0; return f }, "copy_malformed"},
		{"no BTH", func(f []byte) []byte { return f[:14+20+8+11] }, "copy_malformed"},
		{"no RETH", func(f []byte) []byte { return f[:14+20+8+12+15] }, "copy_malformed"},
		{"no ICRC", func(f []byte) []byte { return f[:len(f)-1] }, "copy_malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slot.Copies[fanPort].Count, paths[2].L2Bytes = 1, 14
			before := events(t, b.fan)
			action, _ := b.run(t, tt.change(slices.Clone(tagged)))
			if happened := movedEvents(before, events(t, b.fan)); action != actionDrop || happened[tt.event] != 1 {
				t.Errorf("action %d, %v", action, happened)
			}
		})
	}
}

// A carried packet is counted for its ingress port, and each copy for its egress port.
func TestTrafficIsCounted(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	l2 := roce.AppendVLAN(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 7, 0x0800)
	f := newFlow(false, l2)
	b.arm(f, 7, 1)
	in := f.packet(roce.OpWriteOnly, 7, 100)
	_, tagged := b.classify(t, in)
	_, out := b.run(t, tagged)
	got, err := b.fan.Traffic(fanPort)
	fatal(t, err)
	want := Traffic{RxFrames: 1, RxBytes: uint64(len(in)), TxFrames: 1, TxBytes: uint64(len(out))}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Where reads may change places, or a program may be preempted by another one of the same CPU, the
// kernel does not fan out, and no CPU remembers groups.
func TestFanOutNeedsOrderedReads(t *testing.T) {
	for _, m := range []struct {
		arch, kernel string
		works        bool
	}{
		{"amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1 (2025-09-20)", true},
		{"amd64", "#1 SMP PREEMPT_RT Debian 6.12.48-1 (2025-09-20)", false},
		{"arm64", "#1 SMP Debian 6.12.48-1 (2025-09-20)", false},
	} {
		if err := checkOrder(m.arch, m.kernel); (err == nil) != m.works {
			t.Errorf("%s, %s: %v", m.arch, m.kernel, err)
		}
	}
}

// A copy that is made while user space writes the slot's next block belongs to the old block or to
// the new one, or is dropped.
func TestACopyIsOfOneBlock(t *testing.T) {
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
	b.arm(f, 7, 1)
	frame := f.packet(roce.OpWriteOnly, 7, 4)
	_, tagged := b.classify(t, frame)
	word, path := b.fan.Word(fanGroup), &b.fan.Paths(fanGroup)[2]
	path.Qpn, path.Targets[0].Rkey = fanEpoch, fanEpoch // block e has e for both

	written, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		r := rand.New(rand.NewPCG(1, 2))
		for e := uint16(1); ; e = e%0x3FFF + 1 {
			select {
			case <-stop:
				return
			default:
			}
			word.Store(uint64(e) << 50)
			atomic.StoreUint32(&path.Qpn, uint32(e))
			atomic.StoreUint32(&path.Targets[0].Rkey, uint32(e))
			word.Store(uint64(e)<<50 | 1<<49)
			for range r.IntN(20_000) { // as long as a run of the program takes, more or less
				word.Load()
			}
		}
	}()
	passed := 0
	for range 30_000 {
		w := word.Load()
		if w&(1<<49) == 0 {
			continue // no packet is carried, so there is no tag of this block yet
		}
		e := uint16(w >> 50)
		binary.NativeEndian.PutUint16(tagged[2:], e)
		if action, out := b.run(t, tagged); action == actionPass {
			passed++
			var v roce.View
			fatal(t, v.Decode(out, len(out)))
			if qpn, key := v.DestQPN(out), v.RETH(out).RKey; uint16(qpn) != e || uint16(key) != e {
				t.Errorf("a copy of block %d has QPN %d and R_Key %d", e, qpn, key)
				break
			}
		}
	}
	close(stop)
	<-written
	if passed == 0 {
		t.Error("no copy was made")
	}
	t.Logf("%d copies passed", passed)
}
