package model

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/feedback"
)

// A switch that begins with the turn before the newest takes the first source for the source: the
// receivers take its next packet for an old one, and acknowledge it.
func TestTheTurnBeforeIsNotEnough(t *testing.T) {
	for _, p := range []feedback.Policy{{}, {Ack: 2}, repairs(1, 0)} {
		w := World{Policy: p, Receivers: 3, Packets: 4, Message: 2}
		w.prepare()
		s := &search{engine: engine{World: &w}}
		if s.run(); s.result.Violation != nil {
			t.Errorf("%v: %s", w, s.result.Violation.What)
		}
		s = &search{engine: engine{World: &w, old: true}}
		if s.run(); s.result.Violation == nil || !strings.HasPrefix(s.result.Violation.What, "behind a restart the first source hears an ACK, and 0 receivers") {
			t.Errorf("%v: %+v", w, s.result.Violation)
		}
	}
}
