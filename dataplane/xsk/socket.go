package xsk

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultDescs is the size of a ring whose size SocketConfig leaves open.
const DefaultDescs = 2048

// SocketConfig says what a socket should be; the zero value is right for a copy-mode port.
type SocketConfig struct {
	// Ring sizes, powers of two. FillDescs is also how many chunks the receive side keeps at most; a zero-copy driver
	// wants more than its own ring has. CompletionDescs of TxDescs or more never hold the kernel up.
	RxDescs, TxDescs, FillDescs, CompletionDescs uint32

	Mode        Mode
	Discipline  Discipline
	MultiBuffer bool // receive and send frames longer than FrameBytes (kernel >= 6.6)
	TxOnly      bool // receives nothing: no program points at it

	// Owner runs a function on the thread the UMEM belongs to and returns when it has; nil: that thread is the one that
	// calls Open and Close. With it both may be called elsewhere, one at a time, while that thread moves frames: it is
	// bothered with the chunks alone, not with system calls that take milliseconds.
	Owner func(func())
}

// Socket is one AF_XDP socket with its four rings, bound to a queue of a device. It belongs to the thread of its UMEM.
type Socket struct {
	umem     *UMEM
	ifindex  int
	queue    uint32
	fd       int
	slot     int
	owner    func(func())
	bound    bool
	lost     bool // see Lost
	obtained Obtained

	rx         consumerRing[Desc]
	tx         producerRing[Desc]
	fill       producerRing[uint64]
	completion consumerRing[uint64]

	receiveSide, transmitSide holder
	txOptions                 uint32 // Desc.Options the kernel accepts

	stalled bool   // Flush has given up, and the kernel has sent nothing since
	fence   uint32 // where tx.head was at the last withdrawal: the ring has no frame before it
	skips   int    // withdrawn descriptors the kernel may still have to step over

	// The kernel and the clock; tests have others.
	sendto func(fd int) unix.Errno
	now    func() time.Time

	filled, received, given, completed uint64

	// successor tells, in Give, when the kernel has let go of the queue after Close.
	successor *Socket
}

// Open binds a socket to a queue of a device in the calling thread's network namespace and fills its fill ring. The
// first socket of a UMEM decides for all of them whether they are zero-copy and multi-buffer; asking a later one for
// the opposite is an error. A queue that its last owner has just left is waited for.
func Open(u *UMEM, ifindex int, queue uint32, config SocketConfig) (*Socket, error) {
	s, err := newSocket(u, ifindex, queue, config)
	if err == nil {
		err = s.open(config)
	}
	if err != nil {
		return nil, fmt.Errorf("open queue %d of interface %d: %w", queue, ifindex, err)
	}
	return s, nil
}

// open takes a prepared socket to where it can be used, or undoes it.
func (s *Socket) open(config SocketConfig) error {
	if !config.TxOnly {
		s.owner(func() { s.TopUp() })
	}
	err := s.bind(config)
	if err == nil {
		err = s.settle(config)
	}
	if err != nil {
		return errors.Join(err, s.discard())
	}
	if config.TxOnly && s.obtained.Mode == ModeZeroCopy {
		s.owner(func() { s.TopUp() }) // the driver receives what the program passes to the kernel into the same chunks
	}
	return nil
}

// newSocket makes a socket with mapped rings that is not bound yet.
func newSocket(u *UMEM, ifindex int, queue uint32, config SocketConfig) (*Socket, error) {
	config.setDefaults()
	if err := u.admits(config); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create AF_XDP socket: %w", err)
	}
	s := &Socket{umem: u, ifindex: ifindex, queue: queue, fd: fd, owner: config.Owner, sendto: sendto, now: time.Now}
	if err := u.takeSlot(s); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s.receiveSide, s.transmitSide = receiveSide(s.slot), transmitSide(s.slot)
	if u.boundSocket() == nil {
		err = u.register(fd)
	}
	if err == nil {
		err = s.makeRings(config)
	}
	if err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

func (c *SocketConfig) setDefaults() {
	for _, descs := range []*uint32{&c.RxDescs, &c.TxDescs, &c.FillDescs, &c.CompletionDescs} {
		if *descs == 0 {
			*descs = DefaultDescs
		}
	}
	if c.TxOnly {
		c.RxDescs = 1
	}
	if c.Owner == nil {
		c.Owner = func(f func()) { f() }
	}
}

// makeRings sizes and maps the four rings.
func (s *Socket) makeRings(config SocketConfig) (err error) {
	var offsets unix.XDPMmapOffsets
	for _, ring := range []struct {
		option int
		descs  uint32
	}{
		{unix.XDP_RX_RING, config.RxDescs},
		{unix.XDP_TX_RING, config.TxDescs},
		{unix.XDP_UMEM_FILL_RING, config.FillDescs},
		{unix.XDP_UMEM_COMPLETION_RING, config.CompletionDescs},
	} {
		if ring.descs&(ring.descs-1) != 0 {
			return fmt.Errorf("ring size %d is not a power of two", ring.descs)
		}
		if err := setsockopt(s.fd, ring.option, &ring.descs); err != nil {
			return fmt.Errorf("make ring of %d entries: %w", ring.descs, err)
		}
	}
	if _, err := getsockopt(s.fd, unix.XDP_MMAP_OFFSETS, &offsets); err != nil {
		return fmt.Errorf("read ring offsets: %w", err)
	}
	rx, err := mapRing[Desc](s.fd, unix.XDP_PGOFF_RX_RING, offsets.Rx, config.RxDescs)
	if err != nil {
		return err
	}
	s.rx = consume(rx)
	tx, err := mapRing[Desc](s.fd, unix.XDP_PGOFF_TX_RING, offsets.Tx, config.TxDescs)
	if err != nil {
		return err
	}
	s.tx = produce(tx)
	fill, err := mapRing[uint64](s.fd, unix.XDP_UMEM_PGOFF_FILL_RING, offsets.Fr, config.FillDescs)
	if err != nil {
		return err
	}
	s.fill = produce(fill)
	completion, err := mapRing[uint64](s.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, offsets.Cr, config.CompletionDescs)
	if err != nil {
		return err
	}
	s.completion = consume(completion)
	return nil
}

// Obtained is what the socket got.
func (s *Socket) Obtained() Obtained { return s.obtained }

// FD is the file descriptor, for an XSKMAP. It stays the socket's.
func (s *Socket) FD() int { return s.fd }

func (s *Socket) String() string { return fmt.Sprintf("queue %d of interface %d", s.queue, s.ifindex) }

// Lost says whether the device has gone from under the socket: it was removed, or left the network namespace. An
// interface of the same name, or index, is another device. Who opens and closes the socket may ask.
func (s *Socket) Lost() bool {
	pending, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && pending != 0 {
		s.lost = true // asking cleared it
	}
	return s.lost
}

// Close gives the queue back. The chunks on the socket's sides go to the free list, those the worker holds stay with
// it. In Give it waits, bounded, until neither device nor kernel can reach the chunks any more; those of a socket for
// which that did not come true are left out of use for good, and the error says how many.
func (s *Socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	err := s.closeKernelSide()
	if s.successor != nil {
		if err := errors.Join(err, s.awaitRelease(bindPatience)); err != nil {
			return err
		}
	}
	s.leaveUMEM()
	return err
}

// discard undoes a socket that never carried a frame.
func (s *Socket) discard() error {
	err := s.closeKernelSide()
	s.leaveUMEM()
	return err
}

func (s *Socket) closeKernelSide() error {
	err := errors.Join(s.rx.unmap(), s.tx.unmap(), s.fill.unmap(), s.completion.unmap(), unix.Close(s.fd))
	s.fd, s.bound = -1, false
	return err
}

func (s *Socket) leaveUMEM() {
	s.owner(func() {
		s.umem.reclaim(s.receiveSide)
		s.umem.reclaim(s.transmitSide)
	})
	s.umem.slots[s.slot] = nil
}
