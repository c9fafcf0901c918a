package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// groupAt returns the i-th of many groups of one source.
func groupAt(i, receivers int) *mft.Group {
	g := group()
	g.Name = fmt.Sprintf("group-%06d", i)
	at(g, netip.AddrFrom4([4]byte{10, 78 + byte(i>>16), byte(i >> 8), byte(i)}))
	one := g.Paths
	g.Paths = nil
	for k := range receivers {
		p := one[k%len(one)]
		p.Dst = netip.AddrFrom4([4]byte{10, 1, byte(k >> 8), byte(k)})
		g.Paths = append(g.Paths, p)
	}
	return g
}

// BenchmarkHandleAmong measures the decision about one packet of a group of three among many
// groups, from the ID that the classifier wrote in front of it to the three copies: for sixteen of
// the groups in turn, or random ones. The steps are the same for one group and for 100,000, but the
// caches do not hold the random ones.
func BenchmarkHandleAmong(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		a := newAmong(b, n)
		b.Run(fmt.Sprintf("hot/%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				a.handle(b, i%16*(n/16)%n)
			}
		})
		b.Run(fmt.Sprintf("random/%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				h := uint64(i) * 0x9E3779B97F4A7C15
				h = (h ^ h>>29) * 0xBF58476D1CE4E5B9
				a.handle(b, int(h>>40*uint64(n)>>24))
			}
		})
	}
}

// among is a core that has state of all groups of a table.
type among struct {
	table *mft.Table
	core  *dataplane.Core
	icrcs []uint32 // of the first packet, by group
	frame dataplane.Frame
	out   dataplane.Outputs
}

func newAmong(b *testing.B, n int) *among {
	a := &among{table: new(mft.Table), core: dataplane.NewCore(nil)}
	f := &a.frame
	f.Kind, f.FragmentCount = dataplane.KindData, 1
	f.Fragments[0] = write(firstPSN, make([]byte, 64)).frame(b)
	var v roce.View
	if err := v.Decode(f.Head(), f.Len()); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		var err error
		if a.table, err = a.table.With(groupAt(i, 3)); err != nil {
			b.Fatal(err)
		}
		a.address(i)
		a.icrcs = append(a.icrcs, v.ComputeICRC(f.Bytes()))
		a.handle(b, i)
	}
	return a
}

// address changes the frame to one of group i.
func (a *among) address(i int) {
	const checksum, dst = 10, 16
	ip := a.frame.Head()[14:]
	binary.BigEndian.PutUint32(ip[dst:], 10<<24|78<<16+uint32(i))
	binary.BigEndian.PutUint16(ip[checksum:], roce.IPv4HeaderChecksum(ip))
}

func (a *among) handle(b *testing.B, i int) {
	f := &a.frame
	f.Group = mft.GroupID(i)
	a.address(i)
	binary.LittleEndian.PutUint32(f.Head()[f.Len()-4:], a.icrcs[i])
	a.out.Reset()
	if r := a.core.Handle(0, a.table, f, &a.out); len(a.out.Copies) != 3 {
		b.Fatalf("group %d: %v, %d copies", i, r, len(a.out.Copies))
	}
}

// BenchmarkMemory measures the memory that a group with traffic takes beside the table: its merging
// state, which BenchmarkMemory of package feedback measures alone, the distances of its members'
// PSN spaces, the edits of its copies, and what repair knows of it.
func BenchmarkMemory(b *testing.B) {
	const paths = 300_000
	for _, receivers := range []int{3, 64, 512} {
		for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
			benchmarkMemory(b, paths/receivers, receivers, repair)
		}
	}
}

func benchmarkMemory(b *testing.B, n, receivers int, repair feedback.RepairPolicy) {
	b.Run(fmt.Sprintf("%d/repair-%v", receivers, repair), func(b *testing.B) {
		for b.Loop() {
			net := porttest.New(4)
			for i := range n {
				g := groupAt(i, receivers)
				g.Policy.Repair = repair
				if _, err := net.Switch.Add(g); err != nil {
					b.Fatal(err)
				}
			}
			testlab.MeasureHeap(b, n, receivers, func() any {
				for g := range net.Switch.Table().All {
					same := *g
					if err := net.Switch.Replace(g.ID, &same); err != nil {
						b.Fatal(err)
					}
				}
				return net
			})
		}
	})
}
