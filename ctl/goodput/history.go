package goodput

import (
	"slices"
	"time"
)

// keptMarks bounds what a History remembers. When it is full, every second one of the older marks
// is forgotten, so that it knows the last seconds well and the last minutes roughly.
const keptMarks = 64

// History remembers how many packets the source of a group had sent at which times, to tell the age
// of the packet that a receiver waits for. The zero History remembers nothing. A History does not
// change.
type History struct{ marks []mark }

// mark is the number of packets that the source had sent at a time.
type mark struct {
	at   time.Time
	sent uint64
}

// With returns a History that also has the number of packets that the source has sent by now.
func (h History) With(now time.Time, sent uint64) History {
	kept := make([]mark, 0, keptMarks)
	switch n := len(h.marks); {
	case n > 0 && sent < h.marks[n-1].sent: // the group was published anew
	case n > 1 && sent == h.marks[n-1].sent && sent == h.marks[n-2].sent: // when it came there, and until when it stayed
		kept = append(kept, h.marks[:n-1]...)
	case n == keptMarks:
		for i, m := range h.marks {
			if i%2 == 0 || i >= keptMarks*3/4 {
				kept = append(kept, m)
			}
		}
	default:
		kept = append(kept, h.marks...)
	}
	return History{append(kept, mark{now, sent})}
}

// Age returns the age of the first packet that a receiver lacks, if the receiver has acknowledged
// so many packets; 0: it lacks none. Between two marks the source is taken to have sent at an even
// pace. For a packet older than all marks, Age returns the age of the first mark.
func (h History) Age(now time.Time, acknowledged uint64) time.Duration {
	i, _ := slices.BinarySearchFunc(h.marks, acknowledged+1, func(m mark, sent uint64) int {
		if m.sent < sent {
			return -1
		}
		return 1
	})
	switch {
	case i == len(h.marks):
		return 0
	case i == 0:
		return now.Sub(h.marks[0].at)
	}
	before, after := h.marks[i-1], h.marks[i]
	part := float64(acknowledged+1-before.sent) / float64(after.sent-before.sent)
	return now.Sub(before.at) - time.Duration(part*float64(after.at.Sub(before.at)))
}
