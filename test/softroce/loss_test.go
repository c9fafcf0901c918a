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

// stream WRITEs 1 MiB in 16 messages, 1024 packets, while frames are lost.
func (c *cast) stream(t *testing.T, ctx context.Context, s *stage, faults ...func(*sight) bool) string {
	t.Helper()
	return c.streamOf(t, ctx, s, messageBytes, faults...)
}

// streamOf fills the memory with messages of a size. Something has to be lost, or nothing is shown.
func (c *cast) streamOf(t *testing.T, ctx context.Context, s *stage, bytes int, faults ...func(*sight) bool) string {
	t.Helper()
	count := c.bytes / bytes
	s.lose(faults...)
	c.run(t, ctx, c.transfer("write", bytes, count))
	s.lose()
	c.complete(t, ctx, bytes*count)
	_, lost := s.tally(c)
	if lost == 0 {
		t.Error("nothing was lost")
	}
	return fmt.Sprintf("%d frames lost: %d messages done, hashes equal, QPs live", lost, count)
}

func storyLegLoss(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	return c.stream(t, ctx, s, each(1, packetsAt(to(1), 0, 63, 64, streamPackets-1)), randomly(1, 0.02, to(1)))
}

func storyUplinkLoss(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	return c.stream(t, ctx, s, each(1, packetsAt(at(uplink), 0, 64, 300, streamPackets-1)), randomly(2, 0.01, at(uplink)))
}

// storyTwice loses packets and what is resent for them.
func storyTwice(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	return c.stream(t, ctx, s,
		each(2, packetsAt(to(0), 100, 101)), each(3, packetsAt(to(2), 640)), each(2, packetsAt(at(uplink), 500)))
}

// storyReceiverACKs and storyMergedACKs have small messages, because ACKs are lost: each asks for one.
func storyReceiverACKs(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	return c.streamOf(t, ctx, s, 3000, randomly(3, 0.3, at(answer)))
}

func storyMergedACKs(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	return c.streamOf(t, ctx, s, 3000, randomly(4, 0.3, at(merged)))
}

// storyLastACK loses the answer after which nothing more would come by itself.
func storyLastACK(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	const bytes, count = 3000, 8
	const packets = 3 * count
	for round, fault := range []func(last int32) func(*sight) bool{
		func(last int32) func(*sight) bool { return each(1, packetsAt(at(merged), last)) },
		func(last int32) func(*sight) bool { return each(2, packetsAt(at(merged), last)) },
		func(last int32) func(*sight) bool { return each(1, packetsAt(from(1), last)) },
		func(last int32) func(*sight) bool { return each(3, packetsAt(at(answer), last)) },
	} {
		must(t, c.from.Fill(ctx, uint64(10+round)))
		_, before := s.tally(c)
		s.lose(fault(int32(packets*(round+1) - 1)))
		c.run(t, ctx, c.transfer("write", bytes, count))
		c.hold(t, ctx, bytes*count, c.to...)
		if _, lost := s.tally(c); lost == before {
			t.Errorf("round %d: nothing was lost", round)
		}
	}
	c.complete(t, ctx, bytes*count)
	return "lost once, twice, by one receiver, by all: messages done, hashes equal, QPs live"
}

const (
	hundred = 100
	place   = 65 // where rxe asks for an ACK inside a message
)

// storyHundred is one message of 100 packets whose ACKs are lost in two rounds running. In the third round everything is
// acknowledged long ago, but an ACK beyond the source's place could hang it for good (rule 1).
func storyHundred(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.connect.Timeout = 15 // 134 ms: no ACK is on its way any more when the source begins again
	c := s.enter(t, ctx, what)
	for i, where := range []hop{merged, answer} {
		must(t, c.from.Fill(ctx, uint64(20+i)))
		s.lose(s.twoRounds(int32(hundred*i), where))
		c.run(t, ctx, c.transfer("write", hundred*c.pathMTU, 1))
		c.hold(t, ctx, hundred*c.pathMTU, c.to...)
	}
	c.complete(t, ctx, hundred*c.pathMTU)
	_, lost := s.tally(c)
	return fmt.Sprintf("merged ACKs, then receivers' ACKs: %d frames lost, no ACK beyond the source's place, hashes equal, QPs live", lost)
}

// twoRounds loses the ACKs of a message in the source's first two rounds. In the third it holds the source back, for the
// box, at a place in the middle, and accuses the box of any ACK beyond.
func (j *judge) twoRounds(beginning int32, where hop) func(*sight) bool {
	round, last := 1, beginning-1
	return func(s *sight) bool {
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
			j.accuse("%v: the source has come no further than %d in this round", s, beginning+place)
		}
		return beyond && s.hop == uplink
	}
}

func storyTwoLegs(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	return c.stream(t, ctx, s, each(1, packetsAt(to(0), 200, 203)), each(1, packetsAt(to(2), 200, 201, 202)),
		randomly(5, 0.02, to(0)), randomly(6, 0.02, to(2)))
}

// everywhere loses a share of all frames.
func everywhere(seed uint64, probability float64) func(*sight) bool {
	return randomly(seed, probability, func(*sight) bool { return true })
}

func storyEverywhere(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	return c.stream(t, ctx, s, everywhere(7, 0.01))
}

// storySendLoss has SENDs: a receiver that took one twice would use up a work request too many.
func storySendLoss(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	const bytes, count = 9001, 100
	for _, q := range c.to {
		must(t, q.PostReceives(ctx, count, bytes))
	}
	s.lose(everywhere(12, 0.02))
	c.run(t, ctx, c.transfer("send", bytes, count))
	c.received(t, ctx, count, Event{Opcode: "send", Local: Local{RegionBytes: bytes}})
	c.complete(t, ctx, bytes*count)
	_, lost := s.tally(c)
	return fmt.Sprintf("%d frames lost: %d SENDs done, as many completions, hashes equal, QPs live", lost, count)
}

// storyLower is loss on two legs under the policy that tells the source of a NAK at once.
func storyLower(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.nak = "lower"
	c := s.enter(t, ctx, what)
	return c.stream(t, ctx, s, randomly(13, 0.02, to(0)), randomly(14, 0.02, to(2)))
}
