package xsk

import "golang.org/x/sys/unix"

// Desc is one buffer of a frame in the UMEM, laid out as the kernel's struct xdp_desc. Addr is a
// byte offset into the UMEM, not a pointer; on RX it lies HeadroomBytes into its chunk.
type Desc struct {
	Addr    uint64
	Len     uint32
	Options uint32
}

const (
	// ChunkBytes is the size of every chunk, the largest that the kernel accepts without huge
	// pages.
	ChunkBytes = 4096
	// HeadroomBytes is the room that the kernel leaves in front of a received frame
	// (XDP_PACKET_HEADROOM). XDP metadata lies at its end. A frame that is to be sent may start in
	// it.
	HeadroomBytes = unix.XDP_PACKET_HEADROOM
	// FrameBytes is the longest frame that one chunk receives. A longer frame has several
	// descriptors. On a socket without multi-buffer the kernel drops and counts it
	// (Stats.RxDropped).
	FrameBytes = ChunkBytes - HeadroomBytes
	// MaxFrameDescs is the largest number of descriptors of a received frame: 64 KiB and the
	// Ethernet header.
	MaxFrameDescs = 18

	// maxTransmitDescs is the largest number of descriptors that one skb can hold (MAX_SKB_FRAGS).
	// The kernel drops a longer frame without completing it, so its chunks would never come back.
	maxTransmitDescs = 17
)

// Continues reports whether the frame goes on in the next descriptor (XDP_PKT_CONTD).
func (d Desc) Continues() bool { return d.Options&unix.XDP_PKT_CONTD != 0 }

// FrameDescs returns how many descriptors the first frame of descs has; 0 if descs ends before the
// frame does.
func FrameDescs(descs []Desc) int {
	for i := range descs {
		if !descs[i].Continues() {
			return i + 1
		}
	}
	return 0
}

// ChunkOf returns the start of the chunk that addr points into. The fill ring and the free list
// hold such addresses.
func ChunkOf(addr uint64) uint64 { return addr &^ (ChunkBytes - 1) }

// wholeFrames returns the length of descs without the partial frame at its end.
func wholeFrames(descs []Desc) int {
	n := len(descs)
	for n > 0 && descs[n-1].Continues() {
		n--
	}
	return n
}

// sendable returns how many of descs fit into room without splitting a frame. It stops before a
// frame that is too long to send.
func sendable(descs []Desc, room int) int {
	whole, fragments := 0, 0
	for i := range descs[:min(len(descs), room)] {
		if fragments++; fragments > maxTransmitDescs {
			break
		}
		if !descs[i].Continues() {
			whole, fragments = i+1, 0
		}
	}
	return whole
}
