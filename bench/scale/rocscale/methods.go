package main

import (
	"slices"

	"github.com/rocast/rocast/bench/scale"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/relaying"
)

// relayed is a way to do without multicast.
type relayed struct {
	name  string
	shape relaying.Shape
	slice int64 // 0: messages are not cut
}

// A chain is cut into slices of 64 KiB, so that it is a pipeline. The papers do not say how many
// slices theirs has.
var (
	chain    = relayed{"chain", relaying.Chain, 64 * kilo}
	binomial = relayed{"binomial tree", relaying.Binomial, 0}
	unicasts = relayed{"unicasts", relaying.Unicast, 0}
)

// relay sends bytes to drawn receivers over a new network. Programs pass messages on in the order
// of hosts, so that neighbours in a chain are often at one switch.
func (s *session) relay(c scale.Config, m *relayed, receivers int, bytes int64) (*scale.Net, *scale.Relay, error) {
	source, others := s.members(&c, receivers)
	return s.relayTo(c, m, source, slices.Sorted(slices.Values(others)), bytes)
}

func (s *session) relayTo(c scale.Config, m *relayed, source int, others []int, bytes int64) (*scale.Net, *scale.Relay, error) {
	c.MessageBytes = max(c.MessageBytes, int(m.sliceOf(bytes)))
	n, err := scale.New(c)
	if err != nil {
		return nil, nil, err
	}
	r, err := n.NewRelay(source, others, m.shape, bytes, int(m.sliceOf(bytes)))
	if err != nil {
		return nil, nil, err
	}
	r.Start(n)
	return n, r, s.finish(n)
}

// sliceOf returns the length of the slices of a transfer.
func (m *relayed) sliceOf(bytes int64) int64 {
	if m.slice == 0 {
		return bytes
	}
	return min(bytes, m.slice)
}

// way is a group, or one of the ways to do without.
type way struct {
	name    string
	without *relayed // nil: a group
}

// The ways that MC-RDMA compares. Its chain passes on whole messages (CR), and its fan-out sends
// one message to each receiver.
var (
	wholeChain = relayed{"chain, whole messages", relaying.Chain, 0}
	replicated = []way{
		{"group", nil}, {"fan-out", &unicasts}, {wholeChain.name, &wholeChain}, {"chain, slices of 64 KiB", &chain},
	}
)

// begin sends bytes to receivers over a network that others use, too. then runs when all receivers
// have everything.
func (w *way) begin(n *scale.Net, source int, others []int, bytes int64, then func()) error {
	if w.without == nil {
		g, err := n.NewGroup(source, others, feedback.Policy{})
		if err == nil {
			g.Then(then)
			g.Send(n, bytes)
		}
		return err
	}
	r, err := n.NewRelay(source, others, w.without.shape, bytes, int(w.without.sliceOf(bytes)))
	if err == nil {
		r.Then(then)
		r.Start(n)
	}
	return err
}
