package feedback

import "fmt"

// Policy is how a group's feedback is merged. The zero value is the default.
type Policy struct {
	Ack     AckPolicy
	Nak     NakPolicy
	OnFatal FatalPolicy
}

// AckPolicy says which receivers must have a packet before the source is told.
type AckPolicy uint8

const AckAll AckPolicy = iota // every receiver

// NakPolicy says what becomes of a sequence NAK above the minimum.
type NakPolicy uint8

const (
	// NakHold keeps it until the minimum is right below it (Cepheus, Gleam).
	NakHold NakPolicy = iota
	// NakLower tells the source at once to resend from the minimum plus one
	// (MC-RDMA).
	NakLower
)

// FatalPolicy says what becomes of a NAK that ends a QP.
type FatalPolicy uint8

const FatalFail FatalPolicy = iota // the source is told, once everyone has what lies below

var (
	ackNames   = []string{"all"}
	nakNames   = []string{"hold", "lower"}
	fatalNames = []string{"fail"}
)

func (p AckPolicy) String() string   { return ackNames[p] }
func (p NakPolicy) String() string   { return nakNames[p] }
func (p FatalPolicy) String() string { return fatalNames[p] }

// ParseAck is the inverse of AckPolicy.String.
func ParseAck(s string) (AckPolicy, error) { return parse[AckPolicy]("ack", s, ackNames) }

// ParseNak is the inverse of NakPolicy.String.
func ParseNak(s string) (NakPolicy, error) { return parse[NakPolicy]("nak", s, nakNames) }

// ParseFatal is the inverse of FatalPolicy.String.
func ParseFatal(s string) (FatalPolicy, error) { return parse[FatalPolicy]("on-fatal", s, fatalNames) }

func parse[P ~uint8](what, s string, names []string) (P, error) {
	for i, name := range names {
		if s == name {
			return P(i), nil
		}
	}
	return 0, fmt.Errorf("%s policy %q is not one of %q", what, s, names)
}
