package workload

import (
	"encoding/binary"
	"slices"

	"github.com/rocast/rocast/roce"
)

// Edit has the constants that turn a frame of the source into the copy for one receiver of one
// group: a forwarder that decides nothing needs no more. Its layout is struct edit of the
// benchmark's C programs. Src, Dst, QPN and RKey are in network order.
type Edit struct {
	L2       [14]byte
	Checksum uint16 // added to the one's complement of the IP checksum; includes the TTL's decrement
	Src, Dst [4]byte
	QPN      [4]byte
	RKey     [4]byte
	PSN      uint32 // added
	ICRC     uint32 // XORed; covers all constant fields
	VA       uint64 // added
}

// Edits computes the edits of all groups: those for the receivers of group 0, then of group 1, and
// so on.
func (w *Workload) Edits() []Edit {
	edits := make([]Edit, 0, w.Groups*w.Receivers)
	f := w.newFolder()
	for g := range w.Groups {
		for r := range w.Receivers {
			edits = append(edits, w.edit(f, g, r))
		}
	}
	return edits
}

func (w *Workload) edit(f *folder, g, r int) Edit {
	region := Region(g, r)
	e := Edit{
		Src: GroupIP(g).As4(), Dst: ReceiverIP(r).As4(),
		PSN: uint32(ReceiverPSN(g, r).Sub(SourcePSN(g))), VA: region.VA - MemoryVA,
	}
	copy(e.L2[:], roce.AppendEthernet(nil, w.HostMACs[1+r], w.PortMACs[1+r], 0x0800))
	binary.BigEndian.PutUint32(e.QPN[:], uint32(ReceiverQPN(g, r)))
	binary.BigEndian.PutUint32(e.RKey[:], region.RKey)

	wasSrc, wasDst := SourceIP.As4(), GroupIP(g).As4()
	const ttl, protocol = 1, 0 // any values: the difference of a decrement is always the same
	e.Checksum = checksumDelta(slices.Concat(wasSrc[:], wasDst[:], []byte{ttl, protocol}),
		slices.Concat(e.Src[:], e.Dst[:], []byte{ttl - 1, protocol}))
	var wasQPN, wasKey [4]byte
	binary.BigEndian.PutUint32(wasQPN[:], uint32(GroupQPN))
	binary.BigEndian.PutUint32(wasKey[:], MemoryKey)
	e.ICRC = f.fold(0, wasSrc, e.Src) ^ f.fold(1, wasDst, e.Dst) ^ f.fold(2, wasQPN, e.QPN) ^ f.fold(3, wasKey, e.RKey)
	return e
}

// checksumDelta returns the number to add to the one's complement of an IP checksum when words
// change (RFC 1624: ~m + m').
func checksumDelta(was, is []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(was); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(was[i:])) + uint32(binary.BigEndian.Uint16(is[i:]))
	}
	sum = sum>>16 + sum&0xFFFF
	return uint16(sum>>16 + sum&0xFFFF)
}

// folder has the ICRC tables of the words that are constant for an Edit.
type folder [4][4][256]uint32

func (w *Workload) newFolder() *folder {
	f := new(folder)
	for word, off := range []int{OffSrcIP, OffDstIP, OffDestQPN - 1, OffRKey} {
		for i := range 4 {
			f[word][i] = w.ICRCTable(off + i)
		}
	}
	return f
}

func (f *folder) fold(word int, was, is [4]byte) (icrc uint32) {
	for i := range was {
		icrc ^= f[word][i][was[i]^is[i]]
	}
	return icrc
}

// PSNTables and VATables are the ICRC tables of the bytes of PSN and VA, the last byte first.
func (w *Workload) PSNTables() (t [3][256]uint32) {
	for i := range t {
		t[i] = w.ICRCTable(OffPSN + 2 - i)
	}
	return t
}

// VATables: see PSNTables.
func (w *Workload) VATables() (t [8][256]uint32) {
	for i := range t {
		t[i] = w.ICRCTable(OffVA + 7 - i)
	}
	return t
}
