//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"testing"
)

const (
	streamMessages = 16
	messageBytes   = 64 << 10
	streamPackets  = streamMessages * messageBytes / 1024 // with path MTU 1024
)

// stream WRITEs 1 MiB in 16 messages, which are 1024 packets, while frames are lost.
func (g *group) stream(t *testing.T, ctx context.Context, s *stage, faults ...func(*sighting) bool) string {
	t.Helper()
	return g.streamOf(t, ctx, s, messageBytes, faults...)
}

// streamOf fills the memory with messages of one size. At least one frame has to be lost, or the
// story shows nothing.
func (g *group) streamOf(t *testing.T, ctx context.Context, s *stage, bytes int, faults ...func(*sighting) bool) string {
	t.Helper()
	count := g.bytes / bytes
	s.lose(faults...)
	g.run(t, ctx, g.transfer("write", bytes, count))
	s.lose()
	g.delivered(t, ctx, bytes*count)
	_, lost := s.tally(g)
	if lost == 0 {
		t.Error("nothing was lost")
	}
	return fmt.Sprintf("%d frames lost: %d messages done, hashes equal, QPs live", lost, count)
}

func storyLegLoss(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	return g.stream(t, ctx, s, each(1, packetsAt(to(1), 0, 63, 64, streamPackets-1)), randomly(1, 0.02, to(1)))
}

func storyUplinkLoss(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	return g.stream(t, ctx, s, each(1, packetsAt(at(uplink), 0, 64, 300, streamPackets-1)), randomly(2, 0.01, at(uplink)))
}

// storyTwice loses packets, and then the packets that are resent for them.
func storyTwice(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	return g.stream(t, ctx, s,
		each(2, packetsAt(to(0), 100, 101)), each(3, packetsAt(to(2), 640)), each(2, packetsAt(at(uplink), 500)))
}

// storyReceiverACKs and storyMergedACKs lose ACKs. Their messages are small, because every message
// asks for an ACK.
func storyReceiverACKs(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	return g.streamOf(t, ctx, s, 3000, randomly(3, 0.3, at(response)))
}

func storyMergedACKs(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	return g.streamOf(t, ctx, s, 3000, randomly(4, 0.3, at(merged)))
}

// storyLastACK loses the ACK of the last packet. No later packet makes a receiver or the box send
// another ACK.
func storyLastACK(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	const bytes, count = 3000, 8
	const packets = 3 * count
	for round, fault := range []func(last int32) func(*sighting) bool{
		func(last int32) func(*sighting) bool { return each(1, packetsAt(at(merged), last)) },
		func(last int32) func(*sighting) bool { return each(2, packetsAt(at(merged), last)) },
		func(last int32) func(*sighting) bool { return each(1, packetsAt(from(1), last)) },
		func(last int32) func(*sighting) bool { return each(3, packetsAt(at(response), last)) },
	} {
		must(t, g.from.Fill(ctx, uint64(10+round)))
		_, before := s.tally(g)
		s.lose(fault(int32(packets*(round+1) - 1)))
		g.run(t, ctx, g.transfer("write", bytes, count))
		g.holds(t, ctx, bytes*count, g.to...)
		if _, lost := s.tally(g); lost == before {
			t.Errorf("round %d: nothing was lost", round)
		}
	}
	g.delivered(t, ctx, bytes*count)
	return "lost once, lost twice, one receiver's lost, all receivers' lost: messages done, hashes equal, QPs live"
}

const (
	hundred = 100
	place   = 65 // the packet inside a message for which rxe asks for an ACK
)

// storyHundred sends one message of 100 packets and loses its ACKs in two rounds of the source. In
// the third round the receivers have acknowledged everything long ago. But an ACK beyond the
// source's place could hang the source for ever (rule 1).
func storyHundred(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.connect.Timeout = 15 // 134 ms: all ACKs have arrived when the source begins its next round
	g := s.addGroup(t, ctx, spec)
	for i, where := range []hop{merged, response} {
		must(t, g.from.Fill(ctx, uint64(20+i)))
		s.lose(s.twoRounds(int32(hundred*i), where))
		g.run(t, ctx, g.transfer("write", hundred*g.pathMTU, 1))
		g.holds(t, ctx, hundred*g.pathMTU, g.to...)
	}
	g.delivered(t, ctx, hundred*g.pathMTU)
	_, lost := s.tally(g)
	return fmt.Sprintf("merged ACKs, then receivers' ACKs: %d frames lost, no ACK beyond the source's place, hashes equal, QPs live", lost)
}

// twoRounds loses the ACKs of a message in the first two rounds of the source. In the third round
// it lets the box see the message up to the place only. An ACK beyond the place is a violation.
func (j *judge) twoRounds(beginning int32, where hop) func(*sighting) bool {
	round, last := 1, beginning-1
	return func(s *sighting) bool {
		if s.hop == uplink {
			if s.offset <= last {
				round++
			}
			last = s.offset
		}
		if round < 3 {
			return s.hop == where
		}
		beyond := round == 3 && s.offset > beginning+place
		if beyond && s.hop == merged {
			j.violation("%v: the source has sent packets up to %d only in this round", s, beginning+place)
		}
		return beyond && s.hop == uplink
	}
}

func storyTwoLegs(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	return g.stream(t, ctx, s, each(1, packetsAt(to(0), 200, 203)), each(1, packetsAt(to(2), 200, 201, 202)),
		randomly(5, 0.02, to(0)), randomly(6, 0.02, to(2)))
}

// everywhere loses a share of all frames.
func everywhere(seed uint64, probability float64) func(*sighting) bool {
	return randomly(seed, probability, func(*sighting) bool { return true })
}

func storyEverywhere(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	return g.stream(t, ctx, s, everywhere(7, 0.01))
}

// storySendLoss loses packets of SENDs. A receiver that takes a SEND twice uses one work request
// too many.
func storySendLoss(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	const bytes, count = 9001, 100
	for _, q := range g.to {
		must(t, q.PostReceives(ctx, count, bytes))
	}
	s.lose(everywhere(12, 0.02))
	g.run(t, ctx, g.transfer("send", bytes, count))
	g.received(t, ctx, count, Event{Opcode: "send", Local: Local{RegionBytes: bytes}})
	g.delivered(t, ctx, bytes*count)
	_, lost := s.tally(g)
	return fmt.Sprintf("%d frames lost: %d SENDs done, as many completions, hashes equal, QPs live", lost, count)
}

// storyLower loses packets on two legs, with the policy that passes a NAK on at once.
func storyLower(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.nak = "lower"
	g := s.addGroup(t, ctx, spec)
	return g.stream(t, ctx, s, randomly(13, 0.02, to(0)), randomly(14, 0.02, to(2)))
}
