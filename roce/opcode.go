package roce

import "fmt"

// Opcode is the first byte of the BTH: transport in bits 7-5, operation in bits 4-0.
type Opcode uint8

// Reliable connection (transport 000), the two unreliable datagram opcodes that communication
// management and datagrams use (011), and the congestion notification packet (100).
const (
	OpSendFirst      Opcode = 0x00
	OpSendMiddle     Opcode = 0x01
	OpSendLast       Opcode = 0x02
	OpSendLastImm    Opcode = 0x03
	OpSendOnly       Opcode = 0x04
	OpSendOnlyImm    Opcode = 0x05
	OpWriteFirst     Opcode = 0x06
	OpWriteMiddle    Opcode = 0x07
	OpWriteLast      Opcode = 0x08
	OpWriteLastImm   Opcode = 0x09
	OpWriteOnly      Opcode = 0x0A
	OpWriteOnlyImm   Opcode = 0x0B
	OpReadRequest    Opcode = 0x0C
	OpReadRespFirst  Opcode = 0x0D
	OpReadRespMiddle Opcode = 0x0E
	OpReadRespLast   Opcode = 0x0F
	OpReadRespOnly   Opcode = 0x10
	OpAck            Opcode = 0x11
	OpAtomicAck      Opcode = 0x12
	OpCmpSwap        Opcode = 0x13
	OpFetchAdd       Opcode = 0x14
	OpSendLastInv    Opcode = 0x16
	OpSendOnlyInv    Opcode = 0x17
	OpFlush          Opcode = 0x1C
	OpAtomicWrite    Opcode = 0x1D

	OpUDSendOnly    Opcode = 0x64
	OpUDSendOnlyImm Opcode = 0x65

	OpCNP Opcode = 0x81
)

// trait is a property of an opcode, apart from its headers.
type trait uint16

const (
	known trait = 1 << iota
	request
	response
	read
	atomic
	first
	middle
	last
	only // the whole message is this packet
	takesWQE
)

type opcodeInfo struct {
	headers  HeaderSet
	traits   trait
	extBytes uint8
	name     string
}

// opcodes is the table of IBTA vol 1, 9.2.1 and 9.4 as rxe_opcode.c implements it.
var opcodes = [256]opcodeInfo{
	OpSendFirst:      op("SEND_FIRST", request|first|takesWQE, 0),
	OpSendMiddle:     op("SEND_MIDDLE", request|middle, 0),
	OpSendLast:       op("SEND_LAST", request|last, 0),
	OpSendLastImm:    op("SEND_LAST_IMM", request|last, HasImmDt),
	OpSendOnly:       op("SEND_ONLY", request|only|takesWQE, 0),
	OpSendOnlyImm:    op("SEND_ONLY_IMM", request|only|takesWQE, HasImmDt),
	OpSendLastInv:    op("SEND_LAST_INV", request|last, HasIETH),
	OpSendOnlyInv:    op("SEND_ONLY_INV", request|only|takesWQE, HasIETH),
	OpWriteFirst:     op("WRITE_FIRST", request|first, HasRETH),
	OpWriteMiddle:    op("WRITE_MIDDLE", request|middle, 0),
	OpWriteLast:      op("WRITE_LAST", request|last, 0),
	OpWriteLastImm:   op("WRITE_LAST_IMM", request|last|takesWQE, HasImmDt),
	OpWriteOnly:      op("WRITE_ONLY", request|only, HasRETH),
	OpWriteOnlyImm:   op("WRITE_ONLY_IMM", request|only|takesWQE, HasRETH|HasImmDt),
	OpReadRequest:    op("READ_REQUEST", request|only|read, HasRETH),
	OpReadRespFirst:  op("READ_RESP_FIRST", response|first|read, HasAETH),
	OpReadRespMiddle: op("READ_RESP_MIDDLE", response|middle|read, 0), // the only response without an AETH
	OpReadRespLast:   op("READ_RESP_LAST", response|last|read, HasAETH),
	OpReadRespOnly:   op("READ_RESP_ONLY", response|only|read, HasAETH),
	OpAck:            op("ACK", response|only, HasAETH),
	OpAtomicAck:      op("ATOMIC_ACK", response|only|atomic, HasAETH|HasAtomicAckETH),
	OpCmpSwap:        op("CMP_SWAP", request|only|atomic, HasAtomicETH),
	OpFetchAdd:       op("FETCH_ADD", request|only|atomic, HasAtomicETH),
	OpFlush:          op("FLUSH", request|only, HasFETH|HasRETH),
	OpAtomicWrite:    op("ATOMIC_WRITE", request|only|atomic, HasRETH),
	OpUDSendOnly:     op("UD_SEND_ONLY", request|only|takesWQE, HasDETH),
	OpUDSendOnlyImm:  op("UD_SEND_ONLY_IMM", request|only|takesWQE, HasDETH|HasImmDt),
	OpCNP:            op("CNP", only, HasCNP),
}

func op(name string, t trait, h HeaderSet) opcodeInfo {
	return opcodeInfo{headers: h, traits: known | t, extBytes: uint8(h.Bytes()), name: name}
}

func (o Opcode) is(t trait) bool { return opcodes[o].traits&t != 0 }

// Known reports whether o is one of the opcodes above. All other predicates are false for an
// unknown opcode.
func (o Opcode) Known() bool { return o.is(known) }

// Headers is the set of extension headers between BTH and payload.
func (o Opcode) Headers() HeaderSet { return opcodes[o].headers }

// ExtBytes is the length of the extension headers between BTH and payload.
func (o Opcode) ExtBytes() int { return int(opcodes[o].extBytes) }

// IsRequest reports whether the packet travels from requester to responder. A CNP is neither.
func (o Opcode) IsRequest() bool { return o.is(request) }

// IsRC reports whether the opcode is of the reliable connection transport, 000 in bits 7-5.
func (o Opcode) IsRC() bool { return o>>5 == 0 }

// IsResponse reports whether the packet travels from responder to requester.
func (o Opcode) IsResponse() bool { return o.is(response) }

// IsRead reports whether the packet is a READ request or part of the answer to one.
func (o Opcode) IsRead() bool { return o.is(read) }

// IsAtomic reports whether the packet is CMP_SWAP, FETCH_ADD, ATOMIC_WRITE or ATOMIC_ACK.
func (o Opcode) IsAtomic() bool { return o.is(atomic) }

// IsFirst reports whether the packet opens a message of several packets.
func (o Opcode) IsFirst() bool { return o.is(first) }

// IsMiddle reports whether the packet neither opens nor ends its message.
func (o Opcode) IsMiddle() bool { return o.is(middle) }

// IsLast reports whether the packet ends a message of several packets.
func (o Opcode) IsLast() bool { return o.is(last) }

// IsOnly reports whether the packet is a whole message. READ, atomic and FLUSH requests are.
func (o Opcode) IsOnly() bool { return o.is(only) }

// EndsMessage reports whether a responder that executes this request counts one more message
// (AETH.MSN). READ and atomics count when the request is accepted.
func (o Opcode) EndsMessage() bool { return o.is(request) && o.is(last|only) }

// ConsumesWQE reports whether the responder needs a posted receive for this packet. Only such a
// packet can be answered with an RNR NAK. A SEND takes its receive with its first packet, a WRITE
// with immediate with its last.
func (o Opcode) ConsumesWQE() bool { return o.is(takesWQE) }

// String is the specification's name, or the number of an unknown opcode.
func (o Opcode) String() string {
	if name := opcodes[o].name; name != "" {
		return name
	}
	return fmt.Sprintf("Opcode(0x%02x)", uint8(o))
}
