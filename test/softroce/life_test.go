//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// reaches waits for the first copy of a packet or of a later packet.
func (s *stage) reaches(t *testing.T, ctx context.Context, g *group, offset int32) {
	t.Helper()
	s.await(t, ctx, fmt.Sprintf("a copy of packet %d", offset),
		s.when(func(s *sighting) bool { return s.group == g && s.hop == copied && s.offset >= offset }))
}

// storyPowerOff powers a receiver off. With ack: all and no eviction the source gives up, as it
// would with one peer. The other receivers have the messages that the source counts as done.
func storyPowerOff(t *testing.T, ctx context.Context, s *stage) string {
	return powerOff(t, ctx, s, ordinary().finiteRetries())
}

func powerOff(t *testing.T, ctx context.Context, s *stage, spec groupSpec, faults ...func(*sighting) bool) string {
	t.Helper()
	g := s.addGroup(t, ctx, spec)
	s.lose(faults...)
	must(t, g.from.StartTransfer(g.transfer("write", smallMessageBytes, smallMessageCount)))
	s.reaches(t, ctx, g, 300)
	s.Guests[2].PowerOff()
	done := g.fails(t, ctx, retryExceeded)
	if done == 0 || done == smallMessageCount {
		t.Errorf("%d WRITEs are done, so nothing was interrupted", done)
	}
	g.holds(t, ctx, done*smallMessageBytes, g.to[0], g.to[2])
	inState(t, ctx, "ERR", g.from)
	inState(t, ctx, "RTS", g.to[0], g.to[2])
	return fmt.Sprintf("%d WRITEs done, the other receivers have them, then %q; their QPs live", done, retryExceeded)
}

// storyRemoved removes the group while the source sends.
func storyRemoved(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary().finiteRetries()
	spec.bytes = longBytes // that take longer than the removal, on a busy machine too
	g := s.addGroup(t, ctx, spec)
	must(t, g.from.StartTransfer(g.transfer("write", messageBytes, longMessages)))
	s.reaches(t, ctx, g, 300)
	must(t, s.Remove(ctx, g.name))
	var atResend []int
	resends, sent := 0, int32(0)
	s.locked(func() { sent = g.sent })
	resent := s.when(func(s *sighting) bool {
		if s.hop == uplink && s.offset <= sent {
			sent = s.offset
			resends++
		}
		atResend = slices.Clone(g.copies)
		return resends == 2
	})
	s.await(t, ctx, "the source resends", resent)
	done := g.fails(t, ctx, retryExceeded)
	if done == 0 || done == longMessages {
		t.Errorf("%d WRITEs are done, so nothing was interrupted", done)
	}
	s.locked(func() {
		if !slices.Equal(atResend, g.copies) {
			t.Errorf("the receivers had %v copies when the source resent, and have %v at the end", atResend, g.copies)
		}
	})
	g.holds(t, ctx, done*messageBytes, g.to...)
	inState(t, ctx, "ERR", g.from)
	inState(t, ctx, "RTS", g.to...)
	return fmt.Sprintf("no copy afterwards, %d WRITEs done, all receivers have them, then %q; receivers' QPs live", done, retryExceeded)
}

const (
	// longBytes are 4096 packets, so that a restart interrupts the transfer.
	longBytes    = 4 << 20
	longMessages = longBytes / messageBytes
)

// outage is how long no daemon was ready.
type outage struct {
	untilStarted time.Duration // from SIGKILL to the start of the next daemon
	untilReady   time.Duration // from this start until the daemon carries its groups
}

// crash kills the daemon when the source has got to a packet, and starts a daemon again.
func (s *stage) crash(t *testing.T, ctx context.Context, g *group, offset int32) (o outage) {
	t.Helper()
	s.reaches(t, ctx, g, offset)
	killed := time.Now()
	must(t, s.Kill())
	o.untilStarted = time.Since(killed)
	if sent, _ := s.tally(g); sent == longBytes/g.pathMTU {
		t.Error("the source was done before the daemon was killed")
	}
	must(t, s.Start(ctx))
	o.untilReady = time.Since(killed) - o.untilStarted
	must(t, s.Ready(ctx, g.name))
	return o
}

func storyRestart(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.bytes = longBytes
	g := s.addGroup(t, ctx, spec)
	transfer := g.transfer("write", messageBytes, longMessages)
	must(t, g.from.StartTransfer(transfer))
	o := s.crash(t, ctx, g, 1000)
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, longBytes)
	return fmt.Sprintf("SIGKILL, started after %d ms, ready after %d more: all messages done, hashes equal, QPs live",
		o.untilStarted.Milliseconds(), o.untilReady.Milliseconds())
}

// storyRestarts kills the daemon several times, and frames are lost too.
func storyRestarts(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.bytes = longBytes
	g := s.addGroup(t, ctx, spec)
	s.lose(everywhere(8, 0.005))
	transfer := g.transfer("write", messageBytes, longMessages)
	must(t, g.from.StartTransfer(transfer))
	for i := range int32(3) {
		s.crash(t, ctx, g, 500+1000*i)
	}
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, longBytes)
	_, lost := s.tally(g)
	return fmt.Sprintf("3 kills, %d frames lost: all messages done, hashes equal, QPs live", lost)
}
