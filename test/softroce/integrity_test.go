//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
)

// sizes are message sizes of one packet, of a few packets and of many packets, with and without pad
// bytes.
var sizes = []int{1, 2, 3, 64, 1021, 1024, 1025, 4096, 4099, 65537, 1 << 20}

// perSize is how many messages of each size are sent, if the memory has room for them.
const perSize = 16

func storyWrite(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	for _, bytes := range sizes {
		count := min(perSize, g.bytes/bytes)
		must(t, g.from.Fill(ctx, uint64(bytes)))
		g.run(t, ctx, g.transfer("write", bytes, count))
		g.holds(t, ctx, bytes*count, g.to...)
	}
	g.delivered(t, ctx, g.bytes)
	sent, _ := s.tally(g)
	return fmt.Sprintf("%d sizes, %d packets: hashes equal, QPs live", len(sizes), sent)
}

func storyWriteImm(t *testing.T, ctx context.Context, s *stage) string {
	return storyReceived(t, ctx, s, "write")
}

func storySend(t *testing.T, ctx context.Context, s *stage) string {
	return storyReceived(t, ctx, s, "send")
}

// storyReceived sends messages that use work requests of the receivers. WRITEs always have
// immediate data, and every second size of SENDs has.
func storyReceived(t *testing.T, ctx context.Context, s *stage, op string) string {
	g := s.addGroup(t, ctx, ordinary())
	received := 0
	for i, bytes := range sizes {
		transfer := g.transfer(op, bytes, min(perSize, g.bytes/bytes))
		var imm uint32
		if op == "write" || i%2 == 1 {
			imm = 0xC0FFEE00 + uint32(i)
			transfer.Imm = &imm
		}
		for _, q := range g.to {
			must(t, q.PostReceives(ctx, transfer.Count, bytes))
		}
		must(t, g.from.Fill(ctx, uint64(bytes)))
		g.run(t, ctx, transfer)
		received += transfer.Count
		g.received(t, ctx, received, Event{Opcode: op, Imm: imm, Local: Local{RegionBytes: bytes}})
		g.holds(t, ctx, bytes*transfer.Count, g.to...)
	}
	g.delivered(t, ctx, g.bytes)
	sent, _ := s.tally(g)
	return fmt.Sprintf("%d sizes, %d packets: hashes equal, %d completions at each receiver, QPs live",
		len(sizes), sent, received)
}

// received checks that every receiver has n completions, and checks the newest of them.
func (g *group) received(t *testing.T, ctx context.Context, n int, want Event) {
	t.Helper()
	for _, q := range g.to {
		all, err := q.AwaitReceives(ctx, n)
		must(t, err)
		got := all[len(all)-1]
		if len(all) != n || got.Status != Success || got.Opcode != want.Opcode || got.Imm != want.Imm ||
			got.RegionBytes != want.RegionBytes {
			t.Errorf("receiver at %v: %d completions, want %d; the last is %+v", q.Addr, len(all), n, got)
		}
	}
}

// storyPathMTU uses other path MTUs, with loss. With 4096 a frame fills two AF_XDP buffers.
func storyPathMTU(t *testing.T, ctx context.Context, s *stage) string {
	packets := 0
	for _, pathMTU := range []int{256, 2048, 4096} {
		spec := ordinary()
		spec.pathMTU = pathMTU
		g := s.addGroup(t, ctx, spec)
		s.lose(each(1, packetsAt(to(1), 3, 60)), randomly(uint64(pathMTU), 0.01, at(uplink)))
		for _, bytes := range []int{1, 255, 4095, 4097, 9001, 262_147} {
			count := min(perSize, g.bytes/bytes)
			g.run(t, ctx, g.transfer("write", bytes, count))
			g.holds(t, ctx, bytes*count, g.to...)
		}
		inState(t, ctx, "RTS", append(g.to, g.from)...)
		sent, _ := s.tally(g)
		packets += sent
		s.removeGroup(t, ctx, g)
	}
	return fmt.Sprintf("path MTU 256, 2048, 4096 with loss, %d packets: hashes equal, QPs live", packets)
}

// storyPortMTU uses ports without jumbo frames. Then rocast opens them without multi-buffer.
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
	g := s.addGroup(t, ctx, ordinary())
	return g.stream(t, ctx, s, randomly(1, 0.01, to(1)))
}

func storyIPv6(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.ip = netip.MustParseAddr("fd77::100")
	g := s.addGroup(t, ctx, spec)
	return g.stream(t, ctx, s, randomly(1, 0.01, to(1)), randomly(2, 0.01, at(merged)))
}
