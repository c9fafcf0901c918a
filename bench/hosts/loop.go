package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/roce"
)

// Stream sends as fast as the window lets it until stop is called.
func (h *Hosts) Stream() (stop func() error) {
	var quit atomic.Bool
	ended := make(chan error, 1)
	go func() {
		ended <- h.do(func() error {
			h.begin()
			for !quit.Load() {
				if err := h.step(); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	return func() error {
		quit.Store(true)
		return <-ended
	}
}

// begin starts the clocks of progress.
func (h *Hosts) begin() {
	h.progress = time.Now()
	h.retry, h.seenBase = h.progress, h.base
}

// step is one round of all hosts, or a sleep if there is nothing to do.
func (h *Hosts) step() error {
	moved, err := h.exchange()
	if err != nil {
		return err
	}
	sent, err := h.send(batch)
	if err != nil {
		return err
	}
	before := time.Now()
	h.mindProgress(before)
	if moved+sent > 0 {
		return nil
	}
	nap()
	h.stats.waited.Add(uint64(time.Since(before)))
	return nil
}

// mindProgress goes back if nothing was acknowledged for stallAfter.
func (h *Hosts) mindProgress(now time.Time) {
	if h.base != h.seenBase {
		longest := max(h.stats.longest.Load(), uint64(now.Sub(h.progress)))
		h.stats.longest.Store(longest)
		h.seenBase, h.progress, h.retry = h.base, now, now
	} else if now.Sub(h.retry) > stallAfter {
		h.goBack(true)
		h.retry = now
	}
}

// send sends up to n packets, at most a batch, that the window allows.
func (h *Hosts) send(n int) (sent int, err error) {
	used := h.used
	clear(used)
	for sent < n {
		p, ok := h.take()
		if !ok {
			break
		}
		q := p.Group % len(h.slots)
		s := &h.slots[q][used[q]]
		h.template.write(s.fragments, p)
		h.source.sockets[q].Transmit(s.descs)
		used[q]++
		sent++
	}
	for q, u := range used {
		if u == 0 {
			continue
		}
		if err := flush(h.source.sockets[q]); err != nil {
			return sent, err
		}
	}
	h.stats.sent.Add(uint64(sent))
	h.stats.resent.Store(h.resent)
	h.stats.backs.Store(h.backs)
	return sent, nil
}

func flush(s *xsk.Socket) error {
	_, err := s.Flush(flushPatience)
	if errors.Is(err, xsk.ErrStalled) {
		return nil
	}
	return err
}

// exchange lets the receivers answer and the source hear answers. It returns how many frames that
// took.
func (h *Hosts) exchange() (moved int, err error) {
	moved, err = h.respond()
	if err != nil {
		return moved, err
	}
	heard, err := h.listen()
	return moved + heard, err
}

// respond lets every receiver answer the packets that its responder has handed up.
func (h *Hosts) respond() (moved int, err error) {
	for r, n := range h.receivers {
		for _, s := range n.sockets {
			got := s.Receive(h.descs)
			if got == 0 {
				continue
			}
			moved += got
			for rest := h.descs[:got]; len(rest) > 0; {
				k := xsk.FrameDescs(rest)
				if err := h.answer(r, rest[:k]); err != nil {
					return moved, err
				}
				rest = rest[k:]
			}
			for _, d := range h.descs[:got] {
				s.Recycle(d.Addr)
			}
			s.TopUp()
			if len(h.responses) == 0 {
				continue
			}
			s.Transmit(h.responses)
			h.responses = h.responses[:0]
			if err := flush(s); err != nil {
				return moved, err
			}
		}
	}
	return moved, nil
}

// answer sends the answer of receiver r's QP to one packet: an ACK of all packets that it has
// taken, or a NAK for the next one.
func (h *Hosts) answer(r int, descs []xsk.Desc) error {
	head := h.umem.Bytes(descs[0].Addr, descs[0].Len)
	if h.verifier != nil {
		if err := h.verifier.look(h, r, descs); err != nil {
			return err
		}
	}
	flow := int(uint24(head[workload.OffDestQPN:])) - int(h.Rewriting.FirstQPN(r))
	if flow < 0 || flow >= h.Workload.Groups {
		return nil // the responder has counted it
	}
	expected := h.receivers[r].expected(flow)
	refused := !roce.PSN(uint24(head[workload.OffPSN:])).Before(expected)
	if !refused && head[workload.OffAckReq]&0x80 == 0 {
		return nil
	}
	a := workload.Answer{
		Group: flow, Receiver: r, Direct: !h.Merges, Syndrome: roce.SyndromeUnlimited, PSN: expected.Prev(),
		MSN: roce.MSN(expected.Sub(h.Rewriting.FirstPSN(flow, r)) & psnMask),
	}
	if refused {
		a.Syndrome, a.PSN = roce.NAKSequence, expected
	}
	addr := h.answers[len(h.responses)]
	b := h.Workload.AppendAnswer(h.umem.Bytes(addr, xsk.ChunkBytes)[:0], &a)
	h.responses = append(h.responses, xsk.Desc{Addr: addr, Len: uint32(len(b))})
	h.answered[r]++
	h.stats.answered.Add(1)
	return nil
}

// listen handles the frames that the forwarder sends to the source.
func (h *Hosts) listen() (heard int, err error) {
	for _, s := range h.source.sockets {
		got := s.Receive(h.descs)
		if got == 0 {
			continue
		}
		heard += got
		for _, d := range h.descs[:got] {
			if err := h.listenTo(h.umem.Bytes(d.Addr, d.Len)); err != nil {
				return heard, err
			}
		}
		for _, d := range h.descs[:got] {
			s.Recycle(d.Addr)
		}
		s.TopUp()
	}
	return heard, nil
}

var errMalformed = errors.New("the source got a frame that its NIC would drop, or that is not an answer")

// listenTo handles one answer. A merged answer comes from the group, and its PSN counts as the
// source counts. Any other answer comes from a receiver, and its PSN counts as the receiver counts.
func (h *Hosts) listenTo(frame []byte) error {
	var v roce.View
	fragments := [1][]byte{frame}
	if err := v.Decode(frame, len(frame)); err != nil || v.Opcode != roce.OpAck || !v.ICRCValid(fragments[:]) {
		return errors.Join(errMalformed, err)
	}
	group, party := workload.SourceGroup(v.DestQPN(frame)), 0
	if !h.Merges {
		party = workload.ReceiverOf(v.SrcIP(frame))
	}
	if group < 0 || group >= h.Workload.Groups || party < 0 || party >= len(h.heard) {
		return errMalformed
	}
	psn, aeth := v.PSN(frame), v.AETH(frame)
	if aeth.Syndrome.IsFatal() {
		return errors.New("the source got " + aeth.Syndrome.String() + ", which ends its QP")
	}
	if h.verifier != nil && !h.Merges {
		sent := workload.Answer{Group: group, Receiver: party, Direct: true, Syndrome: aeth.Syndrome, PSN: psn, MSN: aeth.MSN}
		if want := h.Workload.AppendAnswer(nil, &sent); !bytes.Equal(frame, want) {
			return fmt.Errorf("the source got an answer of receiver %d that differs:\n got %x\nwant %x", party, frame, want)
		}
	}
	taken, again := uint32(psn.Sub(h.firstPSN(group, party)))&psnMask, !aeth.Syndrome.IsACK()
	if !again {
		taken = (taken + 1) & psnMask
	}
	if err := h.checkTruth(group, party, taken); err != nil {
		return err
	}
	h.heard[party]++
	h.stats.heard.Add(1)
	h.acknowledge(party, group, (taken-1)&psnMask)
	if again {
		h.goBack(false)
	}
	return nil
}

// firstPSN is the PSN of the first packet of a group in the answers of a party.
func (h *Hosts) firstPSN(group, party int) roce.PSN {
	if h.Merges {
		return workload.SourcePSN(group)
	}
	return h.Rewriting.FirstPSN(group, party)
}

// checkTruth compares an answer to the source with the packets that the receivers have: the one
// that sent it, or all of them if the answers are merged.
func (h *Hosts) checkTruth(group, party int, taken uint32) error {
	for r, n := range h.receivers {
		has := uint32(n.expected(group).Sub(h.Rewriting.FirstPSN(group, r))) & psnMask
		if (h.Merges || r == party) && (has-taken)&psnMask >= 1<<23 {
			return &untrue{group: group, told: taken, receiver: r, has: has}
		}
	}
	return nil
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }
