package ctl

import (
	"context"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// AskEdge answers the edge of a host, which asks from an IP. The answer waits until it is another
// one than the edge has, for as long as the edge says, or until ctx is done.
func (c *Controller) AskEdge(ctx context.Context, from netip.Addr, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	switch {
	case q.Protocol != api.EdgeProtocol:
		return api.EdgeAnswer{}, api.Errorf(api.BadRequest, "the edge speaks version %d and this box version %d; install the same release of both", q.Protocol, api.EdgeProtocol)
	case !c.Edges.On():
		return api.EdgeAnswer{}, api.Errorf(api.NotFound, "this box shares no copies; edges: in its rocastd.yaml says by which addresses it may")
	}
	host, err := c.Edges.For(from, q.Host)
	if err != nil {
		return api.EdgeAnswer{}, err
	}
	if host != from {
		q.Attach += " at " + from.String()
	}
	end := time.NewTimer(time.Duration(q.Wait) * time.Millisecond)
	defer end.Stop()
	answer, changed := c.groups.AskEdge(host, &q)
	for answer.Number == q.Have {
		select {
		case <-changed:
			answer, changed = c.groups.AskEdge(host, nil)
		case <-end.C:
			return answer, nil
		case <-ctx.Done():
			return answer, nil
		}
	}
	return answer, nil
}
