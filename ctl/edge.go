package ctl

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/neighbour"
)

// AskEdge answers the edge of a host, which asks from an IP. What is for a box only that box
// learns, by its certificate.
func (c *Controller) AskEdge(ctx context.Context, from netip.Addr, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	if err := c.answersEdges(q); err != nil {
		return api.EdgeAnswer{}, err
	}
	host, err := c.Edges.For(from, q.Host)
	if err != nil {
		return api.EdgeAnswer{}, err
	}
	if at := slices.IndexFunc(c.Neighbours, func(n neighbour.Config) bool { return n.Address == host }); at >= 0 {
		return api.EdgeAnswer{}, api.Errorf(api.Forbidden, "%v is box %s, which asks at api: of this box; write edge: true at this box in its neighbours:", host, c.Neighbours[at].Name)
	}
	if host != from {
		q.Attach += " at " + from.String()
	}
	return c.askEdge(ctx, host, q)
}

// answersEdges returns why the question of any edge is not answered, or nil.
func (c *Controller) answersEdges(q api.EdgeQuestion) error {
	switch {
	case q.Protocol != api.EdgeProtocol:
		return api.Errorf(api.BadRequest, "the edge speaks version %d and this box version %d; install the same release of both", q.Protocol, api.EdgeProtocol)
	case !c.Edges.On():
		return api.Errorf(api.NotFound, "this box shares no copies; edges: in its rocastd.yaml says by which addresses it may")
	}
	return nil
}

// askEdge answers the edge at an IP. The answer waits until it is another one than the edge has,
// for as long as the edge says, or until ctx is done.
func (c *Controller) askEdge(ctx context.Context, host netip.Addr, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	end := time.NewTimer(time.Duration(q.Wait) * time.Millisecond)
	defer end.Stop()
	answer, changed := c.groups.AskEdge(host, &q)
	for answer.Number == q.Loaded() {
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

// AskEdgeOf answers a box below as AskEdge does a host: it asks for its own end of the links.
func (c *Controller) AskEdgeOf(ctx context.Context, box string, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	at := slices.IndexFunc(c.Neighbours, func(n neighbour.Config) bool { return n.Name == box })
	if at < 0 {
		return api.EdgeAnswer{}, api.Errorf(api.Forbidden, "box %s is not a neighbour of box %s; add it to neighbours: in the config of %s", box, c.Box, c.Box)
	}
	if err := c.answersEdges(q); err != nil {
		return api.EdgeAnswer{}, err
	}
	return c.askEdge(ctx, c.Neighbours[at].Address, q)
}
