package workload

import (
	"encoding/binary"

	"github.com/rocast/rocast/roce"
)

// Packet is one packet of the source: number K of group Group, counted from 0. The wire has only
// the low 24 bits of K.
type Packet struct {
	Group  int
	K      uint32
	AckReq bool
}

// packet has the fields of a data frame.
type packet struct {
	dstMAC, srcMAC roce.MAC
	ip             roce.IPUDP
	bth            roce.BTH
	reth           roce.RETH
}

func (w *Workload) sent(p Packet) packet {
	psn := SourcePSN(p.Group).Add(int32(p.K))
	return packet{
		dstMAC: GroupMAC, srcMAC: w.HostMACs[0],
		ip: roce.IPUDP{Src: SourceIP, Dst: GroupIP(p.Group), HopLimit: hopLimit, SrcPort: sourcePort},
		bth: roce.BTH{
			Opcode: roce.OpWriteOnly, PKey: roce.DefaultPKey, DestQPN: GroupQPN, AckReq: p.AckReq, PSN: psn,
		},
		reth: roce.RETH{VA: VA(psn), RKey: MemoryKey, DMABytes: uint32(w.Payload)},
	}
}

// Sent builds the frame of a packet as the source sends it.
func (w *Workload) Sent(p Packet) []byte {
	s := w.sent(p)
	return w.build(&s)
}

// Expected builds the copy of a packet for receiver r from a forwarder with this rewriting. Its
// last four bytes are the right ICRC of the copy. A forwarder whose rewriting is less than All
// leaves the received ICRC there, although it changes fields that the ICRC covers (see ICRCBytes).
func (w *Workload) Expected(level Rewriting, p Packet, r int) []byte {
	s := w.sent(p)
	if level >= Addresses {
		s.dstMAC, s.srcMAC = w.HostMACs[1+r], w.PortMACs[1+r]
		s.ip.Src, s.ip.Dst = GroupIP(p.Group), ReceiverIP(r)
	}
	if level >= Headers {
		s.ip.HopLimit--
		region := Region(p.Group, r)
		s.reth.VA += region.VA - MemoryVA
		s.reth.RKey = region.RKey
		s.bth.DestQPN = ReceiverQPN(p.Group, r)
		s.bth.PSN = ReceiverPSN(p.Group, r).Add(int32(p.K))
	}
	return w.build(&s)
}

// ICRCBytes returns the number of bytes at the end of a copy that differ from Expected.
func (r Rewriting) ICRCBytes() int {
	if r == Addresses || r == Headers {
		return 4
	}
	return 0
}

func (w *Workload) build(p *packet) []byte {
	b := make([]byte, 0, w.FrameBytes())
	b = roce.AppendEthernet(b, p.dstMAC, p.srcMAC, p.ip.EtherType())
	b = p.ip.Append(b, roce.BTHBytes+roce.RETHBytes+w.Payload)
	b = p.reth.Append(p.bth.Append(b))
	for i := 0; i < w.Payload; i += 4 {
		b = binary.LittleEndian.AppendUint32(b, uint32(i/4)*0x9E3779B1)
	}
	b, err := roce.AppendICRC(b)
	if err != nil {
		panic("workload: a frame that it built is malformed: " + err.Error())
	}
	return b
}

// Answer is an answer of a receiver's QP for a group: an ACK, or a NAK for PSN. PSN and MSN count
// as the receiver counts.
type Answer struct {
	Group, Receiver int
	// Direct says that the QP's peer is the source's QP, because the forwarder does not merge
	// answers. Otherwise its peer is the group's QP.
	Direct   bool
	Syndrome roce.Syndrome
	PSN      roce.PSN
	MSN      roce.MSN
}

// AppendAnswer appends the frame of an answer.
func (w *Workload) AppendAnswer(b []byte, a *Answer) []byte {
	mac, dst, qpn := w.PortMACs[1+a.Receiver], GroupIP(a.Group), GroupQPN
	if a.Direct {
		mac, dst, qpn = w.HostMACs[0], SourceIP, SourceQPN(a.Group)
	}
	ip := roce.IPUDP{Src: ReceiverIP(a.Receiver), Dst: dst, HopLimit: hopLimit, SrcPort: sourcePort}
	bth := roce.BTH{Opcode: roce.OpAck, PKey: roce.DefaultPKey, DestQPN: qpn, PSN: a.PSN}
	aeth := roce.AETH{Syndrome: a.Syndrome, MSN: a.MSN}
	b = roce.AppendEthernet(b, mac, w.HostMACs[1+a.Receiver], ip.EtherType())
	b = aeth.Append(bth.Append(ip.Append(b, roce.BTHBytes+roce.AETHBytes)))
	b, err := roce.AppendICRC(b)
	if err != nil {
		panic("workload: an answer of its own is malformed: " + err.Error())
	}
	return b
}
