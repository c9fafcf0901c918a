package cm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rocast/rocast/roce"
)

const (
	// QPN is the queue pair that receives MADs (GSI).
	QPN roce.QPN = 1
	// QKey is the Q_Key of that queue pair on every port (IBTA vol 1, 10.2.5).
	QKey uint32 = 0x80010000
	// MADBytes is the length of every MAD.
	MADBytes = 256
	// TransportBytes is the length of what [MAD.Append] writes.
	TransportBytes = roce.BTHBytes + roce.DETHBytes + MADBytes

	headerBytes  = 24
	messageBytes = MADBytes - headerBytes

	baseVersion   = 1
	classCM       = 0x07
	classVersion  = 2
	methodSend    = 0x03
	statusOffset  = 4
	tidOffset     = 8
	attrOffset    = 16
	modifierStart = 20
)

// Errors of [Decode]. None of them carries bytes of the frame.
var (
	ErrNotMAD    = errors.New("the frame is no MAD to queue pair 1")
	ErrICRC      = errors.New("the ICRC is wrong")
	ErrNotCM     = errors.New("the MAD is not of connection management version 2")
	ErrAttribute = errors.New("connection management has no such message")
	ErrLength    = errors.New("the message claims more bytes than it has")
)

// Attribute says which message a MAD carries.
type Attribute uint16

// The messages of chapter 12. Those behind DREP have no use here: SIDR is for UD, and Linux ignores
// LAP and APR on RoCE (cm.c).
const (
	AttrREQ Attribute = 0x10 + iota
	AttrMRA
	AttrREJ
	AttrREP
	AttrRTU
	AttrDREQ
	AttrDREP
	AttrSIDRREQ
	AttrSIDRREP
	AttrLAP
	AttrAPR
)

var attributeNames = [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"}

func (a Attribute) String() string {
	if i := int(a) - int(AttrREQ); i >= 0 && i < len(attributeNames) {
		return attributeNames[i]
	}
	return fmt.Sprintf("attribute %#x", uint16(a))
}

// Message is one of *[REQ], *[REP], *[RTU], *[REJ], *[MRA], *[DREQ], *[DREP], *[SIDRREQ],
// *[SIDRREP], *[LAP] and *[APR].
type Message interface {
	Attribute() Attribute
	decode(b *[messageBytes]byte) error
	encode(b *[messageBytes]byte)
}

// Header has the fields of a MAD's header that differ between messages.
type Header struct {
	TID      uint64 // transaction: an answer repeats that of the request
	Modifier uint32 // with a REQ or REP, options of the vendor named in the message
}

// MAD is a message with its header.
type MAD struct {
	Header
	Message Message
}

// newMessage returns nil for an attribute that has no message.
func newMessage(a Attribute) Message {
	switch a {
	case AttrREQ:
		return new(REQ)
	case AttrMRA:
		return new(MRA)
	case AttrREJ:
		return new(REJ)
	case AttrREP:
		return new(REP)
	case AttrRTU:
		return new(RTU)
	case AttrDREQ:
		return new(DREQ)
	case AttrDREP:
		return new(DREP)
	case AttrSIDRREQ:
		return new(SIDRREQ)
	case AttrSIDRREP:
		return new(SIDRREP)
	case AttrLAP:
		return new(LAP)
	case AttrAPR:
		return new(APR)
	}
	return nil
}

// Decode reads a whole frame, which begins with its Ethernet header. It checks the ICRC, the
// envelope and every length.
func Decode(frame []byte) (MAD, error) {
	var v roce.View
	if v.Decode(frame, len(frame)) != nil || v.Opcode != roce.OpUDSendOnly || v.PayloadBytes != MADBytes || v.PadCount != 0 {
		return MAD{}, ErrNotMAD
	}
	if !v.ICRCValid([][]byte{frame}) {
		return MAD{}, ErrICRC
	}
	var bth roce.BTH
	var deth roce.DETH
	rest, err := bth.Decode(frame[v.BTH:])
	if err == nil {
		_, err = deth.Decode(rest)
	}
	if err != nil || bth.DestQPN != QPN || deth.SrcQPN != QPN || deth.QKey != QKey {
		return MAD{}, ErrNotMAD
	}
	return DecodeMAD((*[MADBytes]byte)(frame[v.Payload:]))
}

// DecodeMAD reads a MAD without its envelope.
func DecodeMAD(b *[MADBytes]byte) (MAD, error) {
	if b[0] != baseVersion || b[1] != classCM || b[2] != classVersion || b[3] != methodSend ||
		binary.BigEndian.Uint16(b[statusOffset:]) != 0 {
		return MAD{}, ErrNotCM
	}
	m := MAD{Header: Header{TID: binary.BigEndian.Uint64(b[tidOffset:]), Modifier: binary.BigEndian.Uint32(b[modifierStart:])}}
	if m.Message = newMessage(Attribute(binary.BigEndian.Uint16(b[attrOffset:]))); m.Message == nil {
		return MAD{}, ErrAttribute
	}
	if err := m.Message.decode((*[messageBytes]byte)(b[headerBytes:])); err != nil {
		return MAD{}, err
	}
	return m, nil
}

// Append writes BTH, DETH and MAD behind b. psn counts the datagrams of queue pair 1; no receiver
// checks it.
func (m *MAD) Append(b []byte, psn roce.PSN) []byte {
	bth := roce.BTH{Opcode: roce.OpUDSendOnly, PKey: roce.DefaultPKey, DestQPN: QPN, AckReq: true, PSN: psn}
	deth := roce.DETH{QKey: QKey, SrcQPN: QPN}
	mad := m.encode()
	return append(deth.Append(bth.Append(b)), mad[:]...)
}

func (m *MAD) encode() (b [MADBytes]byte) {
	b[0], b[1], b[2], b[3] = baseVersion, classCM, classVersion, methodSend
	binary.BigEndian.PutUint64(b[tidOffset:], m.TID)
	binary.BigEndian.PutUint16(b[attrOffset:], uint16(m.Message.Attribute()))
	binary.BigEndian.PutUint32(b[modifierStart:], m.Modifier)
	m.Message.encode((*[messageBytes]byte)(b[headerBytes:]))
	return b
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func put24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}
