package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/roce"
)

// verifier compares each copy with the copy that the workload builds.
type verifier struct {
	looked []int // by receiver
	frame  []byte
}

// Verify sends until every receiver has got this many copies, and compares each of them byte by
// byte with the copy that the forwarder's Rewriting promises. If the forwarder does not merge
// answers, the source has to get each answer of each receiver once, as the receiver sent it. Verify
// returns the first difference.
func (h *Hosts) Verify(copies int, patience time.Duration) error {
	return h.do(func() error {
		if err := h.setModes(modeAllUp); err != nil {
			return err
		}
		h.setWindow(min(h.Window, carefulWindow))
		h.verifier = &verifier{looked: make([]int, len(h.receivers))}
		err := h.verify(copies, time.Now().Add(patience))
		if err == nil {
			err = h.awaitAnswers(time.Now().Add(patience))
		}
		h.verifier = nil
		h.setWindow(h.Window)
		return errors.Join(err, h.setModes(0))
	})
}

func (h *Hosts) verify(copies int, deadline time.Time) error {
	h.begin()
	for {
		fewest := copies
		for _, n := range h.verifier.looked {
			fewest = min(fewest, n)
		}
		if fewest == copies {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the receivers got %v copies instead of %d each", h.verifier.looked, copies)
		}
		if err := h.step(); err != nil {
			return err
		}
	}
}

// AwaitAnswers waits until the source has got each answer that a receiver has ever sent. The source
// sends nothing meanwhile.
func (h *Hosts) AwaitAnswers(patience time.Duration) error {
	return h.do(func() error { return h.awaitAnswers(time.Now().Add(patience)) })
}

func (h *Hosts) awaitAnswers(deadline time.Time) error {
	for !h.heardAll() {
		if time.Now().After(deadline) {
			return fmt.Errorf("the receivers sent %v answers, and the source got %v", h.answered, h.heard)
		}
		moved, err := h.exchange()
		if err != nil {
			return err
		}
		if moved == 0 {
			nap()
		}
	}
	return nil
}

func (h *Hosts) heardAll() bool {
	if h.Merges {
		return h.heard[0] > 0
	}
	return slices.Equal(h.answered, h.heard)
}

func (v *verifier) look(h *Hosts, r int, descs []xsk.Desc) error {
	v.frame = v.frame[:0]
	for _, d := range descs {
		v.frame = append(v.frame, h.umem.Bytes(d.Addr, d.Len)...)
	}
	if err := compare(h.Workload, h.Rewriting, r, v.frame); err != nil {
		return fmt.Errorf("receiver %d %w", r, err)
	}
	v.looked[r]++
	return nil
}

// compare returns an error if a copy for receiver r differs from the right one.
func compare(w *workload.Workload, level workload.Rewriting, r int, frame []byte) error {
	want, err := expectedFor(w, level, r, frame)
	if err != nil {
		return err
	}
	compared := len(want) - level.ICRCBytes()
	if len(frame) != len(want) || !bytes.Equal(frame[:compared], want[:compared]) {
		return fmt.Errorf("got a copy that differs:\n got %x (%d bytes)\nwant %x (%d bytes)",
			headOf(frame), len(frame), headOf(want), len(want))
	}
	return nil
}

// headOf returns the part of a frame that is printed: its headers, and the ICRC at its end.
func headOf(frame []byte) []byte {
	if len(frame) <= workload.HeaderBytes+4 {
		return frame
	}
	return append(append([]byte(nil), frame[:workload.HeaderBytes]...), frame[len(frame)-4:]...)
}

var errStrange = errors.New("got a frame for a QPN that it does not have")

// expectedFor builds the right copy for the QPN and PSN of frame.
func expectedFor(w *workload.Workload, level workload.Rewriting, r int, frame []byte) ([]byte, error) {
	if len(frame) < workload.HeaderBytes {
		return nil, fmt.Errorf("got a frame of %d bytes", len(frame))
	}
	group := int(uint24(frame[workload.OffDestQPN:])) - int(level.FirstQPN(r))
	if group < 0 || group >= w.Groups {
		return nil, errStrange
	}
	psn := roce.PSN(uint24(frame[workload.OffPSN:]))
	p := workload.Packet{
		Group: group, K: uint32(psn.Sub(level.FirstPSN(group, r))), AckReq: frame[workload.OffAckReq]&0x80 != 0,
	}
	return w.Expected(level, p, r), nil
}
