package wire

import (
	"math/rand/v2"
	"sync"

	"github.com/rocast/rocast/roce"
)

// Verdict is what becomes of a frame.
type Verdict int

const (
	Pass Verdict = iota
	Drop
	Duplicate
)

// Filter decides about one frame of one direction after the other. It may keep state, belongs to one wire and one
// direction, and keeps no reference to the frame.
type Filter func(frame []byte) Verdict

// Match selects RoCEv2 frames. Other frames, ARP for instance, are never offered to it.
type Match func(v *roce.View, frame []byte) bool

// Requests are what a requester sends: SEND, WRITE, READ requests, atomics.
func Requests(v *roce.View, _ []byte) bool { return v.Opcode.IsRequest() }

// Responses are what a responder sends: ACK, NAK, READ responses.
func Responses(v *roce.View, _ []byte) bool { return v.Opcode.IsResponse() }

// WithPSN narrows a match to the packets of one PSN.
func (m Match) WithPSN(psn roce.PSN) Match {
	return func(v *roce.View, frame []byte) bool { return v.PSN(frame) == psn && m(v, frame) }
}

// RandomLoss drops each matching frame with the same probability. Never every Nth: a go-back round of fixed length
// would lose the same packet each time.
func RandomLoss(seed uint64, probability float64, match Match) Filter {
	random := rand.New(rand.NewPCG(seed, 0))
	return func(frame []byte) Verdict {
		if matches(match, frame) && random.Float64() < probability {
			return Drop
		}
		return Pass
	}
}

// First gives the first n matching frames the verdict; the others pass.
func First(n int, verdict Verdict, match Match) Filter {
	return func(frame []byte) Verdict {
		if n == 0 || !matches(match, frame) {
			return Pass
		}
		n--
		return verdict
	}
}

// Watch passes everything and closes seen at the first matching frame: a story waits for a packet, not for a time.
func Watch(match Match) (f Filter, seen <-chan struct{}) {
	first := make(chan struct{})
	var once sync.Once
	return func(frame []byte) Verdict {
		if matches(match, frame) {
			once.Do(func() { close(first) })
		}
		return Pass
	}, first
}

func matches(match Match, frame []byte) bool {
	var v roce.View
	return v.Decode(frame, len(frame)) == nil && match(&v, frame)
}
