package xsk

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultDescs is the size of a ring whose size SocketConfig leaves open.
const DefaultDescs = 2048

// startLevel is the first level of a socket in copy mode, which TopUp explains. Two windows of
// Soft-RoCE fit, 128 packets each (RXE_MAX_UNACKED_PSNS of rxe_req.c), with two buffers for a
// packet.
const startLevel = 512

// SocketConfig says how a socket should be. The zero value is right for a port in copy mode.
type SocketConfig struct {
	// Ring sizes are powers of two. FillDescs is also the largest number of chunks on the receive
	// side; a zero-copy driver needs more than its own ring has. The completion ring never stops
	// the kernel if CompletionDescs is at least TxDescs.
	RxDescs, TxDescs, FillDescs, CompletionDescs uint32

	Mode        Mode
	Discipline  Discipline
	MultiBuffer bool // receive and send frames longer than FrameBytes (kernel >= 6.6)
	TxOnly      bool // receives nothing: no program points at it

	// Owner runs a function on the thread that owns the UMEM, and returns when the function has
	// returned. With Owner, another thread may call Open and Close, one call at a time, while the
	// owner moves frames: the owner moves the chunks only, and the other thread makes the system
	// calls, which take milliseconds. nil: the owner calls Open and Close.
	Owner func(func())
}

// Socket is an AF_XDP socket with its four rings, bound to a queue of a device. The thread that
// owns its UMEM owns it too.
type Socket struct {
	umem     *UMEM
	ifindex  int
	queue    uint32
	fd       int
	slot     int
	owner    func(func())
	bound    bool
	lost     bool // Lost has seen that the device is gone
	obtained Obtained

	rx         consumerRing[Desc]
	tx         producerRing[Desc]
	fill       producerRing[uint64]
	completion consumerRing[uint64]

	receiveSide, transmitSide holder
	level                     uint32 // TopUp lets the receive side have this many chunks
	txOptions                 uint32 // Desc.Options that the kernel accepts

	unsent  unsent // what the device has not sent
	stalled bool   // Flush has given up, and the kernel has sent nothing since then
	fence   uint32 // tx.head at the last withdrawal; what is before it is consumed or withdrawn
	skips   int    // withdrawn descriptors that the kernel may still have to step over

	// The kernel and the clock. Tests replace them.
	sendto func(fd int) unix.Errno
	now    func() time.Time

	filled, received, given, completed uint64
	unseen                             uint32 // filled last: the kernel sees them after the next TopUp

	// successor is used in Give to learn when the kernel has released the queue after Close.
	successor *Socket
}

// Open binds a socket to a queue of a device in the calling thread's network namespace and fills
// its fill ring. The first socket of a UMEM decides for all of them whether they are zero-copy and
// whether they are multi-buffer; to ask the opposite of a later one is an error. If the last socket
// of the queue was closed just before, Open waits for the kernel to release the queue.
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

// open makes a prepared socket usable, or undoes it.
func (s *Socket) open(config SocketConfig) error {
	if !config.TxOnly {
		s.owner(func() { s.TopUp() })
	}
	err := s.bind(config)
	if err == nil {
		err = s.readMode(config)
	}
	if err != nil {
		return errors.Join(err, s.discard())
	}
	if config.TxOnly && s.obtained.Mode == ModeZeroCopy {
		// The driver receives into these chunks also what the XDP program passes to the kernel.
		s.owner(func() { s.TopUp() })
	}
	return nil
}

// newSocket makes a socket that has its rings and is not bound yet.
func newSocket(u *UMEM, ifindex int, queue uint32, config SocketConfig) (*Socket, error) {
	config.setDefaults()
	if err := u.admits(config); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("create AF_XDP socket: needs CAP_NET_RAW, run it as root or grant that capability: %w", err)
	}
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
	s.fill, s.level = produce(fill), config.FillDescs
	completion, err := mapRing[uint64](s.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, offsets.Cr, config.CompletionDescs)
	if err != nil {
		return err
	}
	s.completion = consume(completion)
	s.unsent = newUnsent(config.TxDescs, config.CompletionDescs)
	return nil
}

// Obtained returns what the socket obtained.
func (s *Socket) Obtained() Obtained { return s.obtained }

// FD returns the file descriptor, for an XSKMAP. The socket remains its owner.
func (s *Socket) FD() int { return s.fd }

func (s *Socket) String() string { return fmt.Sprintf("queue %d of interface %d", s.queue, s.ifindex) }

// Lost reports whether the socket has lost its device: the device was removed, or left the network
// namespace. An interface of the same name or index that came later is another device. The thread
// that opens and closes the socket may call it.
func (s *Socket) Lost() bool {
	pending, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && pending != 0 {
		s.lost = true // the kernel reports it only once
	}
	return s.lost
}

// Close releases the queue. The chunks on the socket's two sides go to the free list. The chunks
// that the worker holds stay with the worker. In Give, Close waits a bounded time until neither
// device nor kernel can reach the chunks any more. If the time is over before, the chunks are never
// used again, and the error says how many there are.
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
	s.detach()
	return err
}

// discard undoes a socket that has carried no frame.
func (s *Socket) discard() error {
	err := s.closeKernelSide()
	s.detach()
	return err
}

func (s *Socket) closeKernelSide() error {
	err := errors.Join(s.rx.unmap(), s.tx.unmap(), s.fill.unmap(), s.completion.unmap(), unix.Close(s.fd))
	s.fd, s.bound = -1, false
	return err
}

func (s *Socket) detach() {
	s.owner(func() {
		s.umem.reclaim(s.receiveSide)
		s.umem.reclaim(s.transmitSide)
	})
	s.umem.slots[s.slot] = nil
}
