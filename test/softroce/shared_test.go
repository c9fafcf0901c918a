//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// storyGroups runs three groups at once on the same hosts. Two groups have the same IP and
// different QPNs. The third group has an IP of its own. A host that is the source of one group is a
// receiver of the others.
func storyGroups(t *testing.T, ctx context.Context, s *stage) string {
	a, b, g := ordinary(), ordinary(), ordinary()
	b.name, b.qpn, b.source, b.receivers = "g2", 2, 1, []int{0, 2, 3}
	g.name, g.ip, g.source, g.receivers = "g3", netip.MustParseAddr("10.77.0.101"), 2, []int{3, 0, 1}
	groups := []*group{s.addGroup(t, ctx, a), s.addGroup(t, ctx, b), s.addGroup(t, ctx, g)}
	s.lose(randomly(9, 0.01, at(copied)), randomly(10, 0.01, at(merged)))
	transfers := make([]Transfer, len(groups))
	for i, g := range groups {
		must(t, g.from.Fill(ctx, uint64(100+i)))
		transfers[i] = g.transfer("write", messageBytes, streamMessages)
	}
	for i, g := range groups {
		must(t, g.from.StartTransfer(transfers[i]))
	}
	for i, g := range groups {
		g.await(t, ctx, transfers[i])
	}
	total := 0
	for _, g := range groups {
		g.delivered(t, ctx, streamMessages*messageBytes)
		_, lost := s.tally(g)
		total += lost
	}
	return fmt.Sprintf("%d groups, %d frames lost: all messages done, hashes equal, QPs live", len(groups), total)
}

// storyUnicast lets members send unicast to each other through the same ports while the group
// transfers.
func storyUnicast(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	const bytes, count = 30_001, 32
	there := s.pair(t, ctx, 0, 1, DefaultConnect()) // from the source's host to a receiver's
	across := s.pair(t, ctx, 3, 2, DefaultConnect())
	must(t, across.to[0].PostReceives(ctx, count, bytes))
	s.lose(randomly(11, 0.01, at(copied)))
	transfer := g.transfer("write", messageBytes, streamMessages)
	write := Transfer{Op: "write", Peer: there.to[0].Local, Bytes: bytes, Count: count, Depth: 8}
	send := Transfer{Op: "send", Bytes: bytes, Count: count, Depth: 8}
	must(t, g.from.StartTransfer(transfer))
	must(t, there.from.StartTransfer(write))
	must(t, across.from.StartTransfer(send))
	there.await(t, ctx, write)
	across.await(t, ctx, send)
	g.await(t, ctx, transfer)
	there.delivered(t, ctx, bytes*count)
	across.delivered(t, ctx, bytes*count)
	g.delivered(t, ctx, streamMessages*messageBytes)
	return fmt.Sprintf("a group, a unicast WRITE and a unicast SEND of %d messages: hashes equal, QPs live", count)
}

// pair connects QPs of two guests with each other. No group knows of them.
func (s *stage) pair(t *testing.T, ctx context.Context, from, to int, connect ConnectOptions) *group {
	t.Helper()
	ends := make([]*QP, 2)
	for i, guest := range []int{from, to} {
		q, err := s.Guests[guest].OpenQP(ctx, QPOptions{RegionBytes: 1 << 20, Spare: i, PSN: sourcePSN})
		must(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_ = q.Close(ctx)
		})
		must(t, q.Fill(ctx, uint64(200+i)))
		ends[i] = q
	}
	must(t, ends[0].Connect(ctx, ends[1].Local, connect))
	must(t, ends[1].Connect(ctx, ends[0].Local, connect))
	return &group{from: ends[0], to: ends[1:]}
}
