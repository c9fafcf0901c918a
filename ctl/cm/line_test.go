package cm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

func sent(packets []Packet) string {
	var l []string
	for _, p := range packets {
		if p.Opcode == roce.OpAck {
			l = append(l, fmt.Sprintf("%v %d msn=%d", p.AETH.Syndrome, p.PSN, p.AETH.MSN))
			continue
		}
		l = append(l, fmt.Sprintf("send %d %s", p.PSN, p.Payload))
	}
	return strings.Join(l, ", ")
}

// A line answers as a responder does, across the wrap of the PSN.
func TestALineResponds(t *testing.T) {
	const first = 0xFFFFFF
	l := &line{peer: 7, expected: first}
	for _, c := range []struct {
		psn           roce.PSN
		want, message string
	}{
		{first, "ACK unlimited 16777215 msn=1", "m16777215"},
		{first, "ACK unlimited 16777215 msn=1", ""},
		{first - 5, "ACK unlimited 16777215 msn=1", ""},
		{1, "NAK sequence 0 msn=1", ""},
		{2, "", ""}, // one NAK for a gap
		{first, "ACK unlimited 16777215 msn=1", ""},
		{0, "ACK unlimited 0 msn=2", "m0"},
		{2, "NAK sequence 1 msn=2", ""}, // another gap
	} {
		packets, message, isAlive := l.hear(0, Packet{Opcode: roce.OpSendOnly, PSN: c.psn, Payload: fmt.Appendf(nil, "m%d", c.psn)})
		if got := sent(packets); got != c.want || string(message) != c.message || !isAlive {
			t.Errorf("SEND %d: %q %q %v, want %q %q", c.psn, got, message, isAlive, c.want, c.message)
		}
		for _, p := range packets {
			if p.QPN != 7 {
				t.Errorf("SEND %d is answered to queue pair %d", c.psn, p.QPN)
			}
		}
	}
}

// A line repeats its oldest message until that is acknowledged, and only then sends the next one.
func TestALineRequests(t *testing.T) {
	const ms = time.Millisecond
	l := &line{peer: 7, next: 0xFFFFFF}
	ack := func(psn roce.PSN, s roce.Syndrome) func(time.Duration) ([]Packet, bool) {
		return func(now time.Duration) ([]Packet, bool) {
			packets, _, isAlive := l.hear(now, Packet{Opcode: roce.OpAck, PSN: psn, AETH: roce.AETH{Syndrome: s}})
			return packets, isAlive
		}
	}
	tick := func(now time.Duration) ([]Packet, bool) { return l.tick(now) }
	send := func(m string) func(time.Duration) ([]Packet, bool) {
		return func(now time.Duration) ([]Packet, bool) { return l.send(now, []byte(m)), true }
	}
	for i, c := range []struct {
		now  time.Duration
		do   func(time.Duration) ([]Packet, bool)
		want string
		due  time.Duration
	}{
		{0, tick, "", 0},
		{1 * ms, send("a"), "send 16777215 a", 251 * ms},
		{2 * ms, send("b"), "", 251 * ms},
		{3 * ms, ack(0, roce.SyndromeUnlimited), "", 251 * ms}, // beyond what was sent
		{250 * ms, tick, "", 251 * ms},
		{251 * ms, tick, "send 16777215 a", 501 * ms},
		{260 * ms, ack(0xFFFFFF, roce.SyndromeRNR(11)), "", 261 * ms}, // 480 µs is too often
		{261 * ms, tick, "send 16777215 a", 511 * ms},
		{262 * ms, ack(0xFFFFFF, roce.NAKSequence), "", 511 * ms},
		{263 * ms, ack(0xFFFFFF, roce.SyndromeUnlimited), "send 0 b", 513 * ms},
		{264 * ms, ack(0xFFFFFF, roce.SyndromeUnlimited), "", 513 * ms}, // late
		{265 * ms, ack(0, roce.SyndromeUnlimited), "", 0},
		{266 * ms, ack(0, roce.NAKRemoteOperational), "", 0},
		{267 * ms, send("c"), "send 1 c", 517 * ms},
	} {
		packets, isAlive := c.do(c.now)
		if got := sent(packets); got != c.want || l.due != c.due || !isAlive {
			t.Errorf("step %d: %q, due %v, %v; want %q, due %v", i, got, l.due, isAlive, c.want, c.due)
		}
	}
	if _, isAlive := ack(1, roce.NAKRemoteOperational)(268 * ms); isAlive || l.due != 0 {
		t.Error("a queue pair that ended counts as alive")
	}
}

// A peer that does not answer is given up.
func TestALineGivesUp(t *testing.T) {
	l := &line{}
	copies := len(l.send(0, []byte("a")))
	for {
		packets, isAlive := l.tick(l.due)
		if !isAlive {
			break
		}
		copies += len(packets)
	}
	if copies != int(linePatience/lineAgain) || l.due != 0 {
		t.Errorf("%d copies, due %v", copies, l.due)
	}
}

// A peer whose program has no receive posted yet is not given up after so many copies, but after
// the same time as one that does not answer.
func TestALineWaitsForAReceive(t *testing.T) {
	for syndrome, pause := range map[roce.Syndrome]time.Duration{
		roce.SyndromeRNR(1): leastRNR, roce.SyndromeRNR(31): roce.SyndromeRNR(31).RNRTimer().Duration(),
	} {
		l := &line{next: 5}
		l.send(0, []byte("a"))
		now, isAlive := time.Duration(0), true
		for isAlive {
			l.hear(now, Packet{Opcode: roce.OpAck, PSN: 5, AETH: roce.AETH{Syndrome: syndrome}})
			if l.due != now+pause {
				t.Fatalf("%v: due %v after %v", syndrome, l.due, now)
			}
			now = l.due
			_, isAlive = l.tick(now)
		}
		if now < linePatience || now >= linePatience+pause {
			t.Errorf("%v: given up after %v", syndrome, now)
		}
	}
}
