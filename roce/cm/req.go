package cm

import (
	"encoding/binary"

	"github.com/rocast/rocast/roce"
)

// GID is the address of a port: an IPv6 address, or ::ffff:A.B.C.D for IPv4.
type GID = [16]byte

// REQ asks for a connection (IBTA vol 1, 12.6.5).
//
// StartingPSN is the first PSN that the sender of the REQ expects to receive. The first PSN that it
// sends is the StartingPSN of the REP (cm.c).
type REQ struct {
	LocalCommID     uint32
	VendorID        uint32 // 24 bits
	ServiceID       uint64
	CAGUID          uint64
	QKey            uint32
	QPN             roce.QPN
	Responder       uint8 // READs and atomics that the sender answers at one time
	Initiator       uint8 // READs and atomics that the sender begins at one time
	EECN, PeerEECN  uint32
	PeerCMTimeout   uint8 // 5 bits, 4.096 us * 2^n, as every timeout here
	Transport       uint8 // 2 bits, 0: RC
	FlowControl     bool
	StartingPSN     roce.PSN
	CMTimeout       uint8 // 5 bits
	RetryCount      uint8 // 3 bits
	PKey            uint16
	PathMTU         uint8 // 4 bits: 1 is 256 bytes, each step doubles, 5 is 4096
	RDC             bool
	RNRRetry        uint8 // 3 bits; 7: for ever
	MaxCMRetries    uint8 // 4 bits
	SRQ             bool
	ExtTransport    uint8 // 3 bits
	Primary, Second Path  // Second is all zero if there is no alternate path
	PrivateData     [92]byte
}

// Path is how the sender of a REQ reaches its peer.
type Path struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID GID
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	ACKTimeout          uint8 // 5 bits
}

const (
	primaryOffset = 52
	secondOffset  = 96
	reqPrivate    = 140
)

func (*REQ) Attribute() Attribute { return AttrREQ }

func (m *REQ) decode(b *[messageBytes]byte) error {
	*m = REQ{
		LocalCommID: binary.BigEndian.Uint32(b[0:]), VendorID: uint24(b[5:]),
		ServiceID: binary.BigEndian.Uint64(b[8:]), CAGUID: binary.BigEndian.Uint64(b[16:]),
		QKey: binary.BigEndian.Uint32(b[28:]), QPN: roce.QPN(uint24(b[32:])),
		Responder: b[35], EECN: uint24(b[36:]), Initiator: b[39], PeerEECN: uint24(b[40:]),
		PeerCMTimeout: b[43] >> 3, Transport: b[43] >> 1 & 3, FlowControl: b[43]&1 != 0,
		StartingPSN: roce.PSN(uint24(b[44:])), CMTimeout: b[47] >> 3, RetryCount: b[47] & 7,
		PKey: binary.BigEndian.Uint16(b[48:]), PathMTU: b[50] >> 4, RDC: b[50]&8 != 0, RNRRetry: b[50] & 7,
		MaxCMRetries: b[51] >> 4, SRQ: b[51]&8 != 0, ExtTransport: b[51] & 7,
		PrivateData: [92]byte(b[reqPrivate:]),
	}
	m.Primary.decode(b[primaryOffset:])
	m.Second.decode(b[secondOffset:])
	return nil
}

func (m *REQ) encode(b *[messageBytes]byte) {
	binary.BigEndian.PutUint32(b[0:], m.LocalCommID)
	put24(b[5:], m.VendorID)
	binary.BigEndian.PutUint64(b[8:], m.ServiceID)
	binary.BigEndian.PutUint64(b[16:], m.CAGUID)
	binary.BigEndian.PutUint32(b[28:], m.QKey)
	put24(b[32:], uint32(m.QPN))
	b[35] = m.Responder
	put24(b[36:], m.EECN)
	b[39] = m.Initiator
	put24(b[40:], m.PeerEECN)
	b[43] = m.PeerCMTimeout<<3 | m.Transport&3<<1 | flag(m.FlowControl, 1)
	put24(b[44:], uint32(m.StartingPSN))
	b[47] = m.CMTimeout<<3 | m.RetryCount&7
	binary.BigEndian.PutUint16(b[48:], m.PKey)
	b[50] = m.PathMTU<<4 | flag(m.RDC, 8) | m.RNRRetry&7
	b[51] = m.MaxCMRetries<<4 | flag(m.SRQ, 8) | m.ExtTransport&7
	m.Primary.encode(b[primaryOffset:])
	m.Second.encode(b[secondOffset:])
	copy(b[reqPrivate:], m.PrivateData[:])
}

func (p *Path) decode(b []byte) {
	*p = Path{
		LocalLID: binary.BigEndian.Uint16(b[0:]), RemoteLID: binary.BigEndian.Uint16(b[2:]),
		LocalGID: GID(b[4:]), RemoteGID: GID(b[20:]),
		FlowLabel: uint24(b[36:]) >> 4, Rate: b[39] & 0x3F, TrafficClass: b[40], HopLimit: b[41],
		SL: b[42] >> 4, SubnetLocal: b[42]&8 != 0, ACKTimeout: b[43] >> 3,
	}
}

func (p *Path) encode(b []byte) {
	binary.BigEndian.PutUint16(b[0:], p.LocalLID)
	binary.BigEndian.PutUint16(b[2:], p.RemoteLID)
	copy(b[4:], p.LocalGID[:])
	copy(b[20:], p.RemoteGID[:])
	put24(b[36:], p.FlowLabel<<4)
	b[39], b[40], b[41] = p.Rate&0x3F, p.TrafficClass, p.HopLimit
	b[42] = p.SL<<4 | flag(p.SubnetLocal, 8)
	b[43] = p.ACKTimeout << 3
}
