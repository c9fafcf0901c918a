package sim

import (
	"bytes"

	"github.com/rocast/rocast/internal/rnic"
)

// rejected counts the frames that a queue pair refused, by reason.
type rejected [rnic.RejectResponse + 1]uint64

func rejections(qp *rnic.QP) rejected { return rejected(qp.Counters().Count[:rnic.RejectResponse+1]) }

// checkAccepted checks that a queue pair accepted frame f if and only if f is good.
func (w *world) checkAccepted(h *host, f *frame, before rejected) {
	after := rejections(h.qp)
	switch {
	case f.damaged && after == before:
		w.fail(Damaged, "%v accepted a damaged frame", h)
	case after != before && !f.touched && h.qp.State() == rnic.StateReady:
		w.fail(Damaged, "%v refused an undamaged frame: %v", h, rnic.Counter(differs(before[:], after[:])))
	}
	if v, any := h.qp.Violation(); any {
		w.fail(Place, "%v: %v", h, v)
	}
}

// differs returns the first index at which two slices of equal length differ.
func differs[T comparable](a, b []T) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// checkExecuted checks the memory of a receiver that has just executed f.
func (w *world) checkExecuted(h *host, f *frame) {
	n := int(f.packet)
	source := &w.hosts[f.stream]
	p := &source.plan
	if next := h.next[f.stream]; n != next || p.reads(n) {
		w.fail(Memory, "%v executed packet %d of %v, where %d was next; a READ: %v", h, n, source, next, p.reads(n))
		return
	}
	h.next[f.stream]++
	m, k := p.of(n), &p.packets[n]
	var arrived []byte
	if m.isSend() {
		arrived = w.slot(h, h.taken)[k.offset:][:k.bytes]
	} else {
		arrived = h.memory[m.Target+k.offset:][:k.bytes]
		copy(h.want[m.Target+k.offset:], p.payload(n))
	}
	if !bytes.Equal(arrived, p.payload(n)) {
		w.fail(Memory, "%v: packet %d of %v is not in its memory as it was sent", h, n, source)
	}
	ends := n == p.last[k.message]
	if ends {
		source.flights[k.message].arrivedAt = w.now
	}
	if h.expecting = ends && m.takesReceive(); h.expecting {
		h.expected = m.completion(h.taken)
	}
}

// completion returns what the program of a receiver hears of the message, if the message takes
// receive number k.
func (m *Message) completion(k int) rnic.Completion {
	c := rnic.Completion{WRID: uint64(k), Op: rnic.Recv, Bytes: uint32(m.Bytes)}
	if m.Op == rnic.WriteImm {
		c.Op = rnic.RecvWriteImm
	}
	if m.Op != rnic.Send {
		c.HasImm, c.Imm = true, m.Imm
	}
	return c
}

// checkReceived checks what the program of a receiver hears: the completion of the message whose
// last packet was just executed.
func (w *world) checkReceived(h *host, c rnic.Completion) {
	if !h.expecting || c != h.expected {
		w.fail(Memory, "%v: receive %d completed: %v; expected: %v, %v", h, h.taken, c, h.expecting, h.expected)
	}
	h.expecting = false
}

// checkMemory compares the whole memory of a receiver with what was written to it.
func (w *world) checkMemory(h *host) {
	if !bytes.Equal(h.want, h.memory) {
		w.fail(Memory, "%v: byte %d of its memory is not what was written to it", h, differs(h.want, h.memory))
	}
	if h.expecting {
		w.fail(Memory, "%v: its program did not hear of %v", h, h.expected)
	}
}
