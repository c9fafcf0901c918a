package dataplane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The second range of memory begins where the first one ends, under the same key.
var beside = mft.VirtualRegion{VA: memoryVA + memoryLen, Length: 4096, RKey: memoryKey}

// below are ranges that come before the others in the order of a mft.Memory.
func below(n int) (ranges []mft.VirtualRegion) {
	for i := range n {
		ranges = append(ranges, mft.VirtualRegion{VA: uint64(i) << 12, Length: 4096, RKey: 1})
	}
	return ranges
}

// becomes publishes the next version of a group, with these ranges of memory. A new range is at
// another place at each receiver: at its VA plus the last byte of the receiver's IP times 2^40.
func becomes(t *testing.T, sw *dataplane.Switch, g *mft.Group, ranges ...mft.VirtualRegion) *mft.Group {
	t.Helper()
	next := *g
	next.Paths = slices.Clone(g.Paths)
	var err error
	if next.Memory, err = g.Memory.Become(ranges); err != nil {
		t.Fatal(err)
	}
	for i := range next.Paths {
		p := &next.Paths[i]
		n := p.Dst.As4()[3]
		p.Regions = p.Regions.Follow(g.Memory, next.Memory, func(v mft.VirtualRegion) mft.Region {
			return mft.Region{VA: v.VA + uint64(n)<<40, RKey: 0x2000 + uint32(n)}
		})
	}
	if err := sw.Replace(g.ID, &next); err != nil {
		t.Fatal(err)
	}
	return &next
}

// at returns the packet as a WRITE of length bytes to va.
func (p packet) at(va uint64, rkey uint32, length int) packet {
	p.payload = make([]byte, length)
	p.reth = &roce.RETH{VA: va, RKey: rkey, DMABytes: uint32(length)}
	return p
}

// Ranges come to a running group and leave it. The source WRITEs to all that are there; what is not
// there, what was there, and what lies across two ranges is refused, and the source hears why.
func TestMemoryOfARunningGroup(t *testing.T) {
	first := memory.Range(0)
	many := append(below(2000), first, beside)
	for name, c := range map[string]struct {
		ranges []mft.VirtualRegion
		va     uint64
		rkey   uint32
		length int
		at     uint64 // at receiver B; 0: refused
	}{
		"before":              {[]mft.VirtualRegion{first}, memoryVA + 64, memoryKey, 64, 2<<32 + 64},
		"not known yet":       {[]mft.VirtualRegion{first}, beside.VA, memoryKey, 64, 0},
		"new":                 {many, beside.VA + 8, memoryKey, 64, beside.VA + 8 + 2<<40},
		"the old one":         {many, memoryVA + 64, memoryKey, 64, 2<<32 + 64},
		"the last byte of it": {many, beside.VA - 1, memoryKey, 1, 2<<32 + memoryLen - 1},
		"across both":         {many, beside.VA - 32, memoryKey, 64, 0},
		"far away in it":      {many, 1999<<12 + 5, 1, 64, 1999<<12 + 5 + 2<<40},
		"it has left":         {append(below(3), beside), memoryVA + 64, memoryKey, 64, 0},
		"all have left":       {nil, memoryVA + 64, memoryKey, 64, 0},
		"nothing, anywhere":   {nil, memoryVA + 64, memoryKey, 0, memoryVA + 64},
	} {
		for _, started := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", started), func(t *testing.T) {
				g := group()
				net := newNet(t, g)
				psn := roce.PSN(firstPSN)
				if started {
					say(t, net, write(psn, []byte("x")))
					psn = psn.Next()
					for port := 1; port < 4; port++ {
						net.Ports[port].Take()
					}
					for i := range g.Paths {
						p := &g.Paths[i]
						net.Ports[p.Port].Put(ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).frame(t))
					}
					net.Poll()
					net.Ports[0].Take()
				}
				becomes(t, net.Switch, g, c.ranges...)
				say(t, net, write(psn, nil).at(c.va, c.rkey, c.length))
				out, back := net.Ports[1].Take(), net.Ports[0].Take()
				if c.at == 0 {
					if len(out) != 0 || len(back) != 1 || decode(t, back[0]).Syndrome != roce.NAKRemoteAccess || decode(t, back[0]).PSN != psn {
						t.Fatalf("%d copies, and the source hears %d answers", len(out), len(back))
					}
					if st, _ := net.Switch.GroupState(g.ID); !slices.Contains(st.Counters, dataplane.Counter{Name: "refused-memory", Value: 1}) {
						t.Errorf("counters %v", st.Counters)
					}
					return
				}
				if len(out) != 1 || decode(t, out[0]).VA != c.at || !decode(t, out[0]).ICRCValid {
					t.Fatalf("%d copies; want one at %#x", len(out), c.at)
				}
			})
		}
	}
}

// A retained packet is sent again to where its memory is, although it has another place in the
// table now.
func TestRepairWhileMemoryComes(t *testing.T) {
	b := newRepairBench(t, 64)
	b.send(quiet(1000), asking(1001))
	for port := 1; port < 4; port++ {
		b.Ports[port].Take()
	}
	b.group = becomes(t, b.Switch, b.group, append(below(700), memory.Range(0), beside)...)
	b.answer(0, 1000, roce.NAKSequence)
	out := b.Ports[1].Take()
	if len(out) == 0 {
		t.Fatal("nothing is sent again")
	}
	if d := decode(t, out[0]); d.VA != 2<<32+64 || d.RKey != 0x1002 || !d.ICRCValid {
		t.Errorf("sent again: %+v", d)
	}
	b.settle(1001, 0)
}

// What was retained of memory that has left the group is not sent again. The source hears that the
// receiver lacks the packet, and what happens to its memory when it tries again.
func TestRepairAfterMemoryHasLeft(t *testing.T) {
	b := newRepairBench(t, 64)
	b.send(quiet(1000), asking(1001))
	for port := 1; port < 4; port++ {
		b.Ports[port].Take()
	}
	b.group = becomes(t, b.Switch, b.group, beside)
	for path := 1; path < 3; path++ {
		b.answer(path, 1001, roce.SyndromeUnlimited)
	}
	b.answer(0, 1000, roce.NAKSequence)
	if out := b.Ports[1].Take(); len(out) != 0 {
		t.Fatalf("%d packets are sent again to memory that has left", len(out))
	}
	if n := counter(t, b.Switch, "repair-lost-no-region"); n != 1 {
		t.Errorf("counted %d times", n)
	}
	back := b.Ports[0].Take()
	if len(back) == 0 || decode(t, back[len(back)-1]).Syndrome != roce.NAKSequence {
		t.Fatalf("the source hears %d answers", len(back))
	}
	b.send(quiet(1000))
	if back = b.Ports[0].Take(); len(back) != 1 || decode(t, back[0]).Syndrome != roce.NAKRemoteAccess {
		t.Errorf("the source hears %d answers", len(back))
	}
}

// The engine in front of the core gives a group back whose memory changes, so that it carries no
// WRITE to memory that has left.
func TestTheEngineForgetsMemory(t *testing.T) {
	b, psn := newCarriedBench(t)
	becomes(t, b.Switch, b.group, beside)
	b.expectEngine(false)
	b.Ports[0].Take()
	b.send(quiet(psn))
	if out, back := b.Ports[1].Take(), b.Ports[0].Take(); len(back) != 1 || decode(t, back[0]).Syndrome != roce.NAKRemoteAccess {
		t.Errorf("%d copies, and the source hears %d answers", len(out), len(back))
	}
}

// A group without a range of memory, and one with more than the kernel takes, stays with the core.
func TestMemoryThatTheKernelDoesNotTake(t *testing.T) {
	for want, ranges := range map[error][]mft.VirtualRegion{mft.ErrBlockNoRegion: nil, mft.ErrBlockRegions: below(5)} {
		b, psn := newCarriedBench(t)
		b.group = becomes(t, b.Switch, b.group, ranges...)
		for range 40 {
			p := quiet(psn)
			p.bth.Opcode, p.reth = roce.OpSendOnly, nil
			b.send(p)
			for path := range b.group.Paths {
				b.answer(path, psn, roce.SyndromeUnlimited)
			}
			psn = psn.Next()
		}
		if st, _ := b.Switch.GroupState(b.group.ID); st.Engine.Kernel || st.Engine.Reason != want.Error() {
			t.Errorf("%+v, want %v", st.Engine, want)
		}
	}
}

// A group whose packets may be longer than the kernel takes stays with the core, also with its
// short packets, and its state says why from the beginning.
func TestAPathMTUThatTheKernelDoesNotTake(t *testing.T) {
	g := group()
	g.PathMTU = 4096
	net := porttest.NewFanOutAt(4, nil)
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * calmPackets {
		say(t, net, quiet(roce.PSN(firstPSN).Add(int32(i))))
		st, ok := net.Switch.GroupState(g.ID)
		if !ok || st.Engine.Kernel || st.Engine.Reason != mft.ErrBlockMTU.Error() {
			t.Fatalf("after %d packets: %+v", i+1, st.Engine)
		}
	}
}

// A WRITE that all receivers have executed is acknowledged again when its memory has left, and does
// not count as refused. Nor does a READ count as refused because of memory.
func TestWhatCountsAsRefusedMemory(t *testing.T) {
	g := group()
	net := newNet(t, g)
	done := write(firstPSN, []byte("done"))
	say(t, net, done)
	for i := range g.Paths {
		p := &g.Paths[i]
		net.Ports[p.Port].Put(ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).frame(t))
	}
	net.Poll()
	net.Ports[0].Take()
	becomes(t, net.Switch, g, beside)
	read := write(roce.PSN(firstPSN).Next(), nil)
	read.bth.Opcode = roce.OpReadRequest
	for _, c := range []struct {
		name  string
		again packet
		hears roce.Syndrome
	}{{"filtered", done, roce.SyndromeUnlimited}, {"refused", read, roce.NAKInvalidRequest}} {
		say(t, net, c.again)
		if back := net.Ports[0].Take(); len(back) != 1 || decode(t, back[0]).Syndrome != c.hears || decode(t, back[0]).PSN != c.again.bth.PSN {
			t.Errorf("%s: the source hears %d answers", c.name, len(back))
		}
		if st, _ := net.Switch.GroupState(g.ID); !slices.Contains(st.Counters, dataplane.Counter{Name: c.name, Value: 1}) {
			t.Errorf("counters %v, want one %s", st.Counters, c.name)
		}
	}
}
