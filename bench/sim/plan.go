package sim

import (
	"math/rand/v2"

	"github.com/rocast/rocast/bench/rnic"
	"github.com/rocast/rocast/roce"
)

// page is what all messages take their data from: random, and written by nobody.
var page = makePage()

func makePage() []byte {
	b := make([]byte, 4<<20)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(b) // never fails
	return b
}

// plan says what each packet of a run carries and where it belongs. Packets are numbered from 0 in the order of their PSNs.
type plan struct {
	s        *Scenario
	packets  []packet
	messages []placed
	takers   []int32 // messages that take a receive, in order
	inbox    int     // bytes of all SENDs
}

type packet struct {
	message int32
	offset  int32 // of its payload in the message
	bytes   int32
}

// placed is what a message means for the receivers.
type placed struct {
	first, last int // packets
	inbox       int // SEND: where in a receiver's inbox
}

// lay makes p the plan of s and keeps its room.
func (p *plan) lay(s *Scenario) {
	p.s, p.packets, p.messages, p.takers, p.inbox = s, p.packets[:0], p.messages[:0], p.takers[:0], 0
	for i := range s.Messages {
		m := &s.Messages[i]
		place := placed{first: len(p.packets), inbox: p.inbox}
		for n := range s.packets(m) {
			offset := n * s.MTUBytes
			p.packets = append(p.packets, packet{int32(i), int32(offset), int32(min(m.Bytes-offset, s.MTUBytes))})
		}
		place.last = len(p.packets) - 1
		if m.consumesReceive() {
			p.takers = append(p.takers, int32(i))
		}
		if m.isSend() {
			p.inbox += m.Bytes
		}
		p.messages = append(p.messages, place)
	}
}

// taker is the message that takes receive number n, -1: none.
func (p *plan) taker(n int) int {
	if n < len(p.takers) {
		return int(p.takers[n])
	}
	return -1
}

// number is the packet that has PSN psn.
func (p *plan) number(psn roce.PSN) int { return int(psn.Sub(p.s.FirstPSN)) }

// data is what message i carries.
func (p *plan) data(i int) []byte {
	m := &p.s.Messages[i]
	return page[m.From:][:m.Bytes]
}

// payload is what packet n carries.
func (p *plan) payload(n int) []byte {
	k := &p.packets[n]
	return p.data(int(k.message))[k.offset:][:k.bytes]
}

// reads says whether packet n belongs to a READ, which no receiver may ever see.
func (p *plan) reads(n int) bool { return p.s.Messages[p.packets[n].message].Op == rnic.Read }

// arrived is where packet n's payload lies at a receiver.
func (p *plan) arrived(n int, memory, inbox []byte) []byte {
	k := &p.packets[n]
	m, place := &p.s.Messages[k.message], &p.messages[k.message]
	if m.isSend() {
		return inbox[place.inbox+int(k.offset):][:k.bytes]
	}
	return memory[m.Place+int(k.offset):][:k.bytes]
}
