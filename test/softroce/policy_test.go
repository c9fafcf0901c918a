//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// part is how a receiver takes part in its group. The command line says it.
func (s *stage) part(t *testing.T, ctx context.Context, g *group, q *QP) string {
	t.Helper()
	var shown api.Group
	out, err := s.ask(ctx, "group", "show", g.name)
	must(t, err)
	must(t, json.Unmarshal(out, &shown))
	for _, m := range shown.Members {
		if m.IP == q.Addr.String() {
			return m.Part
		}
	}
	t.Fatalf("%v is not a member of %s", q.Addr, g.name)
	return ""
}

// storyQuorum loses the copies for one receiver until the source has an ACK for them: two of three
// receivers are enough. Then this receiver asks for packets that the source no longer has. It
// becomes behind, and the other members are not affected. The stream is long: if the kernel carried
// packets just before the loss, the receiver's NAK may be older than the packet's last copy, and
// the receiver is behind only when it leaves eight packets unanswered (rule 9).
func storyQuorum(t *testing.T, ctx context.Context, s *stage) string {
	const count = 40
	spec := ordinary()
	spec.policy, spec.quorum, spec.bytes = "ack: quorum 2\n", 2, count*messageBytes
	spec.repair = "off"
	g := s.addGroup(t, ctx, spec)
	const hole = 200
	passed := false
	// From then on the other two are the quorum, and what one of them loses is sent again.
	another := randomly(12, 0.01, to(0))
	s.lose(func(s *sighting) bool {
		passed = passed || s.hop == merged && s.aeth.Syndrome.IsACK() && s.offset > hole
		return !passed && s.hop == copied && s.receiver == 1 && s.offset >= hole
	}, func(s *sighting) bool { return passed && another(s) })
	g.run(t, ctx, g.transfer("write", messageBytes, count))
	s.lose()
	g.holds(t, ctx, g.bytes, g.to[0], g.to[2])
	inState(t, ctx, "RTS", append(g.to, g.from)...)
	if part := s.part(t, ctx, g, g.to[1]); part != "behind" {
		t.Errorf("the receiver that lacks packet %d is %q, want behind", hole, part)
	}
	_, lost := s.tally(g)
	return fmt.Sprintf("2 of 3: %d frames lost, %d messages done, two receivers have them, the third is behind, QPs live", lost, count)
}

// storyQuorumUplink loses packets on the uplink only. All receivers ask for the same packets, and
// no receiver lacks a packet for ever.
func storyQuorumUplink(t *testing.T, ctx context.Context, s *stage) string {
	const count = 60
	spec := ordinary()
	spec.policy, spec.quorum, spec.bytes = "ack: quorum 2\n", 2, count*messageBytes
	g := s.addGroup(t, ctx, spec)
	s.lose(randomly(16, 1./300, at(uplink)))
	g.run(t, ctx, g.transfer("write", messageBytes, count))
	s.lose()
	s.await(t, ctx, "all receivers acknowledge everything", s.whenTrue(func() bool { return slices.Min(g.acked) == g.sent }))
	for i, q := range g.to {
		if part := s.part(t, ctx, g, q); part != "active" {
			t.Errorf("receiver %d is %q, and no copy for it was lost", i, part)
		}
	}
	g.delivered(t, ctx, g.bytes)
	_, lost := s.tally(g)
	if lost == 0 {
		t.Error("nothing was lost")
	}
	return fmt.Sprintf("2 of 3: %d packets lost on the uplink, %d messages done, all three take part, hashes equal, QPs live", lost, count)
}

// storyEvicted powers a receiver off in a group with eviction. The group continues without it.
func storyEvicted(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	const silentAfter = 2 * time.Second // a guest that gets no CPU for a while is not taken for one that is off
	spec.policy = fmt.Sprintf("silent-after: %v\nevict: true\n", silentAfter)
	g := s.addGroup(t, ctx, spec)
	transfer := g.transfer("write", smallMessageBytes, smallMessageCount)
	must(t, g.from.StartTransfer(transfer))
	s.reaches(t, ctx, g, 300)
	s.locked(func() { g.excluded[1] = true })
	s.Guests[2].PowerOff()
	g.await(t, ctx, transfer)
	inState(t, ctx, "RTS", g.from, g.to[0], g.to[2])
	if part := s.part(t, ctx, g, g.to[1]); part != "evicted" {
		t.Errorf("the receiver that is off is %q, want evicted", part)
	}
	said := ""
	for _, q := range []*QP{g.to[0], g.to[2]} {
		if part := s.part(t, ctx, g, q); part != "active" {
			said += s.late(t, silentAfter, "the receiver at %v is %q, want active", q.Addr, part)
			continue
		}
		g.holds(t, ctx, g.bytes, q)
	}
	return fmt.Sprintf("%d WRITEs done without an error, the other receivers have them%s", smallMessageCount, said)
}

// storyMembers adds a receiver to a running group. Its QP is new. Then the story removes another
// receiver while the source sends.
func storyMembers(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.late = 2
	g := s.addGroup(t, ctx, spec)
	transfer := g.transfer("write", messageBytes, streamMessages)
	g.run(t, ctx, transfer)
	g.holds(t, ctx, g.bytes, g.to[:2]...)

	s.locked(func() {
		g.expects[2], g.acked[2], g.excluded[2] = receiverPSNs[2].Add(-(g.sent + 1)), g.sent, false
	})
	s.update(t, ctx, g)
	must(t, g.from.Fill(ctx, 20))
	// Until a receiver has left, the box gets no packet from this one on, so the source cannot end:
	// the command takes as long as it takes. A copy of an earlier packet may still be on its way.
	const later = 2*streamPackets - 100
	left, sent, copies := false, 0, 0
	s.lose(randomly(15, 0.01, at(copied)), func(s *sighting) bool {
		if s.hop == copied && s.receiver == 0 && s.offset >= later {
			copies++
		}
		return !left && s.hop == uplink && s.offset >= later
	})
	must(t, g.from.StartTransfer(transfer))
	s.reaches(t, ctx, g, streamPackets+300)
	s.allowed = []string{"not-receiver"} // responses of the receiver that leaves are on their way
	s.locked(func() { g.excluded[0] = true })
	s.update(t, ctx, g)
	s.locked(func() { left, sent = true, int(g.sent) })
	g.await(t, ctx, transfer)
	if sent >= later {
		t.Error("the source had sent everything before the receiver left")
	}
	s.locked(func() {
		if copies > 0 {
			t.Errorf("%d copies were sent to the receiver that has left", copies)
		}
	})
	g.holds(t, ctx, g.bytes, g.to[1:]...)
	inState(t, ctx, "RTS", append(g.to, g.from)...)
	return "one receiver joins, one leaves during a transfer: all messages done, all members have them, QPs live"
}

// update gives rocast the group file with the members of now.
func (s *stage) update(t *testing.T, ctx context.Context, g *group) {
	t.Helper()
	must(t, s.give(ctx, "update", g.name, g.groupFile()))
}

// storySourceSwitch lets several members send, one after the other. Each continues with its own
// next PSN. Data of a member makes this member the source.
func storySourceSwitch(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.both = true
	g := s.addGroup(t, ctx, spec)
	s.lose(randomly(13, 0.01, at(copied)), randomly(14, 0.01, at(merged)))
	turns := []int{0, 2, 1, 0}
	for turn, next := range append(turns, noReceiver) {
		must(t, g.from.Fill(ctx, uint64(300+turn)))
		g.run(t, ctx, g.transfer("write", smallMessageBytes, smallMessageCount))
		g.delivered(t, ctx, g.bytes)
		if next != noReceiver {
			s.switchSource(g, next)
		}
	}
	_, lost := s.tally(g)
	return fmt.Sprintf("%d turns of 4 sources, %d frames lost: hashes equal after each, QPs live", len(turns)+1, lost)
}

// storyFenced takes a source's access away at one receiver after the other, as replicas do that
// follow another leader (docs/uses.md#consensus). One that refuses leaves. Without the second there
// is no quorum, and the source's QP ends. Events name both.
func storyFenced(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.policy, spec.quorum, spec.bytes = "ack: quorum 2\n", 2, streamMessages*messageBytes
	g := s.addGroup(t, ctx, spec)
	transfer := g.transfer("write", messageBytes, streamMessages)
	g.run(t, ctx, transfer)
	must(t, g.to[0].Fence(ctx, "qp"))
	s.locked(func() { g.excluded[0] = true })
	must(t, g.from.Fill(ctx, 40))
	g.run(t, ctx, transfer)
	g.holds(t, ctx, g.bytes, g.to[1:]...)

	must(t, g.to[1].Fence(ctx, "key"))
	must(t, g.from.StartTransfer(transfer))
	if done := g.fails(t, ctx, remoteAccessError); done != 0 {
		t.Errorf("%d WRITEs are done, want 0", done)
	}
	inState(t, ctx, "ERR", g.from, g.to[0], g.to[1])
	inState(t, ctx, "RTS", g.to[2])
	var refusals []string
	for _, q := range g.to[:2] {
		refusals = append(refusals, s.refusal(t, ctx, g, q))
	}
	return fmt.Sprintf("the first receiver leaves, the second ends the source: %q", refusals)
}

// refusal returns what the event says about a receiver that has refused data.
func (s *stage) refusal(t *testing.T, ctx context.Context, g *group, q *QP) string {
	t.Helper()
	out, err := s.ask(ctx, "events", "--group", g.name)
	must(t, err)
	var told api.Events
	must(t, json.Unmarshal(out, &told))
	for _, e := range told.Events {
		if e.Kind == api.MemberRefused && e.Member == q.Addr.String() && e.RemoteQPN == uint32(g.qpn) {
			return e.Cause
		}
	}
	t.Errorf("no event says that %v has refused: %s", q.Addr, out)
	return ""
}
