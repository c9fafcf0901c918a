package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Reply is a frame of our own: to the source a merged acknowledge packet, or a CNP; to a receiver a
// question.
type Reply struct {
	Leg          *mft.Leg
	Group        mft.GroupID
	CNP          bool
	Question     bool
	MigReq       bool
	Shared       bool // see sharedBit
	Nobody       bool // see nobodyBit
	TrafficClass uint8
	HopLimit     uint8
	PCP          uint8 // of VLAN tags that keep the priority of what is answered
	Priority     roce.TagPriority
	PKey         uint16
	PSN          roce.PSN
	AETH         roce.AETH

	event uint64 // see Worker.event; 0: no frame has caused it
}

// nakCounts counts the NAKs and RNR NAKs to sources by their cause. An ACK has no cause and counts
// at 0, which nobody reads.
type nakCounts [feedback.NumCauses]uint64

func (c *nakCounts) add(d *nakCounts) {
	for cause, n := range d {
		c[cause] += n
	}
}

// named appends the counts with their names.
func (c *nakCounts) named(counters []Counter) []Counter {
	for cause := feedback.CauseReceiver; cause < feedback.NumCauses; cause++ {
		counters = append(counters, Counter{"nak-" + cause.String(), c[cause]})
	}
	return counters
}

// replyHopLimit is the hop limit of a merged acknowledge packet: the box answers as a host, with
// the default of Linux (net.ipv4.ip_default_ttl). Packets that the box passes on, copies and CNPs,
// have one less than they came with: two boxes wired in a loop cannot circulate them for ever.
const replyHopLimit = 64

// flowOf returns the UDP source port of what the box says itself: one flow per QP, in RoCEv2's
// range.
func flowOf(destQPN roce.QPN) uint16 { return 0xC000 | uint16(destQPN)&0x3FFF }

// sharedBit of the UDP source port tells the box above that the packet which is answered, or a
// later one, came as a shared copy. The answer comes when the slowest receiver behind this box has
// answered, so when it comes says little of the way to the box.
const sharedBit = 1

// nobodyBit of it tells the box above, in a NAK remote operational, that no receiver is left behind
// this box. Without the bit a receiver's NIC has said that, and others here may be well. A box of
// an older release sets no such bit, and takes no notice of it.
const nobodyBit = 2

// saysShared reports whether an answer of the box behind a path has the bit.
func saysShared(p *mft.Path, v *roce.View, head []byte) bool {
	return p.Box == mft.BoxBelow && v.UDPSrcPort(head) == flowOf(p.RemoteQPN)^sharedBit
}

// saysNobody reports whether a NAK of the box behind a path says that no receiver is left there.
func saysNobody(p *mft.Path, v *roce.View, head []byte) bool {
	return p.Box == mft.BoxBelow && v.UDPSrcPort(head)|sharedBit == flowOf(p.RemoteQPN)^nobodyBit|sharedBit
}

// Append appends the frame to b. The only error is a leg that mixes address families, which control
// never builds.
func (r *Reply) Append(b []byte) ([]byte, error) {
	leg := r.Leg
	b = append(b, leg.L2[:leg.L2Bytes]...)
	r.Priority.Write(b[len(b)-int(leg.L2Bytes):], r.PCP, r.TrafficClass)
	ip := roce.IPUDP{
		Src: leg.Src, Dst: leg.Dst, TrafficClass: r.TrafficClass, HopLimit: r.HopLimit,
		SrcPort: flowOf(leg.DestQPN),
	}
	if r.Shared {
		ip.SrcPort ^= sharedBit
	}
	if r.Nobody {
		ip.SrcPort ^= nobodyBit
	}
	if r.CNP {
		h := roce.CNPHeader(leg.DestQPN)
		h.PKey = r.PKey
		b = ip.Append(b, roce.BTHBytes+roce.CNPBytes)
		b = h.Append(b)
		var body roce.CNP
		return roce.AppendICRC(body.Append(b))
	}
	if r.Question {
		// If it were the packet that the receiver expects, the receiver would refuse it: it begins
		// inside a message.
		h := roce.BTH{Opcode: roce.OpWriteMiddle, AckReq: true, PKey: r.PKey, DestQPN: leg.DestQPN, PSN: r.PSN}
		b = ip.Append(b, roce.BTHBytes)
		return roce.AppendICRC(h.Append(b))
	}
	h := roce.BTH{Opcode: roce.OpAck, MigReq: r.MigReq, PKey: r.PKey, DestQPN: leg.DestQPN, PSN: r.PSN}
	b = ip.Append(b, roce.BTHBytes+roce.AETHBytes)
	b = h.Append(b)
	return roce.AppendICRC(r.AETH.Append(b))
}
