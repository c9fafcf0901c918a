//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// reaches waits for the first copy at or behind a packet.
func (s *stage) reaches(t *testing.T, ctx context.Context, c *cast, offset int32) {
	t.Helper()
	s.await(t, ctx, fmt.Sprintf("a copy of packet %d", offset),
		s.when(func(s *sight) bool { return s.group == c && s.hop == copied && s.offset >= offset }))
}

// storyPowerOff pulls a receiver's plug. With ack: all and no eviction the source gives up, as it would with one peer;
// what it counts as done is with the others.
func storyPowerOff(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary().mortal())
	must(t, c.from.StartTransfer(c.transfer("write", smallMessageBytes, smallMessageCount)))
	s.reaches(t, ctx, c, 300)
	s.Guests[2].PowerOff()
	done := c.fails(t, ctx, retryExceeded)
	if done == 0 || done == smallMessageCount {
		t.Errorf("%d WRITEs done: not in mid-stream", done)
	}
	c.hold(t, ctx, done*smallMessageBytes, c.to[0], c.to[2])
	stand(t, ctx, "ERR", c.from)
	stand(t, ctx, "RTS", c.to[0], c.to[2])
	return fmt.Sprintf("%d WRITEs done and held by the others, then %q; their QPs live", done, retryExceeded)
}

// storyRemoved ends the group under a running stream.
func storyRemoved(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary().mortal())
	must(t, c.from.StartTransfer(c.transfer("write", smallMessageBytes, smallMessageCount)))
	s.reaches(t, ctx, c, 300)
	must(t, s.Remove(ctx, c.name))
	var atResend []int
	resends, sent := 0, int32(0)
	s.books(func() { sent = c.sent })
	resent := s.when(func(s *sight) bool {
		if s.hop == uplink && s.offset <= sent {
			sent = s.offset
			resends++
		}
		atResend = slices.Clone(c.copies)
		return resends == 2
	})
	s.await(t, ctx, "the source resends", resent)
	done := c.fails(t, ctx, retryExceeded)
	if done == 0 || done == smallMessageCount {
		t.Errorf("%d WRITEs done: not in mid-stream", done)
	}
	s.books(func() {
		if !slices.Equal(atResend, c.copies) {
			t.Errorf("the receivers had %v copies when the source resent, and %v in the end", atResend, c.copies)
		}
	})
	c.hold(t, ctx, done*smallMessageBytes, c.to...)
	stand(t, ctx, "ERR", c.from)
	stand(t, ctx, "RTS", c.to...)
	return fmt.Sprintf("no copy after it, %d WRITEs done and held by all, then %q; receivers' QPs live", done, retryExceeded)
}

// What a restart interrupts: 4096 packets.
const (
	longBytes    = 4 << 20
	longMessages = longBytes / messageBytes
)

// outage is how long the daemon was away.
type outage struct {
	untilStarted time.Duration // from SIGKILL to the start of the next one
	untilReady   time.Duration // from there until that one carries its groups
}

// restartLimit is how soon the daemon is started again: what systemd does by itself (RestartSec), with room for the end of
// the killed one.
const restartLimit = 500 * time.Millisecond

// crash kills the daemon when the stream has got to a packet, and starts it again.
func (s *stage) crash(t *testing.T, ctx context.Context, c *cast, offset int32) (o outage) {
	t.Helper()
	s.reaches(t, ctx, c, offset)
	killed := time.Now()
	must(t, s.Kill())
	o.untilStarted = time.Since(killed)
	if sent, _ := s.tally(c); sent == longBytes/c.pathMTU {
		t.Error("the source was done before the daemon was killed")
	}
	must(t, s.Start(ctx))
	o.untilReady = time.Since(killed) - o.untilStarted
	must(t, s.Ready(ctx, c.name))
	if o.untilStarted > restartLimit {
		t.Errorf("started again only %v after the kill", o.untilStarted)
	}
	return o
}

func storyRestart(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.bytes = longBytes
	c := s.enter(t, ctx, what)
	transfer := c.transfer("write", messageBytes, longMessages)
	must(t, c.from.StartTransfer(transfer))
	o := s.crash(t, ctx, c, 1000)
	c.await(t, ctx, transfer)
	c.complete(t, ctx, longBytes)
	return fmt.Sprintf("SIGKILL, started after %d ms, ready after %d more: all messages done, hashes equal, QPs live",
		o.untilStarted.Milliseconds(), o.untilReady.Milliseconds())
}

// storyRestarts loses frames too, and more than one daemon.
func storyRestarts(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.bytes = longBytes
	c := s.enter(t, ctx, what)
	s.lose(everywhere(8, 0.005))
	transfer := c.transfer("write", messageBytes, longMessages)
	must(t, c.from.StartTransfer(transfer))
	for i := range int32(3) {
		s.crash(t, ctx, c, 500+1000*i)
	}
	c.await(t, ctx, transfer)
	c.complete(t, ctx, longBytes)
	_, lost := s.tally(c)
	return fmt.Sprintf("3 kills, %d frames lost: all messages done, hashes equal, QPs live", lost)
}
