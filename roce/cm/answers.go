package cm

import (
	"encoding/binary"
	"fmt"

	"github.com/rocast/rocast/roce"
)

// Pair names a connection by the number that each side gave it: Local is that of the sender of the
// message.
type Pair struct{ Local, Remote uint32 }

func (p *Pair) decode(b []byte) {
	p.Local, p.Remote = binary.BigEndian.Uint32(b[0:]), binary.BigEndian.Uint32(b[4:])
}

func (p *Pair) encode(b []byte) {
	binary.BigEndian.PutUint32(b[0:], p.Local)
	binary.BigEndian.PutUint32(b[4:], p.Remote)
}

// REP accepts a REQ (IBTA vol 1, 12.6.8).
type REP struct {
	Pair
	QKey        uint32
	QPN         roce.QPN
	EECN        uint32
	StartingPSN roce.PSN // what the sender of the REP expects first
	VendorID    uint32   // 24 bits, one byte each behind QPN, EECN and PSN
	Responder   uint8
	Initiator   uint8
	ACKDelay    uint8 // 5 bits
	Failover    uint8 // 2 bits
	FlowControl bool
	RNRRetry    uint8 // 3 bits
	SRQ         bool
	CAGUID      uint64
	PrivateData [196]byte
}

const repPrivate = 36

func (*REP) Attribute() Attribute { return AttrREP }

func (m *REP) decode(b *[messageBytes]byte) error {
	*m = REP{
		QKey: binary.BigEndian.Uint32(b[8:]), QPN: roce.QPN(uint24(b[12:])), EECN: uint24(b[16:]),
		StartingPSN: roce.PSN(uint24(b[20:])), VendorID: uint32(b[15])<<16 | uint32(b[19])<<8 | uint32(b[23]),
		Responder: b[24], Initiator: b[25], ACKDelay: b[26] >> 3, Failover: b[26] >> 1 & 3, FlowControl: b[26]&1 != 0,
		RNRRetry: b[27] >> 5, SRQ: b[27]&0x10 != 0, CAGUID: binary.BigEndian.Uint64(b[28:]),
		PrivateData: [196]byte(b[repPrivate:]),
	}
	m.Pair.decode(b[:])
	return nil
}

func (m *REP) encode(b *[messageBytes]byte) {
	m.Pair.encode(b[:])
	binary.BigEndian.PutUint32(b[8:], m.QKey)
	put24(b[12:], uint32(m.QPN))
	put24(b[16:], m.EECN)
	put24(b[20:], uint32(m.StartingPSN))
	b[15], b[19], b[23] = byte(m.VendorID>>16), byte(m.VendorID>>8), byte(m.VendorID)
	b[24], b[25] = m.Responder, m.Initiator
	b[26] = m.ACKDelay<<3 | m.Failover&3<<1 | flag(m.FlowControl, 1)
	b[27] = m.RNRRetry<<5 | flag(m.SRQ, 0x10)
	binary.BigEndian.PutUint64(b[28:], m.CAGUID)
	copy(b[repPrivate:], m.PrivateData[:])
}

// RTU says that the REP has arrived (IBTA vol 1, 12.6.9).
type RTU struct {
	Pair
	PrivateData [224]byte
}

func (*RTU) Attribute() Attribute { return AttrRTU }

func (m *RTU) decode(b *[messageBytes]byte) error {
	m.Pair.decode(b[:])
	m.PrivateData = [224]byte(b[8:])
	return nil
}

func (m *RTU) encode(b *[messageBytes]byte) {
	m.Pair.encode(b[:])
	copy(b[8:], m.PrivateData[:])
}

// DREQ ends a connection (IBTA vol 1, 12.6.10). Linux ignores a DREQ whose RemoteQPN is not its
// own.
type DREQ struct {
	Pair
	RemoteQPN   roce.QPN
	PrivateData [220]byte
}

func (*DREQ) Attribute() Attribute { return AttrDREQ }

func (m *DREQ) decode(b *[messageBytes]byte) error {
	m.Pair.decode(b[:])
	m.RemoteQPN, m.PrivateData = roce.QPN(uint24(b[8:])), [220]byte(b[12:])
	return nil
}

func (m *DREQ) encode(b *[messageBytes]byte) {
	m.Pair.encode(b[:])
	put24(b[8:], uint32(m.RemoteQPN))
	copy(b[12:], m.PrivateData[:])
}

// DREP answers a DREQ (IBTA vol 1, 12.6.11).
type DREP struct {
	Pair
	PrivateData [224]byte
}

func (*DREP) Attribute() Attribute { return AttrDREP }

func (m *DREP) decode(b *[messageBytes]byte) error {
	m.Pair.decode(b[:])
	m.PrivateData = [224]byte(b[8:])
	return nil
}

func (m *DREP) encode(b *[messageBytes]byte) {
	m.Pair.encode(b[:])
	copy(b[8:], m.PrivateData[:])
}

// Answered says which message a REJ or MRA answers.
type Answered uint8

const (
	AnswersREQ Answered = iota
	AnswersREP
	AnswersOther // REJ: no message; MRA: a LAP
)

// MRA asks the other side to wait: the answer takes longer (IBTA vol 1, 12.6.6).
type MRA struct {
	Pair
	Answers        Answered
	ServiceTimeout uint8 // 5 bits, 4.096 us * 2^n
	PrivateData    [222]byte
}

func (*MRA) Attribute() Attribute { return AttrMRA }

func (m *MRA) decode(b *[messageBytes]byte) error {
	m.Pair.decode(b[:])
	m.Answers, m.ServiceTimeout, m.PrivateData = Answered(b[8]>>6), b[9]>>3, [222]byte(b[10:])
	return nil
}

func (m *MRA) encode(b *[messageBytes]byte) {
	m.Pair.encode(b[:])
	b[8], b[9] = byte(m.Answers)<<6, m.ServiceTimeout<<3
	copy(b[10:], m.PrivateData[:])
}

// REJ refuses a connection (IBTA vol 1, 12.6.7).
type REJ struct {
	Pair
	Answers     Answered
	InfoBytes   uint8 // 7 bits: bytes of Info that mean something
	Reason      Reason
	Info        [72]byte
	PrivateData [148]byte
}

func (*REJ) Attribute() Attribute { return AttrREJ }

func (m *REJ) decode(b *[messageBytes]byte) error {
	m.Pair.decode(b[:])
	m.Answers, m.InfoBytes, m.Reason = Answered(b[8]>>6), b[9]>>1, Reason(binary.BigEndian.Uint16(b[10:]))
	m.Info, m.PrivateData = [72]byte(b[12:]), [148]byte(b[84:])
	if int(m.InfoBytes) > len(m.Info) {
		return ErrLength
	}
	return nil
}

func (m *REJ) encode(b *[messageBytes]byte) {
	m.Pair.encode(b[:])
	b[8], b[9] = byte(m.Answers)<<6, m.InfoBytes<<1
	binary.BigEndian.PutUint16(b[10:], uint16(m.Reason))
	copy(b[12:], m.Info[:])
	copy(b[84:], m.PrivateData[:])
}

// Reason is the code of a REJ (IBTA vol 1, 12.6.7.2).
type Reason uint16

// The reasons that rocast gives.
const (
	NoResources      Reason = 3
	Timeout          Reason = 4
	InvalidCommID    Reason = 6
	InvalidServiceID Reason = 8
	InvalidTransport Reason = 9
	StaleConnection  Reason = 10
	InvalidGID       Reason = 12
	InvalidPathMTU   Reason = 26
	ConsumerDefined  Reason = 28 // the program of the other side says no, or nothing in particular
)

var reasonNames = map[Reason]string{
	NoResources: "no resources", Timeout: "timeout", InvalidCommID: "invalid comm ID", InvalidServiceID: "invalid service ID", InvalidTransport: "invalid transport",
	StaleConnection: "stale connection", InvalidGID: "invalid GID", InvalidPathMTU: "invalid path MTU",
	ConsumerDefined: "consumer defined",
}

func (r Reason) String() string {
	if name := reasonNames[r]; name != "" {
		return name
	}
	return fmt.Sprintf("reason %d", uint16(r))
}
