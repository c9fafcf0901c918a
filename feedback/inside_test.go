package feedback

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// The first answer after a restart shows that more was sent before it. Nobody knows whether the
// last of these packets has ended its message, before the source sends it again.
func TestAMessageMayGoOnBehindWhatWasSentBeforeARestart(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: AckAll}, Paths: 2, FirstPSN: 100, Restored: true})
	data := func(psn roce.PSN) {
		g.Step(0, Event{Kind: Data, PSN: psn, AckReq: true, First: true, Last: true}, nil)
	}
	data(100)
	if g.Inside() {
		t.Error("the first packet has ended its message")
	}
	g.Step(0, Event{Kind: Response, Path: 0, PSN: 103, Syndrome: roce.SyndromeUnlimited, MSN: 4}, nil)
	if g.NextPSN() != 104 || !g.Inside() {
		t.Errorf("the next packet is %d, and the message has ended", g.NextPSN())
	}
	for psn := roce.PSN(101); psn <= 103; psn++ {
		data(psn)
	}
	if g.Inside() {
		t.Error("packet 103 has ended its message")
	}
}
