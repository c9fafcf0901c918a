package sim

import (
	"math/rand/v2"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// page is random bytes from which all messages take their data. Nothing writes to it.
var page = makePage()

func makePage() []byte {
	b := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// plan is the stream of one source: what each packet carries. Packets are numbered from 0 in the
// order of their PSNs.
type plan struct {
	mtuBytes int
	first    roce.PSN
	messages []Message
	packets  []packet
	last     []int // the last packet of each message
}

type packet struct {
	message int
	offset  int // of the payload in the message
	bytes   int
}

// lay makes p the plan of the messages of host h. It reuses the slices of p.
func (p *plan) lay(s *Scenario, h *Host) {
	p.mtuBytes, p.first, p.messages = s.MTUBytes, h.SendPSN, h.Messages
	p.packets, p.last = p.packets[:0], p.last[:0]
	for i := range p.messages {
		m := &p.messages[i]
		for n := range s.packets(m) {
			offset := n * s.MTUBytes
			p.packets = append(p.packets, packet{i, offset, min(m.Bytes-offset, s.MTUBytes)})
		}
		p.last = append(p.last, len(p.packets)-1)
	}
}

// number returns the packet that has PSN psn.
func (p *plan) number(psn roce.PSN) int { return int(psn.Sub(p.first)) }

// data returns what message i carries.
func (p *plan) data(i int) []byte { return page[p.messages[i].From:][:p.messages[i].Bytes] }

// payload returns what packet n carries.
func (p *plan) payload(n int) []byte {
	k := &p.packets[n]
	return p.data(k.message)[k.offset:][:k.bytes]
}

// of returns the message of packet n.
func (p *plan) of(n int) *Message { return &p.messages[p.packets[n].message] }

// reads reports whether packet n belongs to a READ, which no receiver may ever get.
func (p *plan) reads(n int) bool { return p.of(n).Op == rnic.Read }

// hidesEnd returns 1 if frame f is the last packet of a message and was damaged so that it looks
// like another one, else 0.
func (p *plan) hidesEnd(f *frame) int {
	var v roce.View
	if !f.damaged || v.Decode(f.data(), f.bytes) != nil || v.Opcode.EndsMessage() {
		return 0
	}
	return p.messagesBefore(int(f.packet)+1) - p.messagesBefore(int(f.packet))
}

// messagesBefore returns how many messages end before packet n.
func (p *plan) messagesBefore(n int) int {
	if n < len(p.packets) {
		return p.packets[n].message
	}
	return len(p.messages)
}
