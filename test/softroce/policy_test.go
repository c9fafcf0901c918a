//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

// part is how a receiver takes part in its group, as the command line tells it.
func (s *stage) part(t *testing.T, ctx context.Context, c *cast, q *QP) string {
	t.Helper()
	var g api.Group
	out, err := s.ask(ctx, "group", "show", c.name)
	must(t, err)
	must(t, json.Unmarshal(out, &g))
	for _, m := range g.Members {
		if m.IP == q.Addr.String() {
			return m.Part
		}
	}
	t.Fatalf("%v is no member of %s", q.Addr, c.name)
	return ""
}

// storyQuorum loses a packet on one leg until the source has been told of it: two of three suffice. The receiver then asks
// for what the source has let go of, is behind, and disturbs nobody.
func storyQuorum(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.policy, what.quorum = "ack: quorum 2\n", 2
	c := s.enter(t, ctx, what)
	const hole = 200
	passed := false
	s.lose(func(s *sight) bool {
		passed = passed || s.hop == merged && s.aeth.Syndrome.IsACK() && s.offset > hole
		return !passed && s.hop == copied && s.receiver == 1 && s.offset >= hole
	}, randomly(12, 0.01, to(0)))
	c.run(t, ctx, c.transfer("write", messageBytes, streamMessages))
	s.lose()
	c.hold(t, ctx, c.bytes, c.to[0], c.to[2])
	stand(t, ctx, "RTS", append(c.to, c.from)...)
	if part := s.part(t, ctx, c, c.to[1]); part != "behind" {
		t.Errorf("the receiver that lacks packet %d is %q, want behind", hole, part)
	}
	_, lost := s.tally(c)
	return fmt.Sprintf("2 of 3: %d frames lost, %d messages done and held by two, the third behind, QPs live", lost, streamMessages)
}

// storyQuorumUplink loses packets on the uplink alone. Then all receivers ask for the same packets, and none of them lacks
// a packet for good.
func storyQuorumUplink(t *testing.T, ctx context.Context, s *stage) string {
	const count = 60
	what := ordinary()
	what.policy, what.quorum, what.bytes = "ack: quorum 2\n", 2, count*messageBytes
	c := s.enter(t, ctx, what)
	s.lose(randomly(16, 1./300, at(uplink)))
	c.run(t, ctx, c.transfer("write", messageBytes, count))
	s.lose()
	s.await(t, ctx, "all receivers acknowledge everything", s.once(func() bool { return slices.Min(c.acked) == c.sent }))
	for i, q := range c.to {
		if part := s.part(t, ctx, c, q); part != "active" {
			t.Errorf("receiver %d is %q, and has lost nothing", i, part)
		}
	}
	c.complete(t, ctx, c.bytes)
	_, lost := s.tally(c)
	if lost == 0 {
		t.Error("nothing was lost")
	}
	return fmt.Sprintf("2 of 3: %d packets lost on the uplink, %d messages done, all three take part, hashes equal, QPs live", lost, count)
}

// storyEvicted pulls a receiver's plug in a group that would rather go on without it.
func storyEvicted(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.policy = "silent-after: 500ms\nevict: true\n"
	c := s.enter(t, ctx, what)
	transfer := c.transfer("write", smallMessageBytes, smallMessageCount)
	must(t, c.from.StartTransfer(transfer))
	s.reaches(t, ctx, c, 300)
	s.books(func() { c.away[1] = true })
	s.Guests[2].PowerOff()
	c.await(t, ctx, transfer)
	c.hold(t, ctx, c.bytes, c.to[0], c.to[2])
	stand(t, ctx, "RTS", c.from, c.to[0], c.to[2])
	if part := s.part(t, ctx, c, c.to[1]); part != "evicted" {
		t.Errorf("the receiver that is off is %q, want evicted", part)
	}
	return fmt.Sprintf("%d WRITEs done and held by the others; the source never knew", smallMessageCount)
}

// storyMembers lets a receiver into a running group, with a queue pair that has seen nothing, and takes another one out in
// mid-stream.
func storyMembers(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.late = 2
	c := s.enter(t, ctx, what)
	transfer := c.transfer("write", messageBytes, streamMessages)
	c.run(t, ctx, transfer)
	c.hold(t, ctx, c.bytes, c.to[:2]...)

	s.books(func() {
		c.expects[2], c.acked[2], c.away[2] = receiverPSNs[2].Add(-(c.sent + 1)), c.sent, false
	})
	s.update(t, ctx, c)
	must(t, c.from.Fill(ctx, 20))
	s.lose(randomly(15, 0.01, at(copied)))
	must(t, c.from.StartTransfer(transfer))
	s.reaches(t, ctx, c, streamPackets+300)
	s.books(func() { c.away[0] = true })
	s.update(t, ctx, c)
	sent, copies := 0, 0
	s.books(func() { sent, copies = int(c.sent), c.copies[0] })
	c.await(t, ctx, transfer)
	if sent == 2*streamPackets-1 {
		t.Error("all was sent before the receiver left")
	}
	s.books(func() {
		if c.copies[0] > copies {
			t.Errorf("%d copies for the receiver that has left", c.copies[0]-copies)
		}
	})
	c.hold(t, ctx, c.bytes, c.to[1:]...)
	stand(t, ctx, "RTS", append(c.to, c.from)...)
	return "one joins, one leaves in mid-stream: all messages done and held by those who are in, QPs live"
}

func (s *stage) update(t *testing.T, ctx context.Context, c *cast) {
	t.Helper()
	file := s.path(c.name + ".yaml")
	must(t, os.WriteFile(file, []byte(c.groupFile()), 0o600))
	_, err := s.ask(ctx, "group", "update", "-f", file)
	must(t, err)
}

// storySourceSwitch has the members send one after the other, each from its own place: data of a member makes it the source.
func storySourceSwitch(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.both = true
	c := s.enter(t, ctx, what)
	s.lose(randomly(13, 0.01, at(copied)), randomly(14, 0.01, at(merged)))
	turns := []int{0, 2, 1, 0}
	for turn, next := range append(turns, nobody) {
		must(t, c.from.Fill(ctx, uint64(300+turn)))
		c.run(t, ctx, c.transfer("write", smallMessageBytes, smallMessageCount))
		c.complete(t, ctx, c.bytes)
		if next != nobody {
			s.handOver(c, next)
		}
	}
	_, lost := s.tally(c)
	return fmt.Sprintf("%d turns of 4 sources, %d frames lost: hashes equal after each, QPs live", len(turns)+1, lost)
}
