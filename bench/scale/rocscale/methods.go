package main

import (
	"slices"

	"github.com/rocast/rocast/bench/scale"
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
	slice := bytes
	if m.slice > 0 {
		slice = min(slice, m.slice)
	}
	c.MessageBytes = max(c.MessageBytes, int(slice))
	n, err := scale.New(c)
	if err != nil {
		return nil, nil, err
	}
	r, err := n.NewRelay(source, others, m.shape, bytes, int(slice))
	if err != nil {
		return nil, nil, err
	}
	r.Start(n)
	return n, r, s.finish(n)
}
