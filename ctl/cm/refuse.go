package cm

import (
	"net/netip"

	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// Refuse answers a host that asks by RDMA-CM at an IP at which no Proxy answers: its program would
// ask for a minute. datagram is what has arrived, from its BTH on. It is not answered if it asks
// for nothing.
func Refuse(ip, host netip.Addr, datagram []byte, says string) error {
	const front = roce.BTHBytes + roce.DETHBytes
	if len(datagram) < front+wire.MADBytes {
		return nil
	}
	mad, err := wire.DecodeMAD((*[wire.MADBytes]byte)(datagram[front:]))
	if err != nil {
		return err
	}
	answer := wire.MAD{Header: wire.Header{TID: mad.TID}}
	switch m := mad.Message.(type) {
	case *wire.REQ:
		answer.Message = &wire.REJ{Pair: wire.Pair{Remote: m.LocalCommID}, Reason: wire.InvalidServiceID, PrivateData: inPrivate(says)}
	case *wire.SIDRREQ:
		answer.Message = &wire.SIDRREP{RequestID: m.RequestID, Status: wire.ServiceUnsupported, ServiceID: m.ServiceID}
	default:
		return nil
	}
	s, err := openRaw(ip)
	if err != nil {
		return err
	}
	defer s.raw.Close()
	return s.send(host, &answer)
}
