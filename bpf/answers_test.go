package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/rocast/rocast/roce"
)

// answerBench is an armed group of three receivers behind the bench's port, whose answers the
// program merges.
type answerBench struct {
	*fanBench
	flow      *flow
	receivers [3]netip.Addr
}

const (
	answerNext  = 0x000004 // the source's next packet: PSNs wrap before it
	answerDelta = 0x345678 // of each receiver's PSNs from the source's, times its number
	answerMSNs  = 0xFFFFF0 // of the source's MSNs from each receiver's
)

func newAnswerBench(t *testing.T, ipv6 bool) *answerBench {
	t.Helper()
	etherType := uint16(0x0800)
	if ipv6 {
		etherType = 0x86DD
	}
	b := &answerBench{fanBench: newFanBench(t), flow: newFlow(ipv6, roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{2}, etherType))}
	put(t, b.c, Key{Dst: b.flow.in.Dst, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	b.begin()
	return b
}

// begin arms the group again.
func (b *answerBench) begin() {
	b.fanBench.arm(b.flow, answerNext, 1)
	slot, paths := b.fan.Slot(fanGroup), b.fan.Paths(fanGroup)
	slot.Receivers[fanPort].First, slot.Receivers[fanPort].Count = 0, uint8(len(b.receivers))
	slot.Answers, slot.AckIfindex, slot.AckPort = uint32(len(b.receivers)), loopback, fanPort+1
	slot.AckL2Bytes = uint8(copy(slot.AckL2[:], b.told(0, 0)[:14]))
	copy(slot.Ack[:], b.told(0, 0)[14:])
	for i := range b.receivers {
		b.receivers[i] = netip.AddrFrom4([4]byte{10, 77, 9, byte(10 + i)})
		if b.flow.in.Dst.Is6() {
			b.receivers[i] = netip.MustParseAddr(fmt.Sprintf("fd77::9:%d", 10+i))
		}
		p := &paths[i]
		*p = Path{L2Bytes: 14, DeltaPsn: uint32(i * answerDelta), AnswerQpn: groupQPN, DeltaMsn: answerMSNs, Answer: uint8(i)}
		out := roce.NewEdit(b.flow.in, roce.Flow{Src: b.flow.in.Dst, Dst: b.receivers[i]}, b.flow.l2)
		for k := range p.Addresses {
			p.Addresses[k] = binary.NativeEndian.Uint32(out.Addresses[4*k:])
		}
	}
	b.open(-9, 3)
}

// at is a word that is open: psn is relative to the next packet.
func at(psn, msn int32) uint64 {
	return uint64(roce.PSN(answerNext).Add(psn)) | uint64(roce.MSN(0).Add(msn))<<24 | 1<<49 | fanEpoch<<50
}

// open lets the program merge; every path has acknowledged up to psn.
func (b *answerBench) open(psn, msn int32) {
	for i := range b.receivers {
		b.fan.Acked(fanGroup, i).Store(at(psn, msn))
	}
	b.fan.Told(fanGroup).Store(at(psn, msn))
}

// words are what the paths have acknowledged, and what the source was told.
func (b *answerBench) words() (w [4]uint64) {
	for i := range b.receivers {
		w[i] = b.fan.Acked(fanGroup, i).Load()
	}
	w[3] = b.fan.Told(fanGroup).Load()
	return w
}

// answer is what changes in the plain ACK of a receiver.
type answer struct {
	from     int // receiver
	src, dst netip.Addr
	psn, msn int32 // of the source; psn relative to the next packet
	opcode   roce.Opcode
	qpn      roce.QPN
	syndrome roce.Syndrome
	class    uint8
	hops     uint8
	mig      bool
}

func (b *answerBench) ack(from int, psn, msn int32) answer {
	return answer{
		from: from, src: b.receivers[from], dst: b.flow.in.Dst, psn: psn, msn: msn,
		opcode: roce.OpAck, qpn: groupQPN, syndrome: roce.SyndromeUnlimited, hops: 64,
	}
}

func (a answer) frame() []byte {
	psn := roce.PSN(answerNext).Add(a.psn).Add(int32(a.from * answerDelta))
	ip := roce.IPUDP{Src: a.src, Dst: a.dst, HopLimit: a.hops, SrcPort: 0xC777, TrafficClass: a.class, ID: 0x1234}
	bth := roce.BTH{Opcode: a.opcode, PKey: 0xFFFF, DestQPN: a.qpn, PSN: psn, MigReq: a.mig}
	aeth := roce.AETH{Syndrome: a.syndrome, MSN: roce.MSN(0).Add(a.msn).Add(0x10)} // minus answerMSNs
	return ackFrame(&ip, bth, aeth)
}

// altered is the frame with other bits of one byte, and with a right checksum and ICRC.
func (a answer) altered(at int, bits byte) []byte {
	f := a.frame()
	f[at] ^= bits
	ip, end := f[14:], len(f)-4
	masked := slices.Concat(bytes.Repeat([]byte{0xFF}, 8), f[14:end])
	blank := []int{1, 8, 10, 11, 26, 27, 32} // of IPv4: class, hops, checksums, and the BTH's congestion bits
	if a.dst.Is6() {
		masked[8] |= 0x0F
		blank = []int{1, 2, 3, 7, 46, 47, 52}
	} else {
		binary.BigEndian.PutUint16(ip[10:], 0)
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum>>16+sum&0xFFFF))
	}
	for _, i := range blank {
		masked[8+i] = 0xFF
	}
	binary.LittleEndian.PutUint32(f[end:], crc32.ChecksumIEEE(masked))
	return f
}

// told is the ACK to the source.
func (b *answerBench) told(psn roce.PSN, msn roce.MSN) []byte {
	ip := roce.IPUDP{Src: b.flow.in.Dst, Dst: b.flow.in.Src, HopLimit: 64, SrcPort: 0xC123, TrafficClass: b.flow.tclass}
	bth := roce.BTH{Opcode: roce.OpAck, PKey: 0xFFFF, DestQPN: 0x123456, PSN: psn}
	return ackFrame(&ip, bth, roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: msn})
}

func ackFrame(ip *roce.IPUDP, bth roce.BTH, aeth roce.AETH) []byte {
	b := roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, 2}, roce.MAC{2, 0, 0, 0, 0, 1}, ip.EtherType())
	b = aeth.Append(bth.Append(ip.Append(b, roce.BTHBytes+roce.AETHBytes)))
	b, err := roce.AppendICRC(b)
	if err != nil {
		panic(err)
	}
	return b
}

// The source is told what all receivers have acknowledged, each time that this rises, with the
// lowest of their MSNs. Every other ACK is dropped.
func TestAnswersAreMerged(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		b := newAnswerBench(t, ipv6)
		r := rand.New(rand.NewPCG(1, 1))
		const first = -200
		b.open(first, 3)
		acked, msns, told, merged := [3]int32{first, first, first}, [3]int32{3, 3, 3}, int32(first), 0
		for told < -1 {
			i := r.IntN(3)
			psn := acked[i] + r.Int32N(4) - 1
			if psn >= 0 {
				continue
			}
			msn := msns[i]
			if psn > acked[i] {
				msn += r.Int32N(3)
				acked[i], msns[i] = psn, msn
			}
			before, err := b.fan.Traffic(fanPort)
			fatal(t, err)
			in := b.ack(i, psn, msn).frame()
			verdict, out := b.classify(t, in)
			want, frame := DropMerged, in
			if floor := slices.Min(acked[:]); floor > told {
				told, want = floor, RedirectMerged
				frame = b.told(roce.PSN(answerNext).Add(floor), roce.MSN(0).Add(slices.Min(msns[:])))
				merged++
			}
			if verdict != want || !bytes.Equal(out, frame) {
				t.Fatalf("IPv6 %v: the ACK of %d by receiver %d: %v, want %v\n%x\n%x", ipv6, psn, i, verdict, want, out, frame)
			}
			after, err := b.fan.Traffic(fanPort)
			fatal(t, err)
			if after.RxFrames != before.RxFrames+1 || after.RxBytes != before.RxBytes+uint64(len(in)) {
				t.Fatalf("the port has received %+v, and then %+v", before, after)
			}
		}
		sent, err := b.fan.Traffic(fanPort + 1)
		fatal(t, err)
		if want := (Traffic{TxFrames: uint64(merged), TxBytes: uint64(merged * len(b.told(0, 0)))}); sent != want {
			t.Errorf("the source's port has sent %+v, want %+v", sent, want)
		}
	}
}

// What the ICRC leaves out may change on the way, and so may the credits.
func TestPlainAnswers(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		b := newAnswerBench(t, ipv6)
		for name, change := range map[string]func(*answer){
			"as sent":        func(*answer) {},
			"congestion met": func(a *answer) { a.class = 3 },
			"some hops":      func(a *answer) { a.hops = 1 },
			"some credits":   func(a *answer) { a.syndrome = roce.SyndromeACK(3) },
			"the newest one": func(a *answer) { a.psn = -1 },
			"an older one":   func(a *answer) { a.psn = -12 },
			"the same again": func(a *answer) { a.psn, a.msn = -9, 3 },
			"of another one": func(a *answer) {
				*a = answer{2, a.src.Next(), a.dst, a.psn, a.msn, a.opcode, a.qpn, a.syndrome, a.class, a.hops, a.mig}
			},
			"the oldest there": func(a *answer) { a.psn = -1 << 22 },
		} {
			b.begin()
			a := b.ack(1, -5, 4)
			change(&a)
			if verdict, _ := b.classify(t, a.frame()); verdict != DropMerged {
				t.Errorf("%s: %v", name, verdict)
			}
			want := [4]uint64{at(-9, 3), at(-9, 3), at(-9, 3), at(-9, 3)}
			if a.psn > -9 {
				want[a.from] = at(a.psn, a.msn)
			}
			if got := b.words(); got != want {
				t.Errorf("%s: %x, want %x", name, got, want)
			}
		}
	}
}

// Every other answer goes to user space as it came, and moves nothing.
func TestOtherAnswersGoToUserSpace(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		b := newAnswerBench(t, ipv6)
		if a := b.ack(1, -5, 4); !bytes.Equal(a.altered(0, 0), a.frame()) {
			t.Errorf("IPv6 %v: %x, want %x", ipv6, a.altered(0, 0), a.frame())
		}
		for name, change := range map[string]func(b *answerBench, a *answer) (frame []byte){
			"a sequence NAK":      func(b *answerBench, a *answer) []byte { a.syndrome = roce.NAKSequence; return nil },
			"an RNR NAK":          func(b *answerBench, a *answer) []byte { a.syndrome = roce.SyndromeRNR(1); return nil },
			"a syndrome with 128": func(b *answerBench, a *answer) []byte { a.syndrome |= 0x80; return nil },
			"a READ response":     func(b *answerBench, a *answer) []byte { a.opcode = 0x10; return nil },
			"another QPN":         func(b *answerBench, a *answer) []byte { b.fan.Paths(fanGroup)[1].AnswerQpn++; return nil },
			"another source":      func(b *answerBench, a *answer) []byte { a.src = b.flow.in.Src; return nil },
			"another destination": func(b *answerBench, a *answer) []byte { b.fan.Paths(fanGroup)[1].Addresses[0] ^= 1; return nil },
			"MigReq":              func(b *answerBench, a *answer) []byte { a.mig = true; return nil },
			"not sent yet":        func(b *answerBench, a *answer) []byte { a.psn = 0; return nil },
			"half of all PSNs":    func(b *answerBench, a *answer) []byte { a.psn = 1 << 22; return nil },
			"another MSN":         func(b *answerBench, a *answer) []byte { a.psn = -9; return nil },
			"of another port": func(b *answerBench, a *answer) []byte {
				b.fan.Slot(fanGroup).Receivers[fanPort].Count = 1
				return nil
			},
			"of a path of the port before": func(b *answerBench, a *answer) []byte {
				b.fan.Slot(fanGroup).Receivers[fanPort].First = 2
				return nil
			},
			"of a path that does not count": func(b *answerBench, a *answer) []byte {
				b.fan.Slot(fanGroup).Answers = 1
				return nil
			},
			"of a path in a VLAN": func(b *answerBench, a *answer) []byte { b.fan.Paths(fanGroup)[1].Vlans[0] = 0x8100_0005; return nil },
			"of a path with two tags": func(b *answerBench, a *answer) []byte {
				b.fan.Paths(fanGroup)[1].Vlans = [2]uint32{0x8100_0005, 0x8100_0006}
				return slices.Insert(a.frame(), 12, 0x81, 0, 0, 5)
			},
			"of a path in another VLAN": func(b *answerBench, a *answer) []byte {
				b.fan.Paths(fanGroup)[1].Vlans[0] = 0x8100_0006
				return slices.Insert(a.frame(), 12, 0x81, 0, 0, 5)
			},
			"of a path with another kind of tag": func(b *answerBench, a *answer) []byte {
				b.fan.Paths(fanGroup)[1].Vlans[0] = 0x88A8_0005
				return slices.Insert(a.frame(), 12, 0x81, 0, 0, 5)
			},
			"disarmed": func(b *answerBench, a *answer) []byte {
				b.fan.Word(fanGroup).And(^uint64(1 << 49))
				return nil
			},
			"another group": func(b *answerBench, a *answer) []byte { b.fan.Slot(fanGroup).Group++; return nil },
			"another block": func(b *answerBench, a *answer) []byte { b.fan.Word(fanGroup).Add(1 << 50); return nil },
			"told is closed": func(b *answerBench, a *answer) []byte {
				b.fan.Told(fanGroup).And(^uint64(1 << 49))
				return nil
			},
			"told of another block":     func(b *answerBench, a *answer) []byte { b.fan.Told(fanGroup).Add(1 << 50); return nil },
			"the path is closed":        func(b *answerBench, a *answer) []byte { b.fan.Acked(fanGroup, 1).And(^uint64(1 << 49)); return nil },
			"the path of another block": func(b *answerBench, a *answer) []byte { b.fan.Acked(fanGroup, 1).Add(1 << 50); return nil },
			"bytes behind it":           func(b *answerBench, a *answer) []byte { return append(a.frame(), 0) },
			"a longer UDP packet":       func(b *answerBench, a *answer) []byte { return a.altered(len(a.frame())-28+5, 1) },
			"a shorter UDP packet":      func(b *answerBench, a *answer) []byte { return a.altered(len(a.frame())-28+5, 4) },
			"a longer IP packet": func(b *answerBench, a *answer) []byte {
				if ipv6 {
					return a.altered(14+5, 1)
				}
				return a.altered(14+3, 1)
			},
			"solicited":       func(b *answerBench, a *answer) []byte { return a.altered(len(a.frame())-20+1, 0x80) },
			"padded":          func(b *answerBench, a *answer) []byte { return a.altered(len(a.frame())-20+1, 0x10) },
			"another version": func(b *answerBench, a *answer) []byte { return a.altered(len(a.frame())-20+1, 0x01) },
			"another family":  func(b *answerBench, a *answer) []byte { b.fan.Slot(fanGroup).Ipv6 ^= 1; return nil },
			"a VLAN tag": func(b *answerBench, a *answer) []byte {
				return slices.Insert(a.frame(), 12, 0x81, 0, 0, 5)
			},
		} {
			b.begin()
			a := b.ack(1, -5, 4)
			in := change(b, &a)
			if in == nil {
				in = a.frame()
			}
			before := b.words()
			verdict, out := b.classify(t, in)
			if verdict != RedirectFeedback || !bytes.HasSuffix(out, in) || b.words() != before {
				t.Errorf("%s, IPv6 %v: %v, %x, want %x", name, ipv6, verdict, b.words(), before)
			}
		}
	}
}

// The ACK to the source has the source's VLAN tags, whatever tags the receiver's ACK has, with the
// priority of the receiver's ACK. If that one has no tag, the priority is the slot's.
func TestTaggedAnswersAreMerged(t *testing.T) {
	insert := func(l2 []byte, tags ...byte) []byte { return slices.Insert(slices.Clone(l2), 12, tags...) }
	for _, ipv6 := range []bool{false, true} {
		b := newAnswerBench(t, ipv6)
		slot, paths := b.fan.Slot(fanGroup), b.fan.Paths(fanGroup)
		for _, in := range []struct {
			tags  []byte
			vlans [2]uint32
			pcp   byte
		}{
			{nil, [2]uint32{}, 0x40},
			{[]byte{0x81, 0, 0xA0, 0}, [2]uint32{}, 0xA0},
			{[]byte{0x81, 0, 0x6F, 0xFF}, [2]uint32{0x8100_0FFF}, 0x60},
			{[]byte{0x88, 0xA8, 0x00, 5, 0x81, 0, 0xE0, 6}, [2]uint32{0x88A8_0005, 0x8100_0006}, 0},
		} {
			for _, out := range [][]byte{nil, {0x81, 0, 0, 7}, {0x88, 0xA8, 0, 8, 0x81, 0, 0, 9}} {
				for keeps := range uint8(4) {
					b.begin()
					told := b.told(roce.PSN(answerNext).Add(-5), 4)
					l2 := insert(told[:14], out...)
					slot.AckL2Bytes, slot.AckKeeps, slot.Pcp = uint8(copy(slot.AckL2[:], l2)), keeps, 0x40
					for i := 0; i < len(out)/4; i++ {
						if keeps>>i&1 != 0 {
							l2[14+4*i] |= in.pcp
						}
					}
					before, err := b.fan.Traffic(fanPort + 1)
					fatal(t, err)
					for i := range b.receivers {
						paths[i].Vlans = in.vlans
						verdict, got := b.classify(t, insert(b.ack(i, -5, 4).frame(), in.tags...))
						switch want := append(slices.Clone(l2), told[14:]...); {
						case i < 2 && verdict != DropMerged,
							i == 2 && (verdict != RedirectMerged || !bytes.Equal(got, want)):
							t.Fatalf("IPv6 %v, tags %x, to the source %x, keeps %d, receiver %d: %v\n%x\n%x", ipv6, in.tags, out, keeps, i, verdict, got, want)
						case i == 2:
							if action, passed := b.run(t, got); action != actionPass || !bytes.Equal(passed, want) {
								t.Fatalf("the ACK at its port: action %d\n%x", action, passed)
							}
						}
					}
					after, err := b.fan.Traffic(fanPort + 1)
					fatal(t, err)
					if after.TxBytes != before.TxBytes+uint64(len(told)+len(out)) {
						t.Errorf("%d bytes are counted", after.TxBytes-before.TxBytes)
					}
				}
			}
		}
	}
}

// A damaged answer is not merged, whichever bit of what the ICRC and the IPv4 checksum cover is
// wrong.
func TestDamagedAnswersAreNotMerged(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		b := newAnswerBench(t, ipv6)
		good := b.ack(1, -5, 4).frame()
		before, merged := b.words(), 0
		for bit := 14 * 8; bit < len(good)*8; bit++ {
			bad := slices.Clone(good)
			bad[bit/8] ^= 1 << (bit % 8)
			var v roce.View
			uncovered := v.Decode(bad, len(bad)) == nil && v.Undamaged([][]byte{bad})
			verdict, _ := b.classify(t, bad)
			if uncovered {
				merged++
			}
			if got := verdict == DropMerged || verdict == RedirectMerged; got != uncovered || !got && b.words() != before {
				t.Errorf("IPv6 %v, bit %d of byte %d: %v, %x", ipv6, bit%8, bit/8, verdict, b.words())
			}
			b.begin() // with another opcode it was data, which disarms the group
		}
		if merged == 0 || merged == len(good)*8 {
			t.Errorf("%d bits are not covered", merged)
		}
	}
}

// An entry may move while user space opens the words: the last word is not open yet, and user space
// has already read the entry. Then the frame goes to user space, which looks at all entries before
// it handles the frame.
func TestAnAnswerThatMovesWhileUserSpaceOpensIsUserSpaces(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		b := newAnswerBench(t, ipv6)
		for i := range b.receivers {
			b.fan.Acked(fanGroup, i).Store(at(-5, 4))
		}
		for name, w := range map[string]uint64{"closed": at(-5, 4) &^ (1 << 49), "of another block": at(-5, 4) + 1<<50} {
			b.fan.Acked(fanGroup, 2).Store(w)
			b.fan.Acked(fanGroup, 1).Store(at(-9, 3))
			before, err := b.fan.Traffic(fanPort)
			fatal(t, err)
			in := b.ack(1, -5, 4).frame()
			verdict, out := b.classify(t, in)
			want := [4]uint64{at(-5, 4), at(-5, 4), w, at(-9, 3)}
			if verdict != RedirectFeedback || !bytes.HasSuffix(out, in) || b.words() != want {
				t.Errorf("IPv6 %v, another path %s: %v, %x, want %x", ipv6, name, verdict, b.words(), want)
			}
			after, err := b.fan.Traffic(fanPort)
			fatal(t, err)
			if after != before { // user space counts it
				t.Errorf("the port has received %+v, and then %+v", before, after)
			}
		}
	}
}

// If an answer is merged while user space takes the merging back, user space reads of each path at
// least what the source was told, and what the source was told never falls. Nothing moves any more
// when user space has read it.
func TestAnswersWhileUserSpaceTakesThemBack(t *testing.T) {
	b := newAnswerBench(t, false)
	const packets, psnMask = 4000, 1<<24 - 1
	b.fan.Word(fanGroup).Store(uint64(packets) | 1<<49 | fanEpoch<<50)
	word := func(psn uint64) uint64 { return psn | 1<<49 | fanEpoch<<50 }
	for i := range b.receivers {
		b.fan.Acked(fanGroup, i).Store(word(0))
	}
	b.fan.Told(fanGroup).Store(word(0))
	var done sync.WaitGroup
	ran := make([]error, len(b.receivers))
	for i := range b.receivers {
		done.Go(func() {
			for psn := int32(1); psn < packets && ran[i] == nil; {
				opts := ebpf.RunOptions{Data: b.ack(i, psn-answerNext, 0).frame(), DataOut: make([]byte, 512), Repeat: 1}
				var action uint32
				action, ran[i] = b.c.classify().Run(&opts)
				const qpn = 14 + 20 + 8 + 5
				if action != actionDrop && opts.DataOut[qpn] != b.told(0, 0)[qpn] {
					continue // it went to user space, and the receiver repeats it
				}
				if has := b.fan.Acked(fanGroup, i).Load() & psnMask; ran[i] == nil && has != uint64(psn) {
					ran[i] = fmt.Errorf("receiver %d has acknowledged %d, and the slot has %d", i, psn, has)
				}
				psn++
			}
		})
	}
	stopped := make(chan struct{})
	go func() { done.Wait(); close(stopped) }()
	before := uint64(0)
	for turn, last := 0, false; !last; turn++ {
		select {
		case <-stopped:
			last = true
		default:
		}
		told, lowest := b.fan.Told(fanGroup).And(^uint64(1<<49))&psnMask, uint64(psnMask)
		for i := range b.receivers {
			lowest = min(lowest, b.fan.Acked(fanGroup, i).And(^uint64(1<<49))&psnMask)
		}
		if told > lowest || told < before {
			t.Fatalf("the source was told %d, and %d before, and a path has %d", told, before, lowest)
		}
		before = lowest
		read := b.words()
		for range turn % 1000 {
			if now := b.words(); now != read {
				t.Fatalf("user space has read %x, and it became %x", read, now)
			}
		}
		if last && lowest != packets-1 {
			t.Errorf("the lowest path has %d, want %d", lowest, packets-1)
		}
		for i := range b.receivers {
			b.fan.Acked(fanGroup, i).Or(1 << 49)
		}
		b.fan.Told(fanGroup).Store(word(lowest)) // user space tells the source the rest
		for range turn % 1000 {
			now := b.fan.Told(fanGroup).Load() & psnMask
			if now < lowest {
				t.Fatalf("the source was told %d, and then %d", lowest, now)
			}
			lowest = now
		}
	}
	for _, err := range ran {
		fatal(t, err)
	}
}

// Each path of a slot has its own entry, and the source is told when the last one has moved.
func TestAnswersOfAsManyPathsAsASlotHas(t *testing.T) {
	b := newAnswerBench(t, false)
	slot, paths := b.fan.Slot(fanGroup), b.fan.Paths(fanGroup)
	slot.Answers = uint32(SlotPaths)
	for k := range SlotPaths {
		paths[k] = paths[1]
		paths[k].Answer = uint8(k)
		b.fan.Acked(fanGroup, k).Store(at(-9, 3))
	}
	for n := range SlotPaths {
		k := (n + 5) % SlotPaths
		slot.Receivers[fanPort].First, slot.Receivers[fanPort].Count = uint8(k), 1
		want := DropMerged
		if n == SlotPaths-1 {
			want = RedirectMerged
		}
		if verdict, _ := b.classify(t, b.ack(1, -5, 4).frame()); verdict != want {
			t.Errorf("the ACK of path %d: %v, want %v", k, verdict, want)
		}
		for i := range SlotPaths {
			want := at(-9, 3)
			if (i-5+SlotPaths)%SlotPaths <= n {
				want = at(-5, 4)
			}
			if got := b.fan.Acked(fanGroup, i).Load(); got != want {
				t.Errorf("the ACK of path %d: path %d has %x, want %x", k, i, got, want)
			}
		}
	}
}

// Receivers whose copies leave by a shared leg answer each for itself. Their places among the paths
// of the slot are not those of their words, because shared legs have places too.
func TestAnswersOfReceiversThatShare(t *testing.T) {
	b := newAnswerBench(t, false)
	slot, paths := b.fan.Slot(fanGroup), b.fan.Paths(fanGroup)
	for i, k := range []int{20, 21, 22} {
		paths[k] = paths[i]
		paths[i] = Path{}
	}
	slot.Receivers[fanPort].First = 20
	slot.Copies[fanPort].First, slot.Copies[fanPort].Count = 23, 1
	for i, want := range []Verdict{DropMerged, DropMerged, RedirectMerged} {
		if verdict, _ := b.classify(t, b.ack(i, -5, 4).frame()); verdict != want {
			t.Errorf("the ACK of receiver %d: %v, want %v", i, verdict, want)
		}
	}
	if want := [4]uint64{at(-5, 4), at(-5, 4), at(-5, 4), at(-5, 4)}; b.words() != want {
		t.Errorf("%x, want %x", b.words(), want)
	}
}

// Where the verifier refuses only the part that merges answers, the kernel carries packets, and the
// answers are user space's. Here that part calls a helper that no kernel has.
func TestAKernelThatRefusesToMerge(t *testing.T) {
	spec, err := loadPrograms()
	fatal(t, err)
	const notAck, noHelper = 0xe0, 1 << 20 // notAck is AETH_NOT_ACK of answers.h
	refused := 0
	code := spec.Programs[programsProgRocastClassify].Instructions
	for i := range code {
		if ins := &code[i]; ins.OpCode.ALUOp() == asm.And && ins.Constant == notAck {
			meta := ins.Metadata
			*ins = asm.BuiltinFunc(noHelper).Call()
			ins.Metadata = meta
			refused++
		}
	}
	b := newAnswerBench(t, false)
	f, err := load(t).loadFanOutOf(spec, testTables(), 0)
	if err != nil || refused == 0 {
		t.Fatalf("%d instructions are refused: %v", refused, err)
	}
	if f.NoMerging() == nil || b.fan.NoMerging() != nil {
		t.Errorf("the kernel cannot merge: %v, and without the refused call: %v", f.NoMerging(), b.fan.NoMerging())
	}
	fatal(t, f.Close())
	fatal(t, b.fan.programs.Classify.Close())
	b.fan.programs.Classify = nil
	var objs struct {
		Program *ebpf.Program `ebpf:"rocast_classify"`
	}
	loadSome(t, b.c, 0, &objs)
	b.fan.programs.Classify = objs.Program
	fatal(t, b.p.Close())
	b.p = unattached(t, b.c, fanPort) // without a socket
	before := b.words()
	expectNone := func(when string) {
		t.Helper()
		if verdict, _ := b.classify(t, b.ack(1, -5, 4).frame()); verdict != PassNoSocket || b.words() != before {
			t.Errorf("an answer%s: %v, %x, want %x", when, verdict, b.words(), before)
		}
	}
	expectNone("")
	// The program that looks in a larger map of the entries merges none either.
	b.fan.noMerging = f.NoMerging()
	fatal(t, b.c.grow())
	if b.fan.programs.Classify == objs.Program {
		t.Error("the map of the entries has grown, and the program is the same")
	}
	expectNone(" after the groups have outgrown their map")
}

// A port beyond those that a slot knows is no other port: what comes there is user space's.
func TestAnswersOfAPortBeyondTheSlots(t *testing.T) {
	b := newAnswerBench(t, false)
	fatal(t, b.p.Close())
	b.p = unattached(t, b.c, fanPort+uint32(SlotPorts)) // without a socket
	before := b.words()
	if verdict, _ := b.classify(t, b.ack(1, -5, 4).frame()); verdict != PassNoSocket || b.words() != before {
		t.Errorf("%v, %x, want %x", verdict, b.words(), before)
	}
}
