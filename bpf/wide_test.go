package bpf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rocast/rocast/roce"
)

// firstBufferBytes is what BPF_PROG_TEST_RUN puts into the first buffer of a longer frame: a page,
// without headroom and what the kernel keeps behind the frame.
const firstBufferBytes = 4096 - 256 - 320

// newWideBench is a bench whose fan has one port.
func newWideBench(t *testing.T) *fanBench {
	t.Helper()
	b := newFanBench(t)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	put(t, b.c, Key{Dst: group6, QPN: groupQPN, Match: MatchDstQPN}, fanGroup)
	fatal(t, b.fan.PutFan(0, []*Port{{ifindex: loopback, number: fanPort}}))
	return b
}

// armWide is arm for a group whose packets may have several buffers. It retains as many packets as
// half of the map has room for.
func (b *fanBench) armWide(f *flow, psn roce.PSN) *Slot {
	b.arm(f, psn, 1)
	slot := b.fan.Slot(fanGroup)
	slot.Wide, slot.RetainedFirst, slot.RetainedPackets = 1, 0, fanRetained
	return slot
}

// A packet of any length up to a path MTU of 4096 is carried where one copy of it leaves: retained
// as it came, and its copy is right to the byte, wherever the ICRC lies among the buffers.
func TestWideCopies(t *testing.T) {
	b := newWideBench(t)
	plain := roce.AppendEthernet(nil, roce.MAC{2, 9, 9, 9, 9, 9}, roce.MAC{2, 8, 8, 8, 8, 8}, 0x0800)
	opcodes := []roce.Opcode{
		roce.OpWriteOnlyImm, roce.OpSendFirst, roce.OpWriteMiddle, roce.OpSendLastImm, roce.OpWriteOnly, roce.OpSendOnly,
	}
	r := rand.New(rand.NewPCG(3, 4))
	var across, first, second int // where the ICRC was
	check := func(n, payload int) {
		t.Helper()
		ipv6, l2 := n%2 == 1, slices.Clone(plain)
		for range n % 3 {
			l2 = slices.Insert(l2, 12, 0x81, 0x00, 0x00, 0x07)
		}
		if ipv6 {
			copy(l2[len(l2)-2:], []byte{0x86, 0xDD})
		}
		f := newFlow(ipv6, l2)
		f.tags = [][]byte{nil, {0x81, 0, 0x60, 7}, {0x88, 0xA8, 0xBF, 0xFF, 0x81, 0, 0xE0, 1}}[n/3%3]
		o, psn := opcodes[n%len(opcodes)], roce.PSN(0xFFFFFF-n%3)
		slot := b.armWide(f, psn)
		slot.RegionCount = uint8(n % 2) // 0: any memory
		frame := f.packet(o, psn, payload)
		switch icrc := len(frame) - 4; {
		case icrc >= firstBufferBytes:
			second++
		case len(frame) <= firstBufferBytes:
			first++
		default:
			across++
		}
		verdict, tagged := b.classify(t, frame)
		if verdict != RedirectFanOut {
			t.Fatalf("%v with %d bytes, IPv6 %v: %v, events %v", o, payload, ipv6, verdict, events(t, b.fan))
		}
		if got := b.fan.Payload(fanGroup); got != uint64(payload) {
			t.Fatalf("%v with %d bytes: %d bytes are counted", o, payload, got)
		}
		if got := b.retained(psn); !bytes.Equal(got, frame) {
			t.Fatalf("%v with %d bytes, IPv6 %v: of %d bytes %d are retained, or others", o, payload, ipv6, len(frame), len(got))
		}
		action, out := b.run(t, tagged)
		want := f.want(t, frame)
		if slot.RegionCount == 0 && o.Headers().Has(roce.HasRETH) {
			f.target = roce.NewTarget(0, f.region.fromKey, 0, f.region.fromKey) // the memory stays as the source names it
			want = f.want(t, frame)
		}
		if action != actionPass || !bytes.Equal(out, want) {
			t.Fatalf("%v with %d bytes, IPv6 %v: action %d, %d bytes, want %d, or other ones", o, payload, ipv6, action, len(out), len(want))
		}
	}
	for n := range 60 { // around the end of the first buffer, with all headers
		for payload := firstBufferBytes - 140; payload <= firstBufferBytes; payload += 1 + n%4 {
			check(n, payload)
		}
	}
	for n := range 200 {
		check(n, r.IntN(4097))
	}
	for n := range 36 {
		check(n, 4096)
	}
	if first == 0 || second == 0 || across == 0 {
		t.Errorf("the ICRC was %d times in the first buffer, %d times in the second one, %d times in both", first, second, across)
	}
}

// What is not the plain packet of a wide group disarms it, as for any other group.
func TestWhatDisarmsAWideGroup(t *testing.T) {
	b := newWideBench(t)
	const psn, payload, l3, udp, bth = 7, 4096, 14, 34, 42
	for _, tt := range []struct {
		name   string
		change func(frame []byte, s *Slot) []byte
		want   string // "": carried
	}{
		{"as it should be", func(f []byte, _ *Slot) []byte { return f }, ""},
		{"not wide", func(f []byte, s *Slot) []byte { s.Wide = 0; return f }, "disarmed_header"},
		{"bytes behind the packet", func(f []byte, _ *Slot) []byte { return append(f, 0, 0, 0, 0) }, "disarmed_header"},
		{"a byte behind the packet", func(f []byte, _ *Slot) []byte { return append(f, 0) }, "disarmed_header"},
		{"lengths beyond the frame", func(f []byte, _ *Slot) []byte { return f[:len(f)-4] }, "disarmed_header"},
		{"a length one byte beyond the frame", func(f []byte, _ *Slot) []byte { return f[:len(f)-1] }, "disarmed_header"},
		{"cut off behind the first buffer", func(f []byte, _ *Slot) []byte { return f[:firstBufferBytes] }, "disarmed_header"},
		{"more than the path MTU", func(f []byte, s *Slot) []byte { s.Mtu = payload - 1; return f }, "disarmed_header"},
		{"another PSN", func(f []byte, _ *Slot) []byte { f[bth+11]++; return f }, "disarmed_psn"},
		{"beyond the limit", func(f []byte, s *Slot) []byte { s.Limit = psn - 1; return f }, "disarmed_limit"},
		{"another region", func(f []byte, s *Slot) []byte { s.Regions[0].Rkey++; return f }, "disarmed_region"},
		{"beyond the region", func(f []byte, s *Slot) []byte { s.Regions[0].Length = 24 + payload - 1; return f }, "disarmed_region"},
		{"no fan", func(f []byte, s *Slot) []byte { s.Fan = 1; return f }, "disarmed_fan"},
		{"a fan without its port", func(f []byte, s *Slot) []byte { s.Fan = 2; return f }, "disarmed_fan"},
		{"the last entry", func(f []byte, s *Slot) []byte { s.RetainedFirst, s.RetainedPackets = 2*fanRetained-2, 1; return f }, ""},
		{"no entry for its end", func(f []byte, s *Slot) []byte { s.RetainedFirst, s.RetainedPackets = 2*fanRetained-1, 1; return f }, "disarmed_retain"},
		{"no entry", func(f []byte, s *Slot) []byte { s.RetainedFirst, s.RetainedPackets = 2*fanRetained, 1; return f }, "disarmed_retain"},
		{"nothing is retained", func(f []byte, s *Slot) []byte { s.RetainedFirst, s.RetainedPackets = 2*fanRetained, 0; return f }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fatal(t, b.fan.PutFan(2, nil))
			f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
			slot := b.armWide(f, psn)
			frame := tt.change(f.packet(roce.OpWriteOnly, psn, payload), slot)
			before := events(t, b.fan)
			verdict, out := b.classify(t, frame)
			happened := movedEvents(before, events(t, b.fan))
			word := b.fan.Word(fanGroup).Load()
			if tt.want == "" {
				if verdict != RedirectFanOut || len(happened) != 0 || word&0xFFFFFF != psn+1 {
					t.Errorf("%v, %v, word %#x", verdict, happened, word)
				}
				return
			}
			if verdict != RedirectData || len(happened) != 1 || happened[tt.want] != 1 || word != psn|fanEpoch<<50 {
				t.Errorf("%v, %v, word %#x", verdict, happened, word)
			}
			if !bytes.Equal(out[MetaBytes:], frame) {
				t.Error("the frame changed")
			}
		})
	}
}

// The packets of a wide group have two entries each, and a packet that has room in the first one
// leaves the second one alone. A packet of which one entry is another's is not found.
func TestEntriesOfAWideGroup(t *testing.T) {
	b := newWideBench(t)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
	const first, packets = roce.PSN(0xFFFFFE), fanRetained / 2 // before the wrap
	slot := b.armWide(f, first)
	slot.RetainedFirst, slot.RetainedPackets = fanRetained, packets
	entryOf := func(psn roce.PSN) int { return fanRetained + 2*int(psn%packets) }
	retained := func(psn roce.PSN) []byte {
		head, rest := b.fan.Retained(fanGroup, entryOf(psn), uint32(psn))
		return slices.Concat(head, rest)
	}
	lengths := []int{4096, 64, 2048, 3000, 100, 4096, 4092, 2200, 1, RetainedBytes - 58, RetainedBytes - 57}
	var sent [][]byte
	for i, payload := range lengths {
		frame := f.packet(roce.OpSendOnly, first.Add(int32(i)), payload)
		if verdict, _ := b.classify(t, frame); verdict != RedirectFanOut {
			t.Fatalf("packet %d: %v, %v", i, verdict, events(t, b.fan))
		}
		sent = append(sent, frame)
	}
	for i, frame := range sent {
		psn := first.Add(int32(i))
		switch got := retained(psn); {
		case i < len(sent)-packets && len(got) > 0:
			t.Errorf("packet %d is still there", i)
		case i >= len(sent)-packets && !bytes.Equal(got, frame):
			t.Errorf("packet %d: %d bytes are retained of %d, or others", i, len(got), len(frame))
		}
	}
	for i := range fanRetained {
		if b.fan.entries()[i].Bytes != 0 {
			t.Errorf("entry %d of another group was written", i)
		}
	}
	if e := &b.fan.entries()[entryOf(first.Add(8))+1]; e.packet().Load()&0xFFFFFF == uint64(first.Add(8)) {
		t.Error("a packet that has room in one entry has two")
	}
	last := first.Add(int32(len(sent) - 1))
	for k := range 2 {
		word := b.fan.entries()[entryOf(last)+k].packet()
		was := word.Swap(^uint64(0))
		if got := retained(last); len(got) > 0 {
			t.Errorf("%d bytes are found although entry %d is none of the packet's", len(got), k)
		}
		word.Store(was)
	}
	if got := retained(last); len(got) != len(sent[len(sent)-1]) {
		t.Errorf("%d bytes are found", len(got))
	}
	if head, _ := b.fan.Retained(fanGroup, 2*fanRetained, uint32(last)); head != nil {
		t.Error("a packet is found behind the map")
	}
}

// A copy whose frame ends before its ICRC is dropped, wherever the frame ends among the buffers.
func TestAWideCopyThatIsCutShort(t *testing.T) {
	b := newWideBench(t)
	f := newFlow(false, roce.AppendEthernet(nil, roce.MAC{2, 9}, roce.MAC{2, 8}, 0x0800))
	b.armWide(f, 7)
	_, tagged := b.classify(t, f.packet(roce.OpWriteOnly, 7, 4096))
	for _, bytes := range []int{len(tagged) - 1, len(tagged) - 4, firstBufferBytes + 1, firstBufferBytes, firstBufferBytes - 1} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			before := events(t, b.fan)
			action, _ := b.run(t, tagged[:bytes])
			if happened := movedEvents(before, events(t, b.fan)); action != actionDrop || happened["copy_malformed"] != 1 {
				t.Errorf("action %d, %v", action, happened)
			}
		})
	}
}
