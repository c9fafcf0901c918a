package wire

import (
	"math/rand/v2"
	"sync"

	"github.com/rocast/rocast/roce"
)

// Verdict is what the wire does with a frame.
type Verdict int

const (
	Pass Verdict = iota
	Drop
	Duplicate
)

// Filter decides about the frames of one direction of one wire, one after the other. It may keep
// state. It keeps no reference to the frame.
type Filter func(frame []byte) Verdict

// Match selects RoCEv2 frames. It is not called for other frames, such as ARP.
type Match func(v *roce.View, frame []byte) bool

// Requests matches what a requester sends: SEND, WRITE, READ requests, atomics.
func Requests(v *roce.View, _ []byte) bool { return v.Opcode.IsRequest() }

// Responses matches what a responder sends: ACK, NAK, READ responses.
func Responses(v *roce.View, _ []byte) bool { return v.Opcode.IsResponse() }

// WithPSN narrows a match to the packets with one PSN.
func (m Match) WithPSN(psn roce.PSN) Match {
	return func(v *roce.View, frame []byte) bool { return v.PSN(frame) == psn && m(v, frame) }
}

// RandomLoss drops each matching frame with the same probability. It is random and not every Nth
// frame: a go-back round of fixed length would lose the same packet each time.
func RandomLoss(seed uint64, probability float64, match Match) Filter {
	random := rand.New(rand.NewPCG(seed, 0))
	return func(frame []byte) Verdict {
		if matches(match, frame) && random.Float64() < probability {
			return Drop
		}
		return Pass
	}
}

// First gives the first n matching frames the verdict. All other frames pass.
func First(n int, verdict Verdict, match Match) Filter {
	return func(frame []byte) Verdict {
		if n == 0 || !matches(match, frame) {
			return Pass
		}
		n--
		return verdict
	}
}

// Watch passes everything. It closes seen at the first matching frame, so that a story waits for a
// packet and not for a time.
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
