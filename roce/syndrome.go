package roce

import "fmt"

// Syndrome is the first byte of the AETH, which says what a response means. Bits 6-5 hold the kind,
// bits 4-0 the value (IBTA vol 1, 9.7.5.2.1):
//
//	0 00 ccccc  ACK, credit code c
//	0 01 ttttt  RNR NAK, timer code t
//	0 11 nnnnn  NAK, reason n
//
// The kind 10 and every value with bit 7 set are reserved. rxe treats a reserved syndrome as a
// fatal error, so IsFatal does too.
type Syndrome uint8

const (
	SyndromeUnlimited    Syndrome = 0x1F // ACK without end-to-end credits
	NAKSequence          Syndrome = 0x60 // resend from this PSN
	NAKInvalidRequest    Syndrome = 0x61
	NAKRemoteAccess      Syndrome = 0x62
	NAKRemoteOperational Syndrome = 0x63
	NAKInvalidRDRequest  Syndrome = 0x64
)

const (
	kindMask  Syndrome = 0xE0
	kindACK   Syndrome = 0x00
	kindRNR   Syndrome = 0x20
	kindNAK   Syndrome = 0x60
	valueMask Syndrome = 0x1F
)

// SyndromeACK is an ACK that grants the credits of c.
func SyndromeACK(c CreditCode) Syndrome { return kindACK | Syndrome(c)&valueMask }

// SyndromeRNR is an RNR NAK that asks the requester to wait for t.
func SyndromeRNR(t RNRTimer) Syndrome { return kindRNR | Syndrome(t)&valueMask }

// IsACK reports a positive acknowledgement.
func (s Syndrome) IsACK() bool { return s&kindMask == kindACK }

// IsRNR reports a receiver-not-ready NAK.
func (s Syndrome) IsRNR() bool { return s&kindMask == kindRNR }

// IsNAK reports a NAK with a reason code; an RNR NAK is not one.
func (s Syndrome) IsNAK() bool { return s&kindMask == kindNAK }

// IsFatal reports whether the requester's queue pair goes to the error state on s: on every NAK
// except the sequence error, and on every reserved value.
func (s Syndrome) IsFatal() bool { return !s.IsACK() && !s.IsRNR() && s != NAKSequence }

// RNRTimer is the timer code of an RNR NAK.
func (s Syndrome) RNRTimer() RNRTimer { return RNRTimer(s & valueMask) }

// CreditCode is the credit code of an ACK.
func (s Syndrome) CreditCode() CreditCode { return CreditCode(s & valueMask) }

// String returns the name that traces print.
func (s Syndrome) String() string {
	switch {
	case s == NAKSequence:
		return "NAK sequence"
	case s == NAKInvalidRequest:
		return "NAK invalid request"
	case s == NAKRemoteAccess:
		return "NAK remote access"
	case s == NAKRemoteOperational:
		return "NAK remote operational"
	case s == NAKInvalidRDRequest:
		return "NAK invalid RD request"
	case s.IsRNR():
		return "RNR NAK " + s.RNRTimer().Duration().String()
	case s.IsACK():
		return "ACK " + s.CreditCode().String()
	}
	return fmt.Sprintf("reserved syndrome 0x%02x", uint8(s))
}
