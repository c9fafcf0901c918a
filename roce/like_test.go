package roce

import (
	"slices"
	"testing"
)

// said is all that DecodeLike says of a frame.
type said struct {
	View
	Flow
	PKey         uint16
	TrafficClass uint8
	HopLimit     uint8
}

func saidBy(v *View, head []byte) said {
	return said{*v, Flow{v.SrcIP(head), v.DstIP(head), v.DestQPN(head)}, v.PKey(head), v.TrafficClass(head), v.HopLimit(head)}
}

// Each bit in front of the PSN decides whether two frames are alike, except those that differ
// between the packets of a message.
func TestFramesThatAreAlikeSayTheSame(t *testing.T) {
	for _, op := range []Opcode{OpWriteMiddle, OpWriteOnly} {
		frame := testFrame(t, ipv4Pair, 0, op, 64)
		view := viewOf(t, frame)
		bth := view.BTH
		mayDiffer := func(i int) bool {
			return i < view.L3-2 || // Ethernet addresses
				i == view.L3+4 || i == view.L3+5 || // identification
				i == view.L3+ipv4ChecksumOffset || i == view.L3+ipv4ChecksumOffset+1 ||
				i == view.UDP+6 || i == view.UDP+7 || // checksum
				i >= bth+8 // AckReq, PSN, and what follows
		}
		for bit := range 8 * len(frame) {
			other := slices.Clone(frame)
			other[bit/8] ^= 1 << (bit % 8)
			v := View{ICRC: 1, VLANs: 1, IPv6: true} // of an earlier frame
			if is, want := v.DecodeLike(view, frame, other), mayDiffer(bit/8); is != want {
				t.Errorf("%v: bit %d of byte %d differs, and the frames are alike: %v", op, bit%8, bit/8, is)
			} else if is && saidBy(&v, other) != saidBy(viewOf(t, other), other) {
				t.Errorf("%v: bit %d of byte %d differs:\n%+v\n%+v", op, bit%8, bit/8, saidBy(&v, other), saidBy(viewOf(t, other), other))
			}
		}
	}
}

// Of frames with tags, of IPv6 and of other lengths nothing is said.
func TestOtherFramesAreAlikeToNone(t *testing.T) {
	for _, pair := range []IPUDP{ipv4Pair, ipv6Pair} {
		for vlans := range 3 {
			frame := testFrame(t, pair, vlans, OpWriteMiddle, 64)
			if is, want := new(View).DecodeLike(viewOf(t, frame), frame, frame), vlans == 0 && pair == ipv4Pair; is != want {
				t.Errorf("%d tags, IPv6 %v: %v", vlans, pair != ipv4Pair, is)
			}
		}
	}
	frame := testFrame(t, ipv4Pair, 0, OpSendOnly, 0)
	v := viewOf(t, frame)
	for n := range len(frame) {
		if new(View).DecodeLike(v, frame, frame[:n]) || new(View).DecodeLike(v, frame[:n], frame) {
			t.Errorf("a frame of %d bytes is like one of %d", n, len(frame))
		}
		if new(View).DecodeLike(v, frame[:n], frame[:n]) != (n >= v.BTH+10) {
			t.Errorf("%d bytes of the head", n)
		}
	}
}
