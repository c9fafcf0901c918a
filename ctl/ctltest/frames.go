package ctltest

import (
	"net/netip"

	"github.com/rocast/rocast/roce"
)

// Packet is a RoCE packet on a link without VLAN tags.
type Packet struct {
	From, To string // IPv4
	QPN      roce.QPN
	PSN      roce.PSN
	RETH     *roce.RETH // of a WRITE of one packet
	AETH     *roce.AETH // or of an acknowledge packet
	Payload  []byte
}

// Frame returns the packet's frame. Payload must be a multiple of 4 bytes long.
func (p Packet) Frame() []byte {
	bth := roce.BTH{Opcode: roce.OpWriteOnly, PKey: roce.DefaultPKey, DestQPN: p.QPN, AckReq: true, PSN: p.PSN}
	var body []byte
	if p.AETH != nil {
		bth.Opcode, bth.AckReq = roce.OpAck, false
		body = p.AETH.Append(body)
	} else {
		body = p.RETH.Append(body)
	}
	body = append(body, p.Payload...)
	ip := roce.IPUDP{Src: netip.MustParseAddr(p.From), Dst: netip.MustParseAddr(p.To), HopLimit: 64, SrcPort: 0xC000}
	b := roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, 100}, roce.MAC{2, 0, 0, 0, 0, 1}, ip.EtherType())
	b, err := roce.AppendICRC(append(bth.Append(ip.Append(b, roce.BTHBytes+len(body))), body...))
	if err != nil {
		panic("ctltest: " + err.Error())
	}
	return b
}
