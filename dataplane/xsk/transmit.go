package xsk

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrStalled is Flush's answer when the kernel took nothing more from the TX ring although it was asked to.
var ErrStalled = errors.New("transmit ring stalled")

// Transmit puts whole frames on the TX ring and returns how many descriptors it took: fewer when the ring is full, before
// a frame of more than 17 descriptors, and while the socket is stalled (see Flush). Nothing is sent before Kick or Flush,
// which the caller does even after a 0.
//
// Every chunk must be the caller's. In discipline Lend it stays so; in Give it is the kernel's until Complete returns it.
func (s *Socket) Transmit(descs []Desc) int {
	if s.stalled {
		descs = s.probe(descs)
	}
	n := sendable(descs, int(s.tx.room(uint32(len(descs)))))
	descs = descs[:n]
	for i := range descs {
		if !s.valid(&descs[i]) {
			panicDesc(descs[i])
		}
	}
	ledger := s.umem.ledger
	if s.obtained.Discipline == Give {
		for i := range descs {
			ledger.move(descs[i].Addr, withWorker, s.transmitSide)
		}
		s.given += uint64(n)
	} else {
		for i := range descs {
			ledger.check(descs[i].Addr)
		}
	}
	if n > 0 {
		s.tx.putAll(descs)
		s.tx.publish(uint32(n))
	}
	return n
}

// valid is the kernel's own rule (xp_aligned_validate_desc). The kernel skips a descriptor that breaks it, counts
// tx_invalid_descs and completes nothing, so a chunk given that way would be lost.
func (s *Socket) valid(d *Desc) bool {
	return d.Len != 0 && uint64(d.Len) <= ChunkBytes-d.Addr%ChunkBytes && d.Options&^s.txOptions == 0
}

// TxRoom is how many descriptors the TX ring has room for.
func (s *Socket) TxRoom() int { return int(s.tx.room(uint32(len(s.tx.entries)))) }

// Given is how many chunks were given to the socket, in discipline Give, and not returned by Complete.
func (s *Socket) Given() int {
	if s.obtained.Discipline != Give {
		return 0
	}
	return int(s.given - s.completed)
}

// TxPending is how many descriptors the kernel has not passed yet.
func (s *Socket) TxPending() int { return int(s.tx.pending()) }

// Kick makes the kernel send, once, what it will: in copy mode Obtained.KickDescs descriptors at most. No error is nil
// also when the kernel wants to be asked again. An error says that nothing goes out now: ENETDOWN while the interface
// is down, ENXIO for good when the device is gone.
func (s *Socket) Kick() error {
	if s.obtained.Discipline == Lend {
		s.discardCompletions() // a full completion ring would stop the kernel
	}
	if !s.tx.needsWakeup() {
		return nil
	}
	switch errno := s.sendto(s.fd); errno {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
		return nil
	default:
		return errno
	}
}

// sendto bypasses Go's scheduler: it does not block.
func sendto(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// Flush kicks until the kernel has passed everything on the TX ring. It gives up on an error of Kick, or with ErrStalled
// when the kernel has passed nothing for as long as patience.
//
// From then on the socket is stalled and costs its thread next to nothing: Transmit takes one frame at most, the probe,
// and Flush does not wait. It kicks once, besides once for each withdrawn descriptor that the kernel may have to step
// over, and returns ErrStalled until the kernel sends a probe.
//
// In discipline Lend, whatever the outcome, no chunk is lent when Flush returns: what the kernel did not take is
// withdrawn, and withdrawn says how many frames that were. In Give, what it did not take stays on the ring and goes
// out with a later kick; zero-copy devices take from the ring when they will, so there it is one kick and no wait.
func (s *Socket) Flush(patience time.Duration) (withdrawn int, err error) {
	if s.obtained.Mode == ModeZeroCopy {
		return 0, s.Kick()
	}
	pending, err := s.kickUntilPassed(patience)
	if pending > 0 && s.obtained.Discipline == Lend {
		withdrawn = s.withdraw(pending)
	}
	if err == nil && s.stalled {
		err = ErrStalled // what Transmit did not take
	}
	return withdrawn, err
}

// kickUntilPassed is Flush without withdrawing. It returns how many descriptors the kernel has not passed.
func (s *Socket) kickUntilPassed(patience time.Duration) (pending uint32, err error) {
	var deadline time.Time // for the next descriptor; zero: the kernel has not kept us waiting
	for pending = s.tx.pending(); pending > 0; {
		if err := s.Kick(); err != nil {
			return pending, err
		}
		left := s.tx.pending()
		switch {
		case left < pending:
			pending, deadline = left, time.Time{}
			s.stalled = s.stalled && !s.sentSinceWithdrawal(left)
		case s.skips > 0:
			s.skips-- // the kernel has stepped over a withdrawn descriptor, which does not show yet
		case s.stalled:
			return pending, ErrStalled
		case deadline.IsZero():
			deadline = s.now().Add(patience)
		case !s.now().Before(deadline):
			s.stalled = true
			return pending, ErrStalled
		}
	}
	s.skips = 0
	return 0, nil
}

// sentSinceWithdrawal says, by how many descriptors the kernel has not passed, whether it has passed any that was not
// withdrawn.
func (s *Socket) sentSinceWithdrawal(pending uint32) bool {
	return s.obtained.Discipline == Give || pending < s.tx.head-s.fence
}

// probe is what a stalled socket may send. In discipline Lend that is nothing before the kernel has stepped over what
// was withdrawn, and then one frame. In Give it is everything: what is on the ring stays there.
func (s *Socket) probe(descs []Desc) []Desc {
	switch {
	case s.obtained.Discipline == Give:
		return descs
	case s.tx.pending() > 0:
		return nil
	}
	return descs[:FrameDescs(descs)]
}

// withdraw makes the last pending descriptors ones the kernel will skip. Taking the producer index back instead would
// not do: the kernel remembers how far it may read and would send stale entries. Rewriting entries is safe as long as
// the kernel copies, since it then reads them only inside our own syscalls. It skips one descriptor per kick and shows
// that late, hence the skips Flush allows for.
func (s *Socket) withdraw(pending uint32) (frames int) {
	withdrawn := Desc{Addr: uint64(len(s.umem.memory))}
	for i := s.tx.head - pending; i != s.tx.head; i++ {
		entry := &s.tx.entries[i&s.tx.mask]
		if *entry == withdrawn {
			continue
		}
		if !entry.Continues() {
			frames++
		}
		*entry = withdrawn
		s.skips++
	}
	s.fence = s.tx.head
	return frames
}

// Complete returns the chunks of frames the device is done with; the caller holds them again. In discipline Lend there
// is nothing to return: a chunk sent through three sockets completes three times, which says nothing about whose it is.
func (s *Socket) Complete(addrs []uint64) int {
	if s.obtained.Discipline == Lend {
		s.discardCompletions()
		return 0
	}
	n := s.completion.peek(addrs)
	s.completion.release(uint32(n))
	s.completed += uint64(n)
	for i, addr := range addrs[:n] {
		s.umem.ledger.move(addr, s.transmitSide, withWorker)
		addrs[i] = ChunkOf(addr)
	}
	return n
}

// discardCompletions counts completions and makes room for more.
func (s *Socket) discardCompletions() {
	n := s.completion.available(^uint32(0))
	s.completion.release(n)
	s.completed += uint64(n)
}

//go:noinline
func panicDesc(d Desc) {
	panic(fmt.Sprintf("xsk: descriptor %+v leaves its chunk of %d bytes, is empty or has unknown options", d, ChunkBytes))
}
