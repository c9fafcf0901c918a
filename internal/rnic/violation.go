package rnic

import (
	"fmt"
	"time"

	"github.com/rocast/rocast/roce"
)

// Violation is a response that no responder may send: a requester that believes it reports data as
// delivered that was never sent. A correct switch causes none, so a test that sees one has found a
// bug of the switch.
type Violation struct {
	Kind     Counter // ViolationBeyondSent or ViolationACKForREAD
	At       time.Duration
	PSN      roce.PSN
	Syndrome roce.Syndrome
	NextPSN  roce.PSN // the first PSN that was never sent
}

// String is one line for logs and failed tests.
func (v Violation) String() string {
	return fmt.Sprintf("%s at %v: %s of PSN %#06x; the first PSN that was never sent is %#06x",
		v.Kind, v.At, v.Syndrome, uint32(v.PSN), uint32(v.NextPSN))
}

// Violation returns the first violation, if there was one. Counters has their number.
func (q *QP) Violation() (v Violation, any bool) {
	return q.violation, q.counters.Violations() != 0
}

func (q *QP) violate(now time.Duration, kind Counter, psn roce.PSN, syndrome roce.Syndrome) {
	if q.counters.Violations() == 0 {
		q.violation = Violation{Kind: kind, At: now, PSN: psn, Syndrome: syndrome, NextPSN: q.req.nextNew}
	}
	q.count(kind)
}
