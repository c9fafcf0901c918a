package workload

import "github.com/rocast/rocast/roce"

// Offsets in a frame, from its first byte.
const (
	OffTTL      = 14 + 8
	OffChecksum = 14 + 10
	OffSrcIP    = 14 + 12
	OffDstIP    = 14 + 16
	OffDestQPN  = 14 + 20 + 8 + 5
	OffAckReq   = 14 + 20 + 8 + 8
	OffPSN      = 14 + 20 + 8 + 9
	OffVA       = 14 + 20 + 8 + 12
	OffRKey     = OffVA + 8
)

// ICRCTable returns the changes of a frame's ICRC when the byte at off changes: entry x is for two
// values whose XOR is x. The ICRC is linear, so the change for several bytes is the XOR of their
// entries.
func (w *Workload) ICRCTable(off int) (t [256]uint32) {
	frame := w.Sent(Packet{})
	was := computeICRC(frame)
	for bit := range 8 {
		frame[off] ^= 1 << bit
		t[1<<bit] = computeICRC(frame) ^ was
		frame[off] ^= 1 << bit
	}
	for x := range t {
		low := x & -x
		t[x] = t[low] ^ t[x^low]
	}
	return t
}

func computeICRC(frame []byte) uint32 {
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		panic("workload: a frame of its own is malformed: " + err.Error())
	}
	fragments := [1][]byte{frame}
	return v.ComputeICRC(fragments[:])
}
