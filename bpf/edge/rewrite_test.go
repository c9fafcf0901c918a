package edge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

const (
	xdpDrop, xdpPass = 1, 2
	tcShot           = 2
	tcNext           = 1<<32 - 1 // -1
	legQPN           = 0xabc
)

// verdicts are what one of the programs returns.
type verdicts struct {
	name       string
	pass, drop uint32
	most       int // payload bytes with which the kernel can run it
}

var all = []verdicts{
	{edgeProgRocastEdge, xdpPass, xdpDrop, 4096}, {edgeProgRocastEdgeFrags, xdpPass, xdpDrop, 4096}, {edgeProgRocastEdgeTc, tcNext, tcShot, 3000},
}

// bench runs one of the programs on frames.
type bench struct {
	verdicts
	*Program
	program *ebpf.Program
}

func newBench(t testing.TB, v verdicts) *bench {
	t.Helper()
	p, err := open("")
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_BPF and CAP_NET_ADMIN")
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{verdicts: v, Program: p}
	t.Cleanup(func() {
		if err := errors.Join(b.program.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	if b.program, err = p.load(v.name); err != nil {
		t.Fatal(err)
	}
	return b
}

// run returns the frame behind the program, or nil if the program drops it.
func (b *bench) run(t testing.TB, frame []byte) []byte {
	t.Helper()
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	verdict, err := b.program.Run(&options)
	switch {
	case err != nil:
		t.Fatal(err)
	case verdict == b.drop:
		return nil
	case verdict != b.pass:
		t.Fatalf("%s returned %#x", b.name, verdict)
	}
	return options.DataOut
}

func (b *bench) counters(t testing.TB) Counters {
	t.Helper()
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// family is a leg and a host of one address family.
type family struct{ from, to, host netip.Addr }

var families = []family{
	{netip.MustParseAddr("10.77.0.100"), netip.MustParseAddr("239.77.0.1"), netip.MustParseAddr("10.77.0.2")},
	{netip.MustParseAddr("fd77::100"), netip.MustParseAddr("ff15::4d:1"), netip.MustParseAddr("fd77::2")},
}

// regions are at both ends of the address space.
var regions = []Region{
	{VA: 0x10000, Length: 1 << 20, RKey: 0x77, AddVA: 0x7f0000000000 - 0x10000, ToRKey: 0x1234abcd},
	{VA: 0xfffffffffffff000, Length: 0x1000, RKey: 0x99, AddVA: 0x5000 + 0x1000, ToRKey: 1},
}

var hostMAC = roce.MAC{0x52, 0x54, 0, 0, 0, 2}

func (f family) mapping() Mapping {
	return Mapping{
		Key: Key{From: f.from, To: f.to, QPN: legQPN}, Host: f.host, MAC: hostMAC, HostQPN: 0x11, AddPSN: 0xfedcba, Regions: regions,
	}
}

// packet is what a test frame has.
type packet struct {
	dst     netip.Addr
	mac     roce.MAC
	qpn     roce.QPN
	psn     roce.PSN
	opcode  roce.Opcode
	reth    *roce.RETH
	rest    []byte // behind the RETH
	vlan    bool
	hop     uint8
	traffic uint8
}

func (p packet) frame(t testing.TB, src netip.Addr) []byte {
	t.Helper()
	ip := roce.IPUDP{Src: src, Dst: p.dst, HopLimit: p.hop, SrcPort: 0xc123, TrafficClass: p.traffic, ID: 7}
	bth := roce.BTH{Opcode: p.opcode, PadCount: roce.PadFor(len(p.rest)), PKey: 0xffff, DestQPN: p.qpn, AckReq: true, PSN: p.psn}
	box := roce.MAC{2, 0x77, 0, 0, 0, 1}
	b := roce.AppendEthernet(nil, p.mac, box, ip.EtherType())
	if p.vlan {
		b = roce.AppendVLAN(nil, p.mac, box, 5, ip.EtherType())
	}
	var body []byte
	if p.reth != nil {
		body = p.reth.Append(nil)
	}
	body = append(append(body, p.rest...), make([]byte, bth.PadCount)...)
	b = append(bth.Append(ip.Append(b, roce.BTHBytes+len(body))), body...)
	b, err := roce.AppendICRC(b)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// multicastMAC is the MAC of a multicast address (RFC 1112, 6.4; RFC 2464, 7).
func multicastMAC(a netip.Addr) roce.MAC {
	b := a.AsSlice()
	if a.Is4() {
		return roce.MAC{1, 0, 0x5e, b[1] & 0x7f, b[2], b[3]}
	}
	return roce.MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// edited is the packet as package roce makes a copy for one receiver. That takes a hop away, which
// an edge does not.
func edited(t testing.TB, m Mapping, frame []byte, target *Region) []byte {
	t.Helper()
	frame = bytes.Clone(frame)
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		t.Fatal(err)
	}
	hop := v.L3 + 7
	if !v.IPv6 {
		hop = v.L3 + 8
	}
	frame[hop]++
	if !v.IPv6 {
		binary.BigEndian.PutUint16(frame[v.L3+10:], roce.IPv4HeaderChecksum(frame[v.L3:]))
	}
	var was roce.Original
	was.Read(&v, [][]byte{frame})
	l2 := append(bytes.Clone(m.MAC[:]), frame[6:v.L3]...)
	edit := roce.NewEdit(roce.Flow{Src: m.From, Dst: m.To, DestQPN: m.QPN}, roce.Flow{Src: m.From, Dst: m.Host, DestQPN: m.HostQPN}, l2)
	var to *roce.Target
	if target != nil {
		made := roce.NewTarget(target.VA, target.RKey, target.VA+target.AddVA, target.ToRKey)
		to = &made
	}
	was.PutICRC(frame, edit.Apply(frame, was.PSN.Add(int32(m.AddPSN)), to, &was))
	copy(frame, l2)
	return frame
}

// Every packet that a group carries comes out as the one that the queue pair expects, to the byte:
// as it is built from scratch, and as the box would have made it.
func TestEveryPacketBecomesTheHosts(t *testing.T) {
	for _, v := range all {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v)
			random := rand.New(rand.NewPCG(29, 1))
			var frames uint64
			for _, f := range families {
				m := f.mapping()
				if err := b.Put(m); err != nil {
					t.Fatal(err)
				}
				for opcode := roce.OpSendFirst; opcode <= roce.OpWriteOnlyImm; opcode++ {
					sizes := []int{0, 1, 2, 3, 4, 255, 256, 1000, 1024, 1500, 2048, v.most}
					for range 10 {
						sizes = append(sizes, random.IntN(v.most))
					}
					for _, size := range sizes {
						p := packet{
							dst: f.to, mac: multicastMAC(f.to), qpn: legQPN, psn: roce.PSN(random.Uint32N(1 << 24)), opcode: opcode,
							vlan: random.IntN(4) == 0, hop: 63, traffic: uint8(random.Uint32()),
						}
						headers := opcode.Headers()
						p.rest = make([]byte, size)
						if headers.Has(roce.HasImmDt) {
							p.rest = make([]byte, 4+size)
						}
						for i := range p.rest {
							p.rest[i] = byte(random.Uint32())
						}
						want := p
						var target *Region
						if headers.Has(roce.HasRETH) {
							target = &regions[random.IntN(len(regions))]
							at := target.VA + random.Uint64N(target.Length-uint64(size)+1)
							p.reth = &roce.RETH{VA: at, RKey: target.RKey, DMABytes: uint32(size)}
							want.reth = &roce.RETH{VA: at + target.AddVA, RKey: target.ToRKey, DMABytes: uint32(size)}
						}
						want.dst, want.mac, want.qpn, want.psn = m.Host, m.MAC, m.HostQPN, p.psn.Add(int32(m.AddPSN))
						name := fmt.Sprintf("%v to %v, %d bytes, %+v", opcode, f.to, size, p.reth)
						frame := p.frame(t, f.from)
						got := b.run(t, frame)
						if built := want.frame(t, f.from); !bytes.Equal(got, built) {
							t.Fatalf("%s:\ngot  %x\nwant %x", name, got[:min(len(got), 100)], built[:100])
						}
						if copied := edited(t, m, frame, target); !bytes.Equal(got, copied) {
							t.Fatalf("%s: the box makes another copy:\ngot  %x\nwant %x", name, got[:100], copied[:100])
						}
						frames++
					}
				}
			}
			if c := b.counters(t); c != (Counters{Mapped: frames}) || frames != 528 {
				t.Errorf("of %d frames: %+v", frames, c)
			}
		})
	}
}

// A packet that was damaged on its way stays damaged.
func TestDamageStays(t *testing.T) {
	b := newBench(t, all[0])
	f := families[0]
	if err := b.Put(f.mapping()); err != nil {
		t.Fatal(err)
	}
	frame := packet{dst: f.to, mac: multicastMAC(f.to), qpn: legQPN, opcode: roce.OpSendOnly, rest: make([]byte, 100)}.frame(t, f.from)
	for _, damaged := range []bool{false, true} {
		if damaged {
			frame[80] ^= 4
		}
		got := b.run(t, frame)
		var v roce.View
		if err := v.Decode(got, len(got)); err != nil {
			t.Fatal(err)
		}
		if v.ICRCValid([][]byte{got}) == damaged {
			t.Errorf("damaged %v: the ICRC is valid: %v", damaged, !damaged)
		}
	}
}

// What has no mapping does not reach the host, and what is not the edge's reaches it untouched.
func TestOnlyPacketsOfLegsAreTouched(t *testing.T) {
	for _, v := range all {
		for _, f := range families {
			t.Run(v.name+" "+f.to.String(), func(t *testing.T) {
				b := newBench(t, v)
				if err := b.Put(f.mapping()); err != nil {
					t.Fatal(err)
				}
				plain := packet{dst: f.to, mac: multicastMAC(f.to), qpn: legQPN, opcode: roce.OpWriteMiddle, rest: make([]byte, 1024)}
				change := func(do func(*packet)) packet {
					p := plain
					do(&p)
					return p
				}
				write := func(r roce.RETH) packet {
					return change(func(p *packet) { p.opcode, p.reth = roce.OpWriteOnly, &r })
				}
				another := f.to.Next()
				for _, c := range []struct {
					name    string
					from    netip.Addr
					packet  packet
					damage  func(frame []byte) []byte
					dropped bool
					count   Counters
				}{
					{"a stranger's", f.host, plain, nil, true, Counters{NoMapping: 1}},
					{"another QPN", f.from, change(func(p *packet) { p.qpn++ }), nil, true, Counters{NoMapping: 1}},
					{"an address without legs", f.from, change(func(p *packet) { p.dst = another }), nil, false, Counters{}},
					{"unicast", f.from, change(func(p *packet) { p.dst = f.host }), nil, false, Counters{}},
					{"another port", f.from, plain, func(frame []byte) []byte {
						binary.BigEndian.PutUint16(frame[len(frame)-1024-16-8+2:], 4790)
						return frame
					}, false, Counters{}},
					{"before the memory", f.from, write(roce.RETH{VA: 0xffff, RKey: 0x77, DMABytes: 4}), nil, true, Counters{RefusedRegion: 1}},
					{"beyond the memory", f.from, write(roce.RETH{VA: 0x10000 + 1<<20 - 3, RKey: 0x77, DMABytes: 4}), nil, true, Counters{RefusedRegion: 1}},
					{"another R_Key", f.from, write(roce.RETH{VA: 0x10000, RKey: 0x78, DMABytes: 4}), nil, true, Counters{RefusedRegion: 1}},
					{"cut off", f.from, plain, func(frame []byte) []byte { return frame[:len(frame)-1] }, true, Counters{RefusedLength: 1}},
					{"only headers", f.from, plain, func(frame []byte) []byte { return frame[:len(frame)-1028] }, true, Counters{RefusedLength: 1}},
					{"a datagram shorter than its packet", f.from, plain, func(frame []byte) []byte {
						binary.BigEndian.PutUint16(frame[len(frame)-1028-12-4:], 1000)
						return frame
					}, true, Counters{RefusedLength: 1}},
				} {
					t.Run(c.name, func(t *testing.T) {
						before := b.counters(t)
						frame := c.packet.frame(t, c.from)
						if c.damage != nil {
							frame = c.damage(frame)
						}
						got := b.run(t, frame)
						if c.dropped != (got == nil) || got != nil && !bytes.Equal(got, frame) {
							t.Errorf("dropped: %v, want %v; or the frame has changed", got == nil, c.dropped)
						}
						before.NoMapping += c.count.NoMapping
						before.RefusedLength += c.count.RefusedLength
						before.RefusedRegion += c.count.RefusedRegion
						if now := b.counters(t); now != before {
							t.Errorf("counters are %+v, want %+v", now, before)
						}
					})
				}
			})
		}
	}
}

// A WRITE of no bytes has no memory: it keeps VA and R_Key, as in the copies of its own that a
// receiver gets. The same holds for every WRITE of a group without memory.
func TestWritesThatKeepTheirAddress(t *testing.T) {
	b := newBench(t, all[0])
	f := families[0]
	m := f.mapping()
	p := packet{dst: f.to, mac: multicastMAC(f.to), qpn: legQPN, psn: 5, opcode: roce.OpWriteOnly, reth: &roce.RETH{VA: 3, RKey: 4}}
	for _, c := range []struct {
		regions []Region
		bytes   uint32
	}{{regions, 0}, {nil, 8}} {
		m.Regions = c.regions
		if err := b.Put(m); err != nil {
			t.Fatal(err)
		}
		p.reth.DMABytes, p.rest = c.bytes, make([]byte, c.bytes)
		want := p
		want.dst, want.mac, want.qpn, want.psn = m.Host, m.MAC, m.HostQPN, p.psn.Add(int32(m.AddPSN))
		if got := b.run(t, p.frame(t, f.from)); !bytes.Equal(got, want.frame(t, f.from)) {
			t.Errorf("%d bytes: %x", c.bytes, got)
		}
	}
}

// A leg whose mapping is deleted reaches nobody, and its address is the host's again when it has no
// other leg.
func TestMappingsThatAreDeleted(t *testing.T) {
	b := newBench(t, all[0])
	f := families[0]
	first, second := f.mapping(), f.mapping()
	second.QPN++
	for _, m := range []Mapping{first, second} {
		if err := b.Put(m); err != nil {
			t.Fatal(err)
		}
	}
	frame := packet{dst: f.to, mac: multicastMAC(f.to), qpn: legQPN, opcode: roce.OpSendOnly}.frame(t, f.from)
	expect := func(when string, mapped, dropped bool) {
		t.Helper()
		got := b.run(t, frame)
		if dropped != (got == nil) || mapped != (got != nil && !bytes.Equal(got, frame)) {
			t.Errorf("%s: %x", when, got)
		}
	}
	remove := func(m Mapping) {
		t.Helper()
		if err := b.Delete(m.Key); err != nil {
			t.Fatal(err)
		}
	}
	expect("at first", true, false)
	remove(first)
	expect("while the address has another leg", false, true)
	remove(second)
	expect("when it has none", false, false)
	remove(second)
}

// What is read back of a mapping is what was put.
func TestMappingsAreReadBack(t *testing.T) {
	b := newBench(t, all[0])
	for _, f := range families {
		m := f.mapping()
		m.Owner = 7
		if err := b.Put(m); err != nil {
			t.Fatal(err)
		}
		found := false
		for got, err := range b.Mappings() {
			if err != nil {
				t.Fatal(err)
			}
			found = found || fmt.Sprint(got) == fmt.Sprint(m)
		}
		if !found {
			t.Errorf("%+v is not there", m)
		}
	}
}

func TestMappingsThatCannotBe(t *testing.T) {
	b := newBench(t, all[0])
	for want, change := range map[string]func(*Mapping){
		"the mapping of 10.77.0.100 to 10.77.0.3, QPN 0xabc to 10.77.0.2 is not from a multicast address to a host's":   func(m *Mapping) { m.To = netip.MustParseAddr("10.77.0.3") },
		"the mapping of 10.77.0.100 to 239.77.0.1, QPN 0xabc to 239.77.0.1 is not from a multicast address to a host's": func(m *Mapping) { m.Host = m.To },
		"the mapping of 10.77.0.100 to 239.77.0.1, QPN 0xabc to fd77::2 has addresses of both families":                 func(m *Mapping) { m.Host = families[1].host },
		"the mapping of invalid IP to 239.77.0.1, QPN 0xabc lacks an address":                                           func(m *Mapping) { m.From = netip.Addr{} },
		"the mapping of 10.77.0.100 to 239.77.0.1, QPN 0xabc to QPN 0x1000000 has a QPN of more than 24 bits":           func(m *Mapping) { m.HostQPN = 1 << 24 },
		"the mapping of 10.77.0.100 to 239.77.0.1, QPN 0xabc has 5 regions, 4 are the most":                             func(m *Mapping) { m.Regions = make([]Region, 5) },
	} {
		m := families[0].mapping()
		change(&m)
		if err := b.Put(m); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	m := families[0].mapping()
	for i := range MappingsMax {
		m.QPN = roce.QPN(i)
		if err := b.Put(m); err != nil {
			t.Fatal(err)
		}
	}
	m.QPN++
	want := "map 10.77.0.100 to 239.77.0.1, QPN 0x1000: the edge has 4096 mappings already, which are the most"
	if err := b.Put(m); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func BenchmarkMap(b *testing.B) {
	e := newBench(b, all[0])
	f := families[0]
	// Onto itself, so that every repetition finds the same packet.
	m := Mapping{Key: Key{From: f.from, To: f.to, QPN: legQPN}, Host: netip.MustParseAddr("10.0.0.1"), MAC: multicastMAC(f.to), HostQPN: legQPN}
	value := m.value()
	value.Dst, value.Checksum = words(f.to), 0
	if err := e.maps.Addresses.Put(addressKey(m.To), uint32(1)); err != nil {
		b.Fatal(err)
	}
	if err := e.maps.Mappings.Put(m.key(), value); err != nil {
		b.Fatal(err)
	}
	frame := packet{dst: f.to, mac: m.MAC, qpn: legQPN, opcode: roce.OpWriteMiddle, rest: make([]byte, 1024)}.frame(b, f.from)
	if _, err := e.program.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(b.N)}); err != nil {
		b.Fatal(err)
	}
}
