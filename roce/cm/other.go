package cm

import "encoding/binary"

// LAP asks for an alternate path (IBTA vol 1, 12.8.1). Only what its answer needs is read.
type LAP struct{ Pair }

func (*LAP) Attribute() Attribute { return AttrLAP }

func (m *LAP) decode(b *[messageBytes]byte) error {
	m.Pair.decode(b[:])
	return nil
}

func (m *LAP) encode(b *[messageBytes]byte) { m.Pair.encode(b[:]) }

// APR answers a LAP (IBTA vol 1, 12.8.2).
type APR struct {
	Pair
	Status uint8
}

// PathUnsupported is the status of an APR: the sender has no alternate paths.
const PathUnsupported = 2

func (*APR) Attribute() Attribute { return AttrAPR }

func (m *APR) decode(b *[messageBytes]byte) error {
	m.Pair.decode(b[:])
	m.Status = b[9]
	return nil
}

func (m *APR) encode(b *[messageBytes]byte) {
	m.Pair.encode(b[:])
	b[9] = m.Status
}

// SIDRREQ asks for the UD queue pair of a service (IBTA vol 1, 12.11.1).
type SIDRREQ struct {
	RequestID   uint32
	PKey        uint16
	ServiceID   uint64
	PrivateData [216]byte
}

func (*SIDRREQ) Attribute() Attribute { return AttrSIDRREQ }

func (m *SIDRREQ) decode(b *[messageBytes]byte) error {
	*m = SIDRREQ{
		RequestID: binary.BigEndian.Uint32(b[0:]), PKey: binary.BigEndian.Uint16(b[4:]), ServiceID: binary.BigEndian.Uint64(b[8:]),
		PrivateData: [216]byte(b[16:]),
	}
	return nil
}

func (m *SIDRREQ) encode(b *[messageBytes]byte) {
	binary.BigEndian.PutUint32(b[0:], m.RequestID)
	binary.BigEndian.PutUint16(b[4:], m.PKey)
	binary.BigEndian.PutUint64(b[8:], m.ServiceID)
	copy(b[16:], m.PrivateData[:])
}

// SIDRREP answers a SIDRREQ (IBTA vol 1, 12.11.2). Only a refusal has no further fields.
type SIDRREP struct {
	RequestID uint32
	Status    uint8
	ServiceID uint64
}

// ServiceUnsupported is the status of a SIDRREP: the service has no UD queue pair.
const ServiceUnsupported = 1

func (*SIDRREP) Attribute() Attribute { return AttrSIDRREP }

func (m *SIDRREP) decode(b *[messageBytes]byte) error {
	*m = SIDRREP{RequestID: binary.BigEndian.Uint32(b[0:]), Status: b[4], ServiceID: binary.BigEndian.Uint64(b[12:])}
	return nil
}

func (m *SIDRREP) encode(b *[messageBytes]byte) {
	binary.BigEndian.PutUint32(b[0:], m.RequestID)
	b[4] = m.Status
	binary.BigEndian.PutUint64(b[12:], m.ServiceID)
}
