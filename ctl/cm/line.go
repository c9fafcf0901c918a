package cm

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// Packet is a SEND of one packet, or the response to one, on a reliable connection of the box.
type Packet struct {
	Opcode  roce.Opcode // OpSendOnly or OpAck; also OpWriteOnly to nowhere, and any request of a host
	QPN     roce.QPN    // destination
	PSN     roce.PSN
	AETH    roce.AETH // of a response
	Payload []byte    // of a SEND
}

// isTalk reports whether a line has packets of this kind.
func (p *Packet) isTalk() bool { return p.Opcode == roce.OpSendOnly || p.Opcode == roce.OpAck }

// line is the box's end of a reliable connection on which programs talk: a queue pair for messages
// of one packet, of which one is on its way at a time. Its peer is the queue pair of a real NIC, so
// it acknowledges a message once it has it, answers a repeated one again, and repeats its own until
// they are acknowledged (IBTA vol 1, 9.7).
type line struct {
	peer     roce.QPN
	expected roce.PSN // of the peer's next message
	msn      roce.MSN // messages of the peer
	isGap    bool     // the peer knows that the expected message is missing

	next  roce.PSN      // of the first message in out
	out   [][]byte      // messages that the peer has not acknowledged; the first one is on its way
	due   time.Duration // when the first one is sent again; 0: there is none
	until time.Duration // when the peer counts as dead
}

// isOn reports whether messages are repeated in a state of the connection. The last one may say
// that the connection has ended.
func (l *line) isOn(s State) bool { return l != nil && s >= Established }

const (
	// lineAgain is the pause between two copies of a message without an answer.
	lineAgain = 250 * time.Millisecond
	// linePatience is the time without an acknowledgement after which the peer counts as dead. It
	// does not depend on the number of copies: a peer whose program is slow to post a receive
	// answers each copy with an RNR NAK, and its RNR timer may be shorter than a millisecond.
	linePatience = 15 * time.Second
	// leastRNR bounds how often such a peer is sent the message.
	leastRNR = time.Millisecond
)

// send queues a message, and returns it as a packet if it goes now.
func (l *line) send(now time.Duration, message []byte) []Packet {
	l.out = append(l.out, message)
	if len(l.out) > 1 {
		return nil
	}
	return l.begin(now)
}

func (l *line) begin(now time.Duration) []Packet {
	if len(l.out) == 0 {
		l.due = 0
		return nil
	}
	l.until = now + linePatience
	return l.again(now)
}

func (l *line) again(now time.Duration) []Packet {
	l.due = now + lineAgain
	return []Packet{{Opcode: roce.OpSendOnly, QPN: l.peer, PSN: l.next, Payload: l.out[0]}}
}

// tick repeats a message that is due. False: the peer does not answer.
func (l *line) tick(now time.Duration) (packets []Packet, isAlive bool) {
	switch {
	case l.due == 0 || now < l.due:
		return nil, true
	case now >= l.until:
		l.due = 0
		return nil, false
	}
	return l.again(now), true
}

// hear takes a packet of the peer, and returns what to send, and the message that has come; nil:
// none has. False: the peer's queue pair has ended.
func (l *line) hear(now time.Duration, p Packet) (packets []Packet, message []byte, isAlive bool) {
	if p.Opcode == roce.OpAck {
		packets, isAlive = l.hearResponse(now, p)
		return packets, nil, isAlive
	}
	switch ahead := p.PSN.Sub(l.expected); {
	case ahead < 0:
		return l.respond(l.expected.Prev(), roce.SyndromeUnlimited), nil, true
	case ahead > 0 && l.isGap:
		return nil, nil, true
	case ahead > 0:
		l.isGap = true
		return l.respond(l.expected, roce.NAKSequence), nil, true
	}
	l.isGap, l.expected, l.msn = false, p.PSN.Next(), l.msn.Add(1)
	return l.respond(p.PSN, roce.SyndromeUnlimited), p.Payload, true
}

func (l *line) respond(psn roce.PSN, s roce.Syndrome) []Packet {
	return []Packet{{Opcode: roce.OpAck, QPN: l.peer, PSN: psn, AETH: roce.AETH{Syndrome: s, MSN: l.msn}}}
}

// hearResponse takes the response to the message that is on its way. All others are late.
func (l *line) hearResponse(now time.Duration, p Packet) (packets []Packet, isAlive bool) {
	if len(l.out) == 0 || p.PSN != l.next {
		return nil, true
	}
	switch s := p.AETH.Syndrome; {
	case s.IsACK():
		l.out, l.next = l.out[1:], l.next.Next()
		return l.begin(now), true
	case s.IsRNR():
		l.due = now + max(s.RNRTimer().Duration(), leastRNR)
		return nil, true
	case s == roce.NAKSequence:
		return nil, true // the timer repeats the message
	}
	l.due = 0
	return nil, false
}
