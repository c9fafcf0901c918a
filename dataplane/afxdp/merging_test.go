package afxdp

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// mergingBench is the kernel's fan-out with three ports, of which none exists.
func mergingBench(t *testing.T) (*fanOut, *mft.Block) {
	t.Helper()
	return retainingBench(t, 0)
}

// retainingBench is mergingBench with memory for that many packets.
func retainingBench(t *testing.T, packets int) (*fanOut, *mft.Block) {
	t.Helper()
	c, err := bpf.LoadFanOut(tables, packets)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	f := newFanOut(c.FanOut())
	d := &devices{fans: map[ports]uint32{{0, 1, 1}: 5}}
	copy(d.ifIndex[:], []uint32{70, 71, 72})
	f.devices.Store(d)
	host := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, n}) }
	source := &mft.Leg{Port: 2, Src: host(100), Dst: host(1), DestQPN: 17}
	source.L2Bytes = uint8(copy(source.L2[:], roce.AppendEthernet(nil, roce.MAC{2, 1}, roce.MAC{2, 2}, 0x0800)))
	b := &mft.Block{
		Ingress: 0, From: roce.Flow{Src: host(1), Dst: host(100), DestQPN: 3}, PKey: 0x8001, TrafficClass: 0x20,
		Source: source, MigReq: true,
	}
	for i := range 2 {
		p := &mft.Path{Leg: mft.Leg{Port: mft.PortID(1 + i)}, RemoteQPN: roce.QPN(30 + i)}
		b.Paths = append(b.Paths, mft.BlockPath{Path: p, Edit: new(roce.Edit), DeltaMSN: int32(-7 + i)})
	}
	return f, b
}

// The source is told in the form of the core's own ACK, by the port of its next hop, which need not
// be that by which its packets come.
func TestTheKernelGetsTheSourcesACK(t *testing.T) {
	f, b := mergingBench(t)
	if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil {
		t.Fatal(err)
	}
	ack := dataplane.MergedACK(b, feedback.Progress{}, 0)
	want, err := ack.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	slot, paths := f.kernel.Slot(3), f.kernel.Paths(3)
	if !bytes.Equal(ackOf(slot, len(want)), want) || slot.Answers != 2 || slot.AckIfindex != 72 || slot.AckPort != 2 || slot.Migrated != 0x40 {
		t.Errorf("%+v, want the ACK %x", slot, want)
	}
	for i := range b.Paths {
		if p := &paths[i]; p.AnswerQpn != uint32(30+i) || int32(p.DeltaMsn) != int32(-7+i) {
			t.Errorf("path %d: %+v", i, p)
		}
	}
	f.Disarm(3)
	b.MigReq = false
	if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil || slot.Migrated != 0 {
		t.Errorf("%v, the answers have MigReq: %#x", err, slot.Migrated)
	}
	f.Disarm(3)
	long := roce.AppendEthernet(nil, roce.MAC{2, 1}, roce.MAC{2, 2}, 0x86DD)
	b.Source.Src, b.Source.Dst = netip.MustParseAddr("fd77::100"), netip.MustParseAddr("fd77::1")
	copy(b.Source.L2[:], long)
	if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil {
		t.Fatal(err)
	}
	six := dataplane.MergedACK(b, feedback.Progress{}, 0)
	if want, err = six.Append(nil); err != nil || !bytes.Equal(ackOf(slot, len(want)), want) {
		t.Errorf("%v, %x, want %x", err, slot.Ack, want)
	}
}

// The kernel finds the paths of a port together, those whose copies leave apart from those whose
// answers come, and the word of each receiver by its path.
func TestTheKernelGetsTheSharedLegs(t *testing.T) {
	f, b := mergingBench(t)
	path := func(port mft.PortID, qpn roce.QPN) mft.BlockPath {
		return mft.BlockPath{Path: &mft.Path{Leg: mft.Leg{Port: port}, RemoteQPN: qpn}, Edit: new(roce.Edit)}
	}
	b.Paths, b.Shares = nil, []mft.BlockPath{path(1, 91), path(2, 92), path(2, 93)}
	for i, port := range []mft.PortID{1, 1, 1, 2, 2} {
		p := path(port, roce.QPN(30+i))
		p.Shared = i != 2
		b.Paths = append(b.Paths, p)
	}
	f.devices.Load().fans = map[ports]uint32{{0, 2, 2}: 5}
	if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil {
		t.Fatal(err)
	}
	slot, paths := f.kernel.Slot(3), f.kernel.Paths(3)
	for i, want := range []struct {
		qpn    uint32
		answer uint8
	}{{30, 0}, {31, 1}, {32, 2}, {91, 0}, {33, 3}, {34, 4}, {92, 0}, {93, 0}} {
		if p := &paths[i]; p.AnswerQpn != want.qpn || p.Answer != want.answer {
			t.Errorf("path %d: %+v, want %+v", i, p, want)
		}
	}
	for port, want := range [][4]uint8{1: {2, 2, 0, 3}, 2: {6, 2, 4, 2}} {
		c, r := slot.Copies[port], slot.Receivers[port]
		if got := [4]uint8{c.First, c.Count, r.First, r.Count}; got != want {
			t.Errorf("port %d: copies and receivers %v, want %v", port, got, want)
		}
	}
	if slot.Fan != 5 || slot.Answers != 5 {
		t.Errorf("fan %d, %d answers", slot.Fan, slot.Answers)
	}
}

// ackOf is the ACK to the source, which has so many bytes.
func ackOf(s *bpf.Slot, bytes int) []byte {
	return append(slices.Clone(s.AckL2[:s.AckL2Bytes]), s.Ack[:bytes-int(s.AckL2Bytes)]...)
}

// The kernel gets the VLANs of the members, and for each tag whether it has the priority of the
// packet. A tag that has not has that of the block's traffic class.
func TestTheKernelGetsTheTags(t *testing.T) {
	f, b := mergingBench(t)
	tagged := roce.AppendVLAN(nil, roce.MAC{2, 1}, roce.MAC{2, 2}, 7, 0x0800)
	qos := roce.NewTagPriority(map[uint32]uint32{0: 1, 2: 6})
	b.VLANs, b.PCP, b.TrafficClass, b.Multipath = mft.VLANs{0x8100_0009}, 5, 0x68, true
	b.Source.L2Bytes, b.Priority = uint8(copy(b.Source.L2[:], tagged)), qos
	for i := range b.Paths {
		p := &b.Paths[i]
		p.Path.L2Bytes = uint8(copy(p.Path.L2[:], tagged))
		*p.Edit = roce.NewEdit(b.From, b.From, tagged)
	}
	b.Paths[1].Edit.Priority = qos
	if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil {
		t.Fatal(err)
	}
	slot, paths := f.kernel.Slot(3), f.kernel.Paths(3)
	if slot.Vlans != b.VLANs || slot.Pcp != 0xA0 || slot.Multipath != 1 || slot.AckL2Bytes != 18 || slot.AckKeeps != 2 || slot.AckL2[14] != 0xC0 {
		t.Errorf("%+v", slot)
	}
	for i, want := range []bpf.Path{{Keeps: 3, L2: [22]uint8{14: 0}}, {Keeps: 2, L2: [22]uint8{14: 0xC0}}} {
		if p := &paths[i]; p.Vlans != [2]uint32{0x8100_0007} || p.Keeps != want.Keeps || p.L2[14] != want.L2[14] || p.L2[15] != 7 {
			t.Errorf("path %d: %+v", i, p)
		}
	}
}

// What the core hands over is what it gets back, of this block only, and the kernel sees the words
// as open between the two.
func TestWhatIsMergedComesBack(t *testing.T) {
	f, b := mergingBench(t)
	at, told := []feedback.Progress{{PSN: 0xFFFFFF, MSN: 7}, {PSN: 3, MSN: 0xFFFFFF}}, feedback.Progress{PSN: 0xFFFFFE, MSN: 5}
	for range 3 { // each with another epoch
		if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil {
			t.Fatal(err)
		}
		epoch := f.kernel.Word(3).Load() >> bpf.WordEpochShift
		if f.kernel.Told(3).Load()>>bpf.WordEpochShift == epoch {
			t.Error("what the source was told in another turn counts for how far the kernel carries")
		}
		if err := f.Merge(3, at, told, 21); err != nil {
			t.Fatal(err)
		}
		if span := f.kernel.Slot(3).Span; span != 21 {
			t.Errorf("the kernel carries up to %d packets beyond what the source was told", span)
		}
		for i, w := range []uint64{f.kernel.Acked(3, 0).Load(), f.kernel.Acked(3, 1).Load(), f.kernel.Told(3).Load()} {
			if w&wordArmed == 0 || w>>bpf.WordEpochShift != epoch {
				t.Errorf("word %d is %x, and the epoch is %x", i, w, epoch)
			}
		}
		f.kernel.Acked(3, 1).Add(1) // an ACK
		got := make([]feedback.Progress, 2)
		if was := f.EndMerge(3, got); was != told || !slices.Equal(got, []feedback.Progress{at[0], {PSN: 4, MSN: 0xFFFFFF}}) {
			t.Errorf("the source was told %v, the paths are at %v", was, got)
		}
		for i, w := range []uint64{f.kernel.Acked(3, 0).Load(), f.kernel.Acked(3, 1).Load(), f.kernel.Told(3).Load()} {
			if w&wordArmed != 0 || w>>bpf.WordEpochShift != epoch {
				t.Errorf("word %d is %x after the end", i, w)
			}
		}
		f.Disarm(3)
	}
}

// The kernel merges no answers where it could not tell the source: the driver of the source's port
// drops what is redirected to it, or the interface is another one than the block has, or there is
// no source.
func TestTheKernelMergesWhereItCanTellTheSource(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *devices, b *mft.Block)
		want   error
	}{
		"it can":         {func(*devices, *mft.Block) {}, nil},
		"a deaf port":    {func(d *devices, _ *mft.Block) { d.deaf[2] = true }, errDeaf},
		"another one is": {func(d *devices, _ *mft.Block) { d.deaf[1] = true }, nil},
		"no source":      {func(_ *devices, b *mft.Block) { b.Source = nil }, errDeaf},
		"a far port":     {func(_ *devices, b *mft.Block) { b.Source.Port = mft.PortID(bpf.SlotPorts) }, errDeaf},
	} {
		f, b := mergingBench(t)
		if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil { // with another block
			t.Fatal(err)
		}
		f.Disarm(3)
		d := *f.devices.Load()
		c.change(&d, b)
		f.devices.Store(&d)
		if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil {
			t.Fatal(err)
		}
		at := make([]feedback.Progress, 2)
		if err := f.Merge(3, at, feedback.Progress{}, 0); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want == nil {
			f.EndMerge(3, at)
			d.ifIndex[2] = 99
			f.devices.Store(&d)
			if err := f.Merge(3, at, feedback.Progress{}, 0); !errors.Is(err, errDeaf) {
				t.Errorf("%s, and the interface is another one: %v", name, err)
			}
			f.noMerging = errors.New("refused")
			if err := f.Merge(3, at, feedback.Progress{}, 0); err != f.noMerging {
				t.Errorf("%s, and the kernel does not: %v", name, err)
			}
		}
		f.Disarm(3)
	}
}
