//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// storyGroups runs three groups at once whose members share hosts: two under one IP told apart by QPN, and one of its own.
// Hosts are source in one and receiver in the others.
func storyGroups(t *testing.T, ctx context.Context, s *stage) string {
	a, b, c := ordinary(), ordinary(), ordinary()
	b.name, b.qpn, b.source, b.receivers = "g2", 2, 1, []int{0, 2, 3}
	c.name, c.ip, c.source, c.receivers = "g3", netip.MustParseAddr("10.77.0.101"), 2, []int{3, 0, 1}
	casts := []*cast{s.enter(t, ctx, a), s.enter(t, ctx, b), s.enter(t, ctx, c)}
	s.lose(randomly(9, 0.01, at(copied)), randomly(10, 0.01, at(merged)))
	transfers := make([]Transfer, len(casts))
	for i, c := range casts {
		must(t, c.from.Fill(ctx, uint64(100+i)))
		transfers[i] = c.transfer("write", messageBytes, streamMessages)
	}
	for i, c := range casts {
		must(t, c.from.StartTransfer(transfers[i]))
	}
	for i, c := range casts {
		c.await(t, ctx, transfers[i])
	}
	total := 0
	for _, c := range casts {
		c.complete(t, ctx, streamMessages*messageBytes)
		_, lost := s.tally(c)
		total += lost
	}
	return fmt.Sprintf("%d groups, %d frames lost: all messages done, hashes equal, QPs live", len(casts), total)
}

// storyUnicast has members talk to each other through the same ports while the group is busy.
func storyUnicast(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	const bytes, count = 30_001, 32
	there := s.pair(t, ctx, 0, 1, DefaultConnect()) // the source to a receiver
	across := s.pair(t, ctx, 3, 2, DefaultConnect())
	must(t, across.to[0].PostReceives(ctx, count, bytes))
	s.lose(randomly(11, 0.01, at(copied)))
	group := c.transfer("write", messageBytes, streamMessages)
	write := Transfer{Op: "write", Peer: there.to[0].Local, Bytes: bytes, Count: count, Depth: 8}
	send := Transfer{Op: "send", Bytes: bytes, Count: count, Depth: 8}
	must(t, c.from.StartTransfer(group))
	must(t, there.from.StartTransfer(write))
	must(t, across.from.StartTransfer(send))
	there.await(t, ctx, write)
	across.await(t, ctx, send)
	c.await(t, ctx, group)
	there.complete(t, ctx, bytes*count)
	across.complete(t, ctx, bytes*count)
	c.complete(t, ctx, streamMessages*messageBytes)
	return fmt.Sprintf("a group, a unicast WRITE and a unicast SEND of %d messages: hashes equal, QPs live", count)
}

// pair connects QPs of two guests with each other, without any group.
func (s *stage) pair(t *testing.T, ctx context.Context, from, to int, connect ConnectOptions) *cast {
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
	return &cast{from: ends[0], to: ends[1:]}
}
