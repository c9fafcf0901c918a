//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
)

// sizes are those of one packet, of a few, and of many; with and without pad; around what fits.
var sizes = []int{1, 2, 3, 64, 1021, 1024, 1025, 4096, 4099, 65537, 1 << 20}

// perSize is how many messages of each size are sent, if the memory holds so many.
const perSize = 16

func storyWrite(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	for _, bytes := range sizes {
		count := min(perSize, c.bytes/bytes)
		must(t, c.from.Fill(ctx, uint64(bytes)))
		c.run(t, ctx, c.transfer("write", bytes, count))
		c.hold(t, ctx, bytes*count, c.to...)
	}
	c.complete(t, ctx, c.bytes)
	sent, _ := s.tally(c)
	return fmt.Sprintf("%d sizes, %d packets: hashes equal, QPs live", len(sizes), sent)
}

func storyWriteImm(t *testing.T, ctx context.Context, s *stage) string {
	return storyReceived(t, ctx, s, "write")
}

func storySend(t *testing.T, ctx context.Context, s *stage) string {
	return storyReceived(t, ctx, s, "send")
}

// storyReceived sends messages that use up work requests of the receivers; every second size with immediate data, but
// WRITEs always.
func storyReceived(t *testing.T, ctx context.Context, s *stage, op string) string {
	c := s.enter(t, ctx, ordinary())
	received := 0
	for i, bytes := range sizes {
		transfer := c.transfer(op, bytes, min(perSize, c.bytes/bytes))
		var imm uint32
		if op == "write" || i%2 == 1 {
			imm = 0xC0FFEE00 + uint32(i)
			transfer.Imm = &imm
		}
		for _, q := range c.to {
			must(t, q.PostReceives(ctx, transfer.Count, bytes))
		}
		must(t, c.from.Fill(ctx, uint64(bytes)))
		c.run(t, ctx, transfer)
		received += transfer.Count
		c.received(t, ctx, received, Event{Opcode: op, Imm: imm, Local: Local{RegionBytes: bytes}})
		c.hold(t, ctx, bytes*transfer.Count, c.to...)
	}
	c.complete(t, ctx, c.bytes)
	sent, _ := s.tally(c)
	return fmt.Sprintf("%d sizes, %d packets: hashes equal, %d completions at each receiver, QPs live",
		len(sizes), sent, received)
}

// received checks that every receiver has so many completions, and that the newest is as wanted.
func (c *cast) received(t *testing.T, ctx context.Context, n int, want Event) {
	t.Helper()
	for _, q := range c.to {
		all, err := q.AwaitReceives(ctx, n)
		must(t, err)
		got := all[len(all)-1]
		if len(all) != n || got.Status != Success || got.Opcode != want.Opcode || got.Imm != want.Imm ||
			got.RegionBytes != want.RegionBytes {
			t.Errorf("receiver at %v: %d completions, want %d; the last is %+v", q.Addr, len(all), n, got)
		}
	}
}

// storyPathMTU has loss too: with 4096 a frame fills two AF_XDP buffers.
func storyPathMTU(t *testing.T, ctx context.Context, s *stage) string {
	packets := 0
	for _, pathMTU := range []int{256, 2048, 4096} {
		what := ordinary()
		what.pathMTU = pathMTU
		c := s.enter(t, ctx, what)
		s.lose(each(1, packetsAt(to(1), 3, 60)), randomly(uint64(pathMTU), 0.01, at(uplink)))
		for _, bytes := range []int{1, 255, 4095, 4097, 9001, 262_147} {
			count := min(perSize, c.bytes/bytes)
			c.run(t, ctx, c.transfer("write", bytes, count))
			c.hold(t, ctx, bytes*count, c.to...)
		}
		stand(t, ctx, "RTS", append(c.to, c.from)...)
		sent, _ := s.tally(c)
		packets += sent
		s.leave(t, ctx, c)
	}
	return fmt.Sprintf("path MTU 256, 2048, 4096 with loss, %d packets: hashes equal, QPs live", packets)
}

// storyPortMTU is the ports as they are without jumbo frames: rocast needs no multi-buffer then.
func storyPortMTU(t *testing.T, ctx context.Context, s *stage) string {
	change := func(ctx context.Context, mtu int) {
		must(t, s.Stop())
		must(t, s.SetMTU(ctx, mtu))
		must(t, s.Start(ctx))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storyLimit)
		defer cancel()
		change(ctx, MTU4096)
	})
	change(ctx, MTU1024)
	c := s.enter(t, ctx, ordinary())
	return c.stream(t, ctx, s, randomly(1, 0.01, to(1)))
}

func storyIPv6(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.ip = netip.MustParseAddr("fd77::100")
	c := s.enter(t, ctx, what)
	return c.stream(t, ctx, s, randomly(1, 0.01, to(1)), randomly(2, 0.01, at(merged)))
}
