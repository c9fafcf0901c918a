//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"testing"
)

// What rxe's programs print for a work request that failed.
const (
	remoteAccessError  = "remote access error"
	remoteInvalid      = "remote invalid request error"
	retryExceeded      = "transport retry counter exceeded"
	smallMessageBytes  = 16 << 10
	smallMessageCount  = 64
	packetsPerMessage  = smallMessageBytes / 1024
	fatalMessage       = 32 // the first beyond the short memory
	cutPacket          = fatalMessage*packetsPerMessage - 50
	resendsBeforeRelay = 2
)

// cutUntil cuts the leg to a receiver off, from a packet on, until the end has been seen and the source has resent that
// packet twice: long enough for an impatient box to pass on what ends the source's QP.
func cutUntil(end func(*sight) bool, receiver int, from int32) func(*sight) bool {
	ended, resends := false, 0
	return func(s *sight) bool {
		ended = ended || end(s)
		if ended && s.hop == uplink && s.offset == from {
			resends++
		}
		return resends < resendsBeforeRelay && s.hop == copied && s.receiver == receiver && s.offset >= from
	}
}

// storyFatalWhileCut ends one receiver's QP with a fatal NAK while another receiver's leg is cut: what was sent before
// has to reach all before the source may hear of it.
func storyFatalWhileCut(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.shortMemory = fatalMessage * smallMessageBytes
	c := s.enter(t, ctx, what)
	fatal := func(s *sight) bool { return s.hop == answer && s.aeth.Syndrome.IsFatal() }
	s.lose(cutUntil(fatal, 0, cutPacket))
	must(t, c.from.StartTransfer(c.transfer("write", smallMessageBytes, smallMessageCount)))
	if done := c.fails(t, ctx, remoteAccessError); done != fatalMessage {
		t.Errorf("%d WRITEs are reported done, want %d", done, fatalMessage)
	}
	c.hold(t, ctx, fatalMessage*smallMessageBytes, c.to...)
	stand(t, ctx, "ERR", c.from, c.to[2])
	stand(t, ctx, "RTS", c.to[0], c.to[1])
	return fmt.Sprintf("%d WRITEs done and held by all, then %q; only the culprit's QP and the source's ended",
		fatalMessage, remoteAccessError)
}

// storyReadWhileCut has a READ behind WRITEs that one receiver lacks.
func storyReadWhileCut(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	s.lose(cutUntil(func(s *sight) bool { return s.hop == uplink && s.opcode.IsRead() }, 0, cutPacket))
	transfer := c.transfer("write", smallMessageBytes, fatalMessage+1)
	transfer.Last = "read"
	must(t, c.from.StartTransfer(transfer))
	if done := c.fails(t, ctx, remoteInvalid); done != fatalMessage {
		t.Errorf("%d WRITEs are reported done, want %d", done, fatalMessage)
	}
	c.hold(t, ctx, fatalMessage*smallMessageBytes, c.to...)
	stand(t, ctx, "ERR", c.from)
	stand(t, ctx, "RTS", c.to...)
	return fmt.Sprintf("%d WRITEs done and held by all, then %q; receivers' QPs live", fatalMessage, remoteInvalid)
}

// storyRead asks for what cannot be merged: it fails at the first try, and not after timeouts.
func storyRead(t *testing.T, ctx context.Context, s *stage) string {
	for _, op := range []string{"read", "fetch_add"} {
		c := s.enter(t, ctx, ordinary())
		c.run(t, ctx, c.transfer("write", 4096, 4))
		asked := 0
		s.lose(func(s *sight) bool {
			if s.hop == uplink && (s.opcode.IsRead() || s.opcode.IsAtomic()) {
				asked++
			}
			return false
		})
		transfer := c.transfer(op, 8, 1)
		transfer.Peer.VA += 5 // an atomic's address is a multiple of 8
		must(t, c.from.StartTransfer(transfer))
		c.fails(t, ctx, remoteInvalid)
		s.books(func() {
			if asked != 1 {
				t.Errorf("%s: the source asked %d times", op, asked)
			}
		})
		c.hold(t, ctx, 4*4096, c.to...)
		stand(t, ctx, "ERR", c.from)
		stand(t, ctx, "RTS", c.to...)
		s.leave(t, ctx, c)
	}
	return fmt.Sprintf("READ and atomic: %q at once, receivers' QPs live", remoteInvalid)
}

func storyWrongKey(t *testing.T, ctx context.Context, s *stage) string {
	what := ordinary()
	what.wrongKeyOf = 1
	c := s.enter(t, ctx, what)
	must(t, c.from.StartTransfer(c.transfer("write", 3000, 4)))
	if done := c.fails(t, ctx, remoteAccessError); done != 0 {
		t.Errorf("%d WRITEs are reported done", done)
	}
	stand(t, ctx, "ERR", c.from, c.to[1])
	stand(t, ctx, "RTS", c.to[0], c.to[2])
	return fmt.Sprintf("no WRITE done, %q; the other receivers' QPs live", remoteAccessError)
}

// storyRNR SENDs to receivers of which one has no work requests, and one too few.
func storyRNR(t *testing.T, ctx context.Context, s *stage) string {
	c := s.enter(t, ctx, ordinary())
	const bytes, count = 1000, 24
	must(t, c.to[0].PostReceives(ctx, count, bytes))
	must(t, c.to[2].PostReceives(ctx, count/2, bytes))
	told := s.when(func(s *sight) bool { return s.hop == merged && s.aeth.Syndrome.IsRNR() && s.offset == 0 })
	halfway := s.when(func(s *sight) bool { return s.hop == merged && s.aeth.Syndrome.IsRNR() && s.offset == count/2 })
	transfer := c.transfer("send", bytes, count)
	must(t, c.from.StartTransfer(transfer))
	s.await(t, ctx, "the source is told RNR for the first message", told)
	must(t, c.to[1].PostReceives(ctx, count, bytes))
	s.await(t, ctx, "the source is told RNR for the message in the middle", halfway)
	must(t, c.to[2].PostReceives(ctx, count/2, bytes))
	c.await(t, ctx, transfer)
	c.received(t, ctx, count, Event{Opcode: "send", Local: Local{RegionBytes: bytes}})
	c.complete(t, ctx, bytes*count)
	return fmt.Sprintf("RNR NAKs for two receivers reached the source, %d SENDs done, hashes equal, QPs live", count)
}
