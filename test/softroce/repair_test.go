//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// patient is a repaired group for guests that get no CPU for a while, because other programs want
// it too. Its source's timer runs for a second, and the box asks a receiver for longer than that
// before it gives up.
func patient() groupSpec {
	spec := repaired()
	spec.policy = "repair-attempts: 100\n" // of up to 16 ms
	spec.connect.Timeout = 18              // 1.07 s
	return spec
}

// usualRepair is how long a repair may take. The timer of perftest's queue pairs runs for 67 ms.
const usualRepair = 50 * time.Millisecond

// unnoticed checks that the source has not noticed the losses: it got no NAK, and it sent nothing
// again. It returns what there is to say about that.
func (s *stage) unnoticed(t *testing.T, g *group) string {
	t.Helper()
	n := s.notices(t, g)
	if len(n.naks)+len(n.resent) > 0 {
		t.Errorf("the source got %d NAKs %q and sent again %q, want none of both", len(n.naks), n.naks, n.resent)
	}
	slow := ""
	if took := n.usual(); took > usualRepair {
		slow = s.late(t, usualRepair, "half of %d repairs took %v or longer, want %v at most", len(n.repairs), took, usualRepair)
	}
	return "the source noticed nothing" + n.excuse() + slow
}

// late fails the test because of something that takes the time may at most, unless the machine gave
// this process no CPU for long. Then it returns what the story's line says of that.
func (s *stage) late(t *testing.T, may time.Duration, format string, args ...any) (said string) {
	t.Helper()
	what := fmt.Sprintf(format, args...)
	why := s.pulse.starved(may)
	if why == "" {
		t.Error(what)
		return ""
	}
	return ", " + what + ": " + why
}

// notices is what the source of a group has noticed.
func (s *stage) notices(t *testing.T, g *group) notices {
	t.Helper()
	enough := len(g.to)
	if g.quorum > 0 {
		enough = g.quorum
	}
	return noticed(len(g.to), enough, s.framesOf(t, g))
}

// framesOf is what passed of a group in the story.
func (s *stage) framesOf(t *testing.T, g *group) (frames []passage) {
	t.Helper()
	s.locked(func() {
		if len(s.trace) == maxTrace {
			t.Error("there were more frames than the judge keeps")
		}
		for i := range s.trace {
			if s.trace[i].group == g {
				frames = append(frames, s.trace[i].passage)
			}
		}
	})
	return frames
}

func (n *notices) excuse() string {
	if n.excused == 0 {
		return ""
	}
	return fmt.Sprintf(" but that it was silent itself (excused NAKs: %d)", n.excused)
}

func storyRepairLeg(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, patient())
	verified := g.stream(t, ctx, s, each(1, packetsAt(to(1), 0, 63, 64, 700, 701)), randomly(1, 0.02, to(1)))
	return verified + ", " + s.unnoticed(t, g)
}

// storyRepairLegs loses frames on all legs in both directions.
func storyRepairLegs(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, patient())
	verified := g.stream(t, ctx, s, randomly(21, 0.02, at(copied)), randomly(22, 0.1, at(response)))
	return verified + ", " + s.unnoticed(t, g)
}

// storyRepairLast loses the last packet of a message once, twice and three times. No receiver asks
// for it, so the box has to notice. The source would notice after a second.
func storyRepairLast(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, patient())
	const bytes = 16 << 10
	var took []int64
	for n := range 3 {
		must(t, g.from.Fill(ctx, uint64(30+n)))
		last := int32(bytes/g.pathMTU*(n+1) - 1)
		s.lose(each(n+1, packetsAt(to(1), last)))
		start := time.Now()
		g.run(t, ctx, g.transfer("write", bytes, 1))
		took = append(took, time.Since(start).Milliseconds())
		g.holds(t, ctx, bytes, g.to...)
	}
	g.delivered(t, ctx, bytes)
	if _, lost := s.tally(g); lost != 1+2+3 {
		t.Errorf("%d frames were lost, want 6", lost)
	}
	return fmt.Sprintf("lost once, twice, three times: done after %d ms, hashes equal, QPs live, %s", took, s.unnoticed(t, g))
}

// storyRepairUplinkEnd loses the last packets of a message on their way from the source. Nobody but
// the source knows of them, and it would wait for a second if the box did not call it back.
func storyRepairUplinkEnd(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, patient())
	const bytes = 16 << 10
	var took []int64
	for n, lost := range [][]int32{{15}, {30, 31}, {45, 46, 47}} {
		must(t, g.from.Fill(ctx, uint64(40+n)))
		s.lose(each(1, packetsAt(at(uplink), lost...)))
		start := time.Now()
		g.run(t, ctx, g.transfer("write", bytes, 1))
		took = append(took, time.Since(start).Milliseconds())
		g.holds(t, ctx, bytes, g.to...)
	}
	g.delivered(t, ctx, bytes)
	if _, n := s.tally(g); n != 1+2+3 {
		t.Errorf("%d frames were lost, want 6", n)
	}
	verified := ""
	if alone := unbidden(s.framesOf(t, g)); len(alone) > 0 {
		verified = s.late(t, time.Second, "the source needed its timeout: nothing called it back before it sent %d again", alone)
	}
	return fmt.Sprintf("the last 1, 2, 3 packets lost: done after %d ms, hashes equal, QPs live%s", took, verified)
}

// storyRepairSend loses copies of SENDs. A receiver that takes a SEND twice uses one work request
// too many.
func storyRepairSend(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, patient())
	const bytes, count = 9001, 100
	for _, q := range g.to {
		must(t, q.PostReceives(ctx, count, bytes))
	}
	s.lose(randomly(23, 0.02, at(copied)))
	g.run(t, ctx, g.transfer("send", bytes, count))
	g.received(t, ctx, count, Event{Opcode: "send", Local: Local{RegionBytes: bytes}})
	g.delivered(t, ctx, bytes*count)
	_, lost := s.tally(g)
	return fmt.Sprintf("%d frames lost: %d SENDs done, as many completions, hashes equal, QPs live, %s", lost, count, s.unnoticed(t, g))
}

// storyRepairRNR SENDs to a receiver that posts its work requests late, and asks for short waits.
// The box waits for it as long as it may; then the source has to.
func storyRepairRNR(t *testing.T, ctx context.Context, s *stage) string {
	spec := repaired()
	spec.connect.RNRTimer = 17 // 3.84 ms
	g := s.addGroup(t, ctx, spec)
	const bytes, count = 1000, 24
	must(t, g.to[0].PostReceives(ctx, count, bytes))
	must(t, g.to[2].PostReceives(ctx, count, bytes))
	asked := s.when(func(s *sighting) bool { return s.hop == response && s.aeth.Syndrome.IsRNR() })
	transfer := g.transfer("send", bytes, count)
	must(t, g.from.StartTransfer(transfer))
	s.await(t, ctx, "an RNR NAK of the receiver", asked)
	must(t, g.to[1].PostReceives(ctx, count, bytes))
	g.await(t, ctx, transfer)
	g.received(t, ctx, count, Event{Opcode: "send", Local: Local{RegionBytes: bytes}})
	g.delivered(t, ctx, bytes*count)
	heard := 0
	s.locked(func() { heard = g.naks })
	return fmt.Sprintf("the source got %d RNR NAKs, %d SENDs done, hashes equal, QPs live", heard, count)
}

// storyRepairImpatient has a source whose timeout is as short as the box's own.
func storyRepairImpatient(t *testing.T, ctx context.Context, s *stage) string {
	spec := repaired()
	spec.connect.Timeout = 10 // 4.2 ms
	g := s.addGroup(t, ctx, spec)
	verified := g.stream(t, ctx, s, randomly(24, 0.02, at(copied)), randomly(25, 0.02, at(response)))
	resent := 0
	s.locked(func() { resent = g.resent })
	return fmt.Sprintf("%s, the source sent %d packets again", verified, resent)
}

// storyRepairPowerOff powers a receiver off while it is repaired.
func storyRepairPowerOff(t *testing.T, ctx context.Context, s *stage) string {
	spec := repaired().finiteRetries()
	return powerOff(t, ctx, s, spec, randomly(26, 0.05, to(1)))
}

// storyRepairRestart kills the daemon while receivers are repaired. The next daemon has nothing to
// repair them from, so the source resends.
func storyRepairRestart(t *testing.T, ctx context.Context, s *stage) string {
	spec := repaired()
	spec.bytes = longBytes
	g := s.addGroup(t, ctx, spec)
	s.lose(randomly(27, 0.05, at(copied)))
	transfer := g.transfer("write", messageBytes, longMessages)
	must(t, g.from.StartTransfer(transfer))
	s.crash(t, ctx, g, 500)
	s.crash(t, ctx, g, 1500)
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, longBytes)
	_, lost := s.tally(g)
	return fmt.Sprintf("2 kills, %d frames lost: all messages done, hashes equal, QPs live", lost)
}

// storyRepairQuorum loses a packet for one receiver once, and then until the source has an ACK for
// it. Without repair this receiver is behind (storyQuorum). The box still has what it lacks.
func storyRepairQuorum(t *testing.T, ctx context.Context, s *stage) string {
	const count, hole = 16, 200 // all packets together fit into the retained window
	spec := patient()
	spec.quorum, spec.bytes = 2, count*messageBytes
	spec.policy += "ack: quorum 2\n"
	g := s.addGroup(t, ctx, spec)
	passed := false
	s.lose(each(1, packetsAt(to(1), hole)), func(s *sighting) bool {
		passed = passed || s.hop == merged && s.aeth.Syndrome.IsACK() && s.offset > hole
		return !passed && s.hop == copied && s.receiver == 1 && s.offset == hole
	})
	g.run(t, ctx, g.transfer("write", messageBytes, count))
	s.lose()
	s.await(t, ctx, "all receivers acknowledge everything", s.whenTrue(func() bool {
		return g.acked[0] == g.sent && g.acked[1] == g.sent && g.acked[2] == g.sent
	}))
	g.delivered(t, ctx, g.bytes)
	_, lost := s.tally(g)
	if lost == 0 {
		t.Error("nothing was lost")
	}
	return fmt.Sprintf("2 of 3: %d frames lost, the third receiver has caught up, hashes equal, QPs live, %s", lost, s.unnoticed(t, g))
}

// storyRepairStopped stops a receiver's guest in the middle, and then the source's until the box
// calls it back. The source hears of that and of nothing else (notice.go).
func storyRepairStopped(t *testing.T, ctx context.Context, s *stage) string {
	if *here != "" {
		t.Skip("a host that is a namespace cannot be stopped")
	}
	spec := patient()
	spec.bytes = longBytes
	g := s.addGroup(t, ctx, spec)
	s.lose(randomly(28, 0.01, at(copied)))
	transfer := g.transfer("write", messageBytes, longMessages)
	must(t, g.from.StartTransfer(transfer))
	s.reaches(t, ctx, g, 300)
	must(t, g.to[1].guest.Pause())
	time.Sleep(stopFor) // the story: for how long the receiver is stopped
	must(t, g.to[1].guest.Resume())
	s.stopUntilCalled(t, ctx, g, 1500)
	g.await(t, ctx, transfer)
	s.lose()
	g.delivered(t, ctx, longBytes)
	_, lost := s.tally(g)
	verified := s.unnoticed(t, g)
	if n := s.notices(t, g); n.excused == 0 {
		t.Error("no NAK is excused, and the source was stopped until it got one")
	}
	return fmt.Sprintf("%d frames lost, all messages done, hashes equal, QPs live, %s", lost, verified)
}

// stopFor is longer than seven attempts to repair, and a fraction of the source's timeout.
const stopFor = 300 * time.Millisecond

// stopUntilCalled stops the source's guest behind a packet until the source gets a NAK. It gets
// none behind a packet that the receivers have acknowledged, or that asks for an ACK. Then the
// story stops it again behind so many packets more that the box has forgotten the pause: it grants
// a slow source four times the pause that the source has made of late.
func (s *stage) stopUntilCalled(t *testing.T, ctx context.Context, g *group, offset int32) {
	t.Helper()
	const more = 200
	called := s.when(func(s *sighting) bool { return s.hop == merged && !s.aeth.Syndrome.IsACK() })
	for ; offset < longBytes/1024-more; offset += more {
		s.reaches(t, ctx, g, offset)
		must(t, g.from.guest.Pause())
		select {
		case <-called:
		case <-time.After(stopFor):
		}
		must(t, g.from.guest.Resume())
		select {
		case <-called:
			return
		default:
		}
	}
	t.Fatal("the source was stopped many times, and was never called back")
}
