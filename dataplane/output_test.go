package dataplane

import (
	"slices"
	"testing"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The source has one frame less to handle where an ACK says all that the one before it says.
// Nothing else is left out: a NAK, a CNP, a lower ACK and an ACK to another member each say
// something else.
func TestRepliesAreLeftOut(t *testing.T) {
	a, b := new(mft.Leg), new(mft.Leg)
	ack := func(leg *mft.Leg, psn roce.PSN) Reply {
		return Reply{Leg: leg, PSN: psn, AETH: roce.AETH{Syndrome: roce.SyndromeUnlimited}}
	}
	nak := Reply{Leg: a, PSN: 7, AETH: roce.AETH{Syndrome: roce.NAKSequence}}
	cnp := Reply{Leg: a, CNP: true}
	for name, c := range map[string]struct{ said, want []Reply }{
		"a later ACK":         {[]Reply{ack(a, 5), ack(a, 6), ack(a, 7)}, []Reply{ack(a, 7)}},
		"the same ACK":        {[]Reply{ack(a, 5), ack(a, 5)}, []Reply{ack(a, 5), ack(a, 5)}},
		"across the wrap":     {[]Reply{ack(a, 0xFFFFFF), ack(a, 0)}, []Reply{ack(a, 0)}},
		"a lower ACK":         {[]Reply{ack(a, 6), ack(a, 5)}, []Reply{ack(a, 6), ack(a, 5)}},
		"a NAK behind an ACK": {[]Reply{ack(a, 6), nak}, []Reply{ack(a, 6), nak}},
		"an ACK behind a NAK": {[]Reply{nak, ack(a, 8)}, []Reply{nak, ack(a, 8)}},
		"a CNP behind an ACK": {[]Reply{ack(a, 6), cnp}, []Reply{ack(a, 6), cnp}},
		"an ACK behind a CNP": {[]Reply{cnp, ack(a, 6)}, []Reply{cnp, ack(a, 6)}},
		"another member":      {[]Reply{ack(a, 5), ack(b, 6)}, []Reply{ack(a, 5), ack(b, 6)}},
	} {
		var out Outputs
		for _, r := range c.said {
			out.reply(r)
		}
		if !slices.Equal(out.Replies, c.want) {
			t.Errorf("%s: %+v, want %+v", name, out.Replies, c.want)
		}
	}
}
