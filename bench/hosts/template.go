package hosts

import (
	"encoding/binary"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/roce"
)

// template makes a frame of the source in a few nanoseconds, because the source must be faster than
// any forwarder. The ICRC is linear, so the ICRC of a frame is the ICRC of the blank frame XOR one
// table word for each byte that differs from the blank frame.
type template struct {
	blank    []byte // destination 10.0.0.0, PSN 0, no AckReq
	view     roce.View
	icrc     uint32
	ip, psn  [3][256]uint32 // by the byte's position, the last byte first; psn[0] includes the VA
	ackReq   uint32
	checksum uint32 // of the IP header, not folded
}

func newTemplate(w *workload.Workload) (*template, error) {
	t := &template{blank: w.Sent(workload.Packet{})}
	for i := range 3 {
		t.blank[workload.OffDstIP+1+i], t.blank[workload.OffPSN+i] = 0, 0
		t.ip[i] = w.ICRCTable(workload.OffDstIP + 3 - i)
	}
	binary.BigEndian.PutUint64(t.blank[workload.OffVA:], workload.VA(0))
	if err := t.view.Decode(t.blank, len(t.blank)); err != nil {
		return nil, err
	}
	fragments := [1][]byte{t.blank}
	t.icrc = t.view.ComputeICRC(fragments[:])
	t.checksum = uint32(^roce.IPv4HeaderChecksum(t.blank[14:]))
	t.ackReq = w.ICRCTable(workload.OffAckReq)[0x80]
	t.psn = w.PSNTables()
	va := w.VATables()
	for v := range 256 {
		was, is := workload.VA(0), workload.VA(roce.PSN(v))
		for i := range va {
			t.psn[0][v] ^= va[i][byte((was^is)>>(8*i))]
		}
	}
	return t, nil
}

// write makes the frame of a packet in fragments. The fragments must already hold another frame of
// the same template.
func (t *template) write(fragments [][]byte, p workload.Packet) {
	head := fragments[0]
	ip, psn := workload.GroupIP(p.Group).As4(), workload.SourcePSN(p.Group).Add(int32(p.K))
	copy(head[workload.OffDstIP:], ip[:])
	sum := t.checksum + uint32(ip[1]) + uint32(ip[2])<<8 + uint32(ip[3])
	sum = sum>>16 + sum&0xFFFF
	binary.BigEndian.PutUint16(head[workload.OffChecksum:], ^uint16(sum>>16+sum&0xFFFF))
	head[workload.OffAckReq] = 0
	icrc := t.icrc
	if p.AckReq {
		head[workload.OffAckReq] = 0x80
		icrc ^= t.ackReq
	}
	head[workload.OffPSN], head[workload.OffPSN+1], head[workload.OffPSN+2] = byte(psn>>16), byte(psn>>8), byte(psn)
	binary.BigEndian.PutUint64(head[workload.OffVA:], workload.VA(psn))
	icrc ^= t.ip[0][ip[3]] ^ t.ip[1][ip[2]] ^ t.ip[2][ip[1]]
	icrc ^= t.psn[0][byte(psn)] ^ t.psn[1][byte(psn>>8)] ^ t.psn[2][byte(psn>>16)]
	t.view.PutICRC(fragments, icrc)
}
