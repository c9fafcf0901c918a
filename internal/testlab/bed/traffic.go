package bed

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/roce"
)

// QP returns the settings of a host's queue pair whose first packet has the given PSN.
func QP(qpn roce.QPN, psn roce.PSN, mtuBytes int) rnic.Config {
	c := rnic.Defaults()
	c.QPN, c.SendPSN, c.MTUBytes = qpn, psn, mtuBytes
	return c
}

// outstanding is how many work requests of one queue pair are posted at a time.
const outstanding = 16

// Post posts work requests 0 to all-1 and waits for their completions. After each one it calls done
// with their number so far; nil: nothing.
func Post(ctx context.Context, qp *endpoint.QP, all int, post, done func(n int) error) error {
	for posted, completed := 0, 0; completed < all; {
		for ; posted < all && posted-completed < outstanding; posted++ {
			if err := post(posted); err != nil {
				return err
			}
		}
		c, err := qp.Wait(ctx)
		if err != nil {
			return fmt.Errorf("after %d of %d completions: %w", completed, all, err)
		}
		if c.Status != rnic.Success {
			return fmt.Errorf("work request %d of %d ended with %v", completed, all, c.Status)
		}
		completed++
		if done == nil {
			continue
		}
		if err := done(completed); err != nil {
			return err
		}
	}
	return nil
}

// Random returns data that is the same for the same seed.
func Random(size int, seed byte) []byte {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(data) // never fails
	return data
}

// Write writes data to the memory that begins at to, by WRITEs of each bytes, and waits for their
// completions. It calls midway once when half of the WRITEs are complete; nil: nothing. outage is
// the longest time between two completions.
func Write(ctx context.Context, qp *endpoint.QP, to rnic.Remote, data []byte, each int, midway func()) (outage time.Duration, err error) {
	all := (len(data) + each - 1) / each
	post := func(n int) error {
		off := n * each
		return qp.PostWrite(uint64(n), data[off:min(off+each, len(data))], rnic.Remote{VA: to.VA + uint64(off), RKey: to.RKey})
	}
	last := time.Now()
	err = Post(ctx, qp, all, post, func(n int) error {
		now := time.Now()
		outage, last = max(outage, now.Sub(last)), now
		if n == all/2 && midway != nil {
			midway()
		}
		return nil
	})
	return outage, err
}

// Has reports whether memory, which is registered with the host's NIC, is equal to data.
func (h *Host) Has(memory, data []byte) (same bool) {
	h.RNIC.Freeze(func() { same = bytes.Equal(memory, data) })
	return same
}

// CheckReceived returns an error if memory, which is registered with the host's NIC, differs from
// data, or if the NIC has refused frames: no correct peer sends such.
func (h *Host) CheckReceived(memory, data []byte) error {
	if !h.Has(memory, data) {
		return fmt.Errorf("the memory of %v differs from the source's data", h.IP)
	}
	if c := h.RNIC.Counters(); c.Rejected() != 0 {
		return fmt.Errorf("%v refused frames: %v", h.IP, c.ByName())
	}
	return nil
}

// CheckResponses returns an error if a source got a response that no correct responder sends.
func CheckResponses(source *endpoint.QP) error {
	if v, any := source.Violation(); any {
		return fmt.Errorf("the source got a response that no responder may send: %v", v)
	}
	return nil
}
