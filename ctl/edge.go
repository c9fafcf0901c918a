package ctl

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
)

// AskEdge answers the edge of a host. The answer waits until it is another one than the edge has,
// for as long as the edge says, or until ctx is done.
func (c *Controller) AskEdge(ctx context.Context, at netip.Addr, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	switch {
	case q.Protocol != api.EdgeProtocol:
		return api.EdgeAnswer{}, api.Errorf(api.BadRequest, "the edge speaks version %d and this box version %d; install the same release of both", q.Protocol, api.EdgeProtocol)
	case !c.Edges.On():
		return api.EdgeAnswer{}, api.Errorf(api.NotFound, "this box shares no copies; edges: in its rocastd.yaml says by which addresses it may")
	}
	end := time.NewTimer(time.Duration(q.Wait) * time.Millisecond)
	defer end.Stop()
	for {
		answer, changed := c.groups.AskEdge(at, q)
		if answer.Number != q.Have {
			return answer, nil
		}
		select {
		case <-changed:
		case <-end.C:
			return answer, nil
		case <-ctx.Done():
			return answer, nil
		}
	}
}

// drawGeneration draws the QPN of a generation. A former one comes again once in 2^24 draws.
func drawGeneration() (roce.QPN, error) {
	var b [4]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return 0, err
		}
		if qpn := roce.QPN(binary.LittleEndian.Uint32(b[:]) & 0xFFFFFF); qpn > 1 {
			return qpn, nil
		}
	}
}
