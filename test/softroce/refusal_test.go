//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"testing"
)

const (
	// The texts that libibverbs has for failed work requests.
	remoteAccessError  = "remote access error"
	remoteInvalid      = "remote invalid request error"
	retryExceeded      = "transport retry counter exceeded"
	smallMessageBytes  = 16 << 10
	smallMessageCount  = 64
	packetsPerMessage  = smallMessageBytes / 1024
	fatalMessage       = 32 // the first message beyond the short memory
	cutPacket          = fatalMessage*packetsPerMessage - 50
	resendsBeforeRelay = 2
)

// cutUntil loses all copies for a receiver from a packet on, until the end has been seen and the
// source has resent this packet twice. In this time an impatient box would pass on the end that
// fails the QP of the source.
func cutUntil(end func(*sighting) bool, receiver int, from int32) func(*sighting) bool {
	ended, resends := false, 0
	return func(s *sighting) bool {
		ended = ended || end(s)
		if ended && s.hop == uplink && s.offset == from {
			resends++
		}
		return resends < resendsBeforeRelay && s.hop == copied && s.receiver == receiver && s.offset >= from
	}
}

// storyFatalWhileCut fails the QP of one receiver with a fatal NAK, while the copies for another
// receiver are lost. The source may get the fatal NAK only after all receivers have the messages
// that were sent before.
func storyFatalWhileCut(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.shortMemory = fatalMessage * smallMessageBytes
	g := s.addGroup(t, ctx, spec)
	fatal := func(s *sighting) bool { return s.hop == response && s.aeth.Syndrome.IsFatal() }
	s.lose(cutUntil(fatal, 0, cutPacket))
	must(t, g.from.StartTransfer(g.transfer("write", smallMessageBytes, smallMessageCount)))
	if done := g.fails(t, ctx, remoteAccessError); done != fatalMessage {
		t.Errorf("%d WRITEs are done, want %d", done, fatalMessage)
	}
	g.holds(t, ctx, fatalMessage*smallMessageBytes, g.to...)
	inState(t, ctx, "ERR", g.from, g.to[2])
	inState(t, ctx, "RTS", g.to[0], g.to[1])
	return fmt.Sprintf("%d WRITEs done, all receivers have them, then %q; only two QPs ended, that of the receiver with short memory and the source's",
		fatalMessage, remoteAccessError)
}

// storyReadWhileCut sends a READ after WRITEs that one receiver lacks.
func storyReadWhileCut(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	s.lose(cutUntil(func(s *sighting) bool { return s.hop == uplink && s.opcode.IsRead() }, 0, cutPacket))
	transfer := g.transfer("write", smallMessageBytes, fatalMessage+1)
	transfer.Last = "read"
	must(t, g.from.StartTransfer(transfer))
	if done := g.fails(t, ctx, remoteInvalid); done != fatalMessage {
		t.Errorf("%d WRITEs are done, want %d", done, fatalMessage)
	}
	g.holds(t, ctx, fatalMessage*smallMessageBytes, g.to...)
	inState(t, ctx, "ERR", g.from)
	inState(t, ctx, "RTS", g.to...)
	return fmt.Sprintf("%d WRITEs done, all receivers have them, then %q; receivers' QPs live", fatalMessage, remoteInvalid)
}

// storyRead sends requests that cannot be merged. They fail at the first try, without a timeout.
func storyRead(t *testing.T, ctx context.Context, s *stage) string {
	for _, op := range []string{"read", "fetch_add"} {
		g := s.addGroup(t, ctx, ordinary())
		g.run(t, ctx, g.transfer("write", 4096, 4))
		asked := 0
		s.lose(func(s *sighting) bool {
			if s.hop == uplink && (s.opcode.IsRead() || s.opcode.IsAtomic()) {
				asked++
			}
			return false
		})
		transfer := g.transfer(op, 8, 1)
		transfer.Peer.VA += 5 // an atomic's address is a multiple of 8
		must(t, g.from.StartTransfer(transfer))
		g.fails(t, ctx, remoteInvalid)
		s.locked(func() {
			if asked != 1 {
				t.Errorf("%s: the source sent the request %d times, want 1", op, asked)
			}
		})
		g.holds(t, ctx, 4*4096, g.to...)
		inState(t, ctx, "ERR", g.from)
		inState(t, ctx, "RTS", g.to...)
		s.removeGroup(t, ctx, g)
	}
	return fmt.Sprintf("READ and atomic: %q at once, receivers' QPs live", remoteInvalid)
}

func storyWrongKey(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.wrongKeyOf = 1
	g := s.addGroup(t, ctx, spec)
	must(t, g.from.StartTransfer(g.transfer("write", 3000, 4)))
	if done := g.fails(t, ctx, remoteAccessError); done != 0 {
		t.Errorf("%d WRITEs are done, want 0", done)
	}
	inState(t, ctx, "ERR", g.from, g.to[1])
	inState(t, ctx, "RTS", g.to[0], g.to[2])
	return fmt.Sprintf("no WRITE done, %q; the other receivers' QPs live", remoteAccessError)
}

// storyRNR SENDs to receivers. One of them has no work requests, and another one has too few.
func storyRNR(t *testing.T, ctx context.Context, s *stage) string {
	g := s.addGroup(t, ctx, ordinary())
	const bytes, count = 1000, 24
	must(t, g.to[0].PostReceives(ctx, count, bytes))
	must(t, g.to[2].PostReceives(ctx, count/2, bytes))
	ackedUpTo := s.when(func(s *sighting) bool { return s.hop == merged && s.aeth.Syndrome.IsRNR() && s.offset == 0 })
	halfway := s.when(func(s *sighting) bool { return s.hop == merged && s.aeth.Syndrome.IsRNR() && s.offset == count/2 })
	transfer := g.transfer("send", bytes, count)
	must(t, g.from.StartTransfer(transfer))
	s.await(t, ctx, "an RNR NAK for the first message reaches the source", ackedUpTo)
	must(t, g.to[1].PostReceives(ctx, count, bytes))
	s.await(t, ctx, "an RNR NAK for the message in the middle reaches the source", halfway)
	must(t, g.to[2].PostReceives(ctx, count/2, bytes))
	g.await(t, ctx, transfer)
	g.received(t, ctx, count, Event{Opcode: "send", Local: Local{RegionBytes: bytes}})
	g.delivered(t, ctx, bytes*count)
	return fmt.Sprintf("RNR NAKs for two receivers reached the source, %d SENDs done, hashes equal, QPs live", count)
}

// storyRegions lets a region come to a running group, and leave it.
func storyRegions(t *testing.T, ctx context.Context, s *stage) string {
	const va, key = 0x9000001, 0x99
	g := s.addGroup(t, ctx, ordinary())
	g.run(t, ctx, g.transfer("write", smallMessageBytes, 4))
	later := g.transfer("write", smallMessageBytes, smallMessageCount)
	later.Peer = Local{VA: va, RKey: key}
	region := []string{g.name, "--va", fmt.Sprint(va), "--rkey", fmt.Sprint(key)}
	add := append([]string{"region", "add", "--length", fmt.Sprint(g.bytes)}, region...)
	for _, q := range g.to {
		add = append(add, "--at", fmt.Sprintf("%v=%#x:%#x", q.Addr, q.VA, q.RKey))
	}
	_, err := s.ask(ctx, add...)
	must(t, err)
	must(t, g.from.Fill(ctx, 7))
	g.run(t, ctx, later)
	g.holds(t, ctx, smallMessageCount*smallMessageBytes, g.to...)
	_, err = s.ask(ctx, append([]string{"region", "rm"}, region...)...)
	must(t, err)
	must(t, g.from.StartTransfer(later))
	if done := g.fails(t, ctx, remoteAccessError); done != 0 {
		t.Errorf("%d WRITEs are done to a region that has left", done)
	}
	inState(t, ctx, "RTS", g.to...)
	return fmt.Sprintf("%d WRITEs of %d bytes to a region that came to the running group; %q when it has left", smallMessageCount, smallMessageBytes, remoteAccessError)
}
