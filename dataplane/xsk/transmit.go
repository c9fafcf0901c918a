package xsk

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrStalled is returned by Flush when the kernel consumes nothing of the TX ring although it is
// kicked.
var ErrStalled = errors.New("transmit ring stalled")

// futileKicks in a row are needed for a stall, however long they take: a thread that is preempted
// between two kicks has waited long, but the kernel was hardly asked.
const futileKicks = 8

// Transmit puts whole frames on the TX ring and returns how many descriptors these are. It takes
// fewer than all if the ring is full, before a frame of more than 17 descriptors, and while the
// socket is stalled (see Flush). Nothing is sent before Kick or Flush. The caller kicks even if
// Transmit returns 0.
//
// The caller must hold every chunk. In discipline Lend the caller keeps holding it; in Give the
// kernel holds it until Complete returns it.
func (s *Socket) Transmit(descs []Desc) int {
	if s.stalled {
		descs = s.probe(descs)
	}
	n := sendable(descs, int(s.tx.room(uint32(len(descs)))))
	descs = descs[:n]
	ledger, to := s.umem.ledger, withWorker // lent chunks stay with the worker
	if s.obtained.Discipline == Give {
		to = s.transmitSide
		s.given += uint64(n)
	}
	tx, u := &s.tx, &s.unsent
	for i := range descs {
		d := &descs[i]
		if !s.valid(d) {
			panicDesc(*d)
		}
		ledger.move(d.Addr, withWorker, to)
		tx.put(uint32(i), *d)
		u.add(d.Len)
	}
	if n > 0 {
		tx.publish(uint32(n))
	}
	return n
}

// valid is the kernel's own rule (xp_aligned_validate_desc). The kernel skips and counts a
// descriptor that breaks it, and completes nothing, so its chunk would be lost in discipline Give.
func (s *Socket) valid(d *Desc) bool {
	return d.Len != 0 && uint64(d.Len) <= ChunkBytes-d.Addr%ChunkBytes && d.Options&^s.txOptions == 0
}

// TxRoom returns how many descriptors the TX ring has room for.
func (s *Socket) TxRoom() int { return int(s.tx.room(uint32(len(s.tx.entries)))) }

// Given returns how many chunks were given to the socket in discipline Give and not returned by
// Complete yet.
func (s *Socket) Given() int {
	if s.obtained.Discipline != Give {
		return 0
	}
	return int(s.given - s.completed)
}

// TxPending returns how many descriptors on the TX ring the kernel has not consumed yet.
func (s *Socket) TxPending() int { return int(s.tx.pending()) }

// Kick makes one system call for the kernel to send; in copy mode it sends Obtained.KickDescs
// descriptors at most. Kick returns nil also when the kernel wants to be kicked again. An error
// means that nothing can be sent now: ENETDOWN while the interface is down, ENXIO once the device
// is gone.
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

// sendto does not block, so it bypasses Go's scheduler.
func sendto(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// Flush kicks until the kernel has consumed everything on the TX ring. It gives up on an error of
// Kick, and with ErrStalled when the kernel has consumed nothing for as long as patience
// and in several kicks.
//
// After ErrStalled the socket is stalled, and costs its thread little until the kernel sends a
// frame: Transmit takes one frame at most, the probe; Flush does not wait, and kicks once, and once
// more for each withdrawn descriptor that the kernel may have to step over; and Flush returns
// ErrStalled.
//
// In discipline Lend no chunk is lent when Flush returns, whatever it returns: frames that the
// kernel did not consume are withdrawn, and withdrawn is their number. In Give they stay on the
// ring and are sent with a later kick. A zero-copy device reads the ring by itself, so for it Flush
// kicks once and does not wait.
func (s *Socket) Flush(patience time.Duration) (withdrawn int, err error) {
	if s.obtained.Mode == ModeZeroCopy {
		return 0, s.Kick()
	}
	pending, err := s.kickUntilConsumed(patience)
	if pending > 0 && s.obtained.Discipline == Lend {
		withdrawn = s.withdraw(pending)
	}
	if err == nil && s.stalled {
		err = ErrStalled // frames were lost that Transmit did not take
	}
	return withdrawn, err
}

// kickUntilConsumed is Flush without withdrawing. It returns how many descriptors the kernel has
// not consumed.
func (s *Socket) kickUntilConsumed(patience time.Duration) (pending uint32, err error) {
	var deadline time.Time // for the next descriptor; zero: the last kick was not in vain
	var futile int         // kicks in vain since the deadline was set
	for pending = s.tx.pending(); pending > 0; {
		if err := s.Kick(); err != nil {
			return pending, err
		}
		left := s.tx.pending()
		switch {
		case left < pending:
			pending, deadline, futile = left, time.Time{}, 0
			s.stalled = s.stalled && !s.sentSinceWithdrawal(left)
		case s.skips > 0:
			s.skips-- // the kernel may have stepped over one, which does not show yet
		case s.stalled:
			return pending, ErrStalled
		case deadline.IsZero():
			deadline = s.now().Add(patience)
		case futile < futileKicks:
			futile++
		case !s.now().Before(deadline):
			s.stalled = true
			return pending, ErrStalled
		}
	}
	s.skips = 0
	return 0, nil
}

// sentSinceWithdrawal reports whether the kernel has consumed a descriptor that was not withdrawn,
// when pending is the number of those that it has not consumed.
func (s *Socket) sentSinceWithdrawal(pending uint32) bool {
	return s.obtained.Discipline == Give || pending < s.tx.head-s.fence
}

// probe returns the frames of descs that a stalled socket may send. In discipline Lend it is none
// before the kernel has stepped over everything that was withdrawn, and then one. In Give it is
// all, because frames stay on the ring anyway.
func (s *Socket) probe(descs []Desc) []Desc {
	switch {
	case s.obtained.Discipline == Give:
		return descs
	case s.tx.pending() > 0:
		return nil
	}
	return descs[:FrameDescs(descs)]
}

// withdraw rewrites the last pending descriptors so that the kernel will skip them. To decrease the
// producer index instead would not work: the kernel remembers how far it may read and would send
// old entries. It is safe to rewrite entries in copy mode, because the kernel reads them only
// inside system calls of this thread. The kernel skips one descriptor in each kick, and shows that
// late; for this Flush has skips.
func (s *Socket) withdraw(pending uint32) (frames int) {
	withdrawn := Desc{Addr: uint64(len(s.umem.memory))}
	s.unsent.withdraw(s.neverCompleted(pending, withdrawn))
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

// Complete returns the chunks of frames that the device has sent or dropped; the caller holds them
// again. In discipline Lend it returns none: the caller has held the chunks all the time.
func (s *Socket) Complete(addrs []uint64) int {
	if s.obtained.Discipline == Lend {
		s.discardCompletions()
		return 0
	}
	n := s.completion.peek(addrs)
	s.completion.release(uint32(n))
	s.completed += uint64(n)
	s.unsent.complete(uint32(n))
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
	s.unsent.complete(n)
}

//go:noinline
func panicDesc(d Desc) {
	panic(fmt.Sprintf("xsk: descriptor %+v leaves its chunk of %d bytes, is empty or has unknown options",
		d, ChunkBytes))
}
