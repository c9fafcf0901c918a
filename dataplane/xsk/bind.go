package xsk

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bindPatience bounds the wait for a queue whose last socket is closed but not torn down yet.
	// The kernel tears it down from a work queue, late on a busy machine, and answers EBUSY until
	// then.
	bindPatience = 5 * time.Second
	bindPause    = 2 * time.Millisecond

	// defaultKickDescs is how many descriptors one sendto sends in copy mode (TX_BATCH_SIZE).
	// wantKickDescs is how many we ask for.
	defaultKickDescs = 32
	wantKickDescs    = 256

	// skbBytes is the most that the kernel charges for one descriptor in copy mode. A chunk,
	// headroom and struct skb_shared_info together exceed 4 KiB, so they occupy 8 KiB; struct
	// sk_buff is added.
	skbBytes = 9 << 10
)

// admits refuses a config that contradicts the sockets already bound.
func (u *UMEM) admits(config SocketConfig) error {
	if u.boundSocket() == nil {
		return nil
	}
	copies := config.Mode == ModeCopy || config.Mode == ModeGeneric
	switch {
	case copies && u.zeroCopy:
		return fmt.Errorf("%v asked, but the UMEM's first socket is zero-copy", config.Mode)
	case config.Mode == ModeZeroCopy && !u.zeroCopy:
		return errors.New("zero-copy asked, but the UMEM's first socket copies")
	case config.MultiBuffer && !u.multiBuffer:
		return errors.New("multi-buffer asked, but the UMEM's first socket has none")
	}
	return nil
}

// bind attaches the socket to its queue. The kernel accepts no mode flags from the later sockets of
// a UMEM.
func (s *Socket) bind(config SocketConfig) error {
	address := &unix.SockaddrXDP{Ifindex: uint32(s.ifindex), QueueID: s.queue}
	first := s.umem.boundSocket()
	if first == nil {
		address.Flags = bindFlags(config)
	} else {
		address.Flags = unix.XDP_SHARED_UMEM
		address.SharedUmemFD = uint32(first.fd)
	}
	err := bindPatiently(s.fd, address, bindPatience)
	if err != nil {
		return explainBind(err, config, first != nil && s.umem.zeroCopy)
	}
	s.bound = true
	if first == nil {
		s.umem.multiBuffer = config.MultiBuffer
	}
	return nil
}

func bindFlags(config SocketConfig) uint16 {
	flags := uint16(unix.XDP_USE_NEED_WAKEUP)
	switch config.Mode {
	case ModeZeroCopy:
		flags |= unix.XDP_ZEROCOPY
	case ModeCopy, ModeGeneric:
		flags |= unix.XDP_COPY
	}
	if config.MultiBuffer {
		flags |= unix.XDP_USE_SG
	}
	return flags
}

func bindPatiently(fd int, address *unix.SockaddrXDP, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := unix.Bind(fd, address)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(bindPause)
	}
}

// explainBind adds the meaning that an errno has here.
func explainBind(err error, config SocketConfig, sharesZeroCopy bool) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("bind: another AF_XDP socket has the queue: %w", err)
	case errors.Is(err, unix.EOPNOTSUPP) && (config.Mode == ModeZeroCopy || sharesZeroCopy):
		return fmt.Errorf("bind: the device has no zero-copy (its UMEM's first socket decides for all): %w", err)
	case errors.Is(err, unix.EINVAL) && config.Mode == ModeZeroCopy:
		return fmt.Errorf("bind: no such queue, or the device cannot do zero-copy as it is "+
			"(virtio_net needs VIRTIO_F_ACCESS_PLATFORM): %w", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("bind: no such queue, or a feature this kernel lacks (see Features): %w", err)
	}
	return fmt.Errorf("bind: %w", err)
}

// readMode reads the mode that the socket obtained and fixes its discipline.
func (s *Socket) readMode(config SocketConfig) error {
	var options uint32 // struct xdp_options
	_, err := getsockopt(s.fd, unix.XDP_OPTIONS, &options)
	if err != nil {
		return fmt.Errorf("read obtained mode: %w", err)
	}
	s.obtained = Obtained{MultiBuffer: s.umem.multiBuffer, KickDescs: defaultKickDescs}
	if s.obtained.MultiBuffer {
		s.txOptions = unix.XDP_PKT_CONTD
	}
	s.umem.zeroCopy = options&unix.XDP_OPTIONS_ZEROCOPY != 0
	switch {
	case s.umem.zeroCopy:
		s.obtained.Mode = ModeZeroCopy
	case config.Mode == ModeGeneric:
		s.obtained.Mode = ModeGeneric
	default:
		s.obtained.Mode = ModeCopy
	}
	s.level = firstLevel(s.obtained.Mode, uint32(len(s.fill.entries)))
	want := min(wantKickDescs, uint32(len(s.tx.entries)))
	if setsockopt(s.fd, unix.XDP_MAX_TX_SKB_BUDGET, &want) == nil {
		s.obtained.KickDescs = want
	}
	if s.obtained.BacklogDescs, err = makeBacklog(s.fd, len(s.tx.entries)); err != nil {
		return err
	}
	return s.checkDiscipline(config)
}

// firstLevel returns the level that TopUp explains, for a fill ring of this many entries.
func firstLevel(mode Mode, entries uint32) uint32 {
	if mode == ModeZeroCopy {
		return entries
	}
	return min(entries, startLevel)
}

// makeBacklog allows the device to keep descs descriptors unsent, or fewer where the system limits
// it, and returns the number. The kernel charges a frame to the socket until the device has sent
// it, and consumes nothing more of the TX ring while the charges exceed SO_SNDBUF. The default
// SO_SNDBUF is enough for about 20 frames of 4 KiB, and the ring of a device is longer.
func makeBacklog(fd, descs int) (uint32, error) {
	half := descs * skbBytes / 2 // the kernel doubles the value
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, half)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, half) // at most net.core.wmem_max
	}
	if err != nil {
		return 0, fmt.Errorf("set send buffer: %w", err)
	}
	obtained, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return 0, fmt.Errorf("read send buffer: %w", err)
	}
	return uint32(obtained / skbBytes), nil
}

// checkDiscipline refuses Lend where sending does not copy. It is the last step of opening: if a
// later step failed, the successor would have to be undone.
func (s *Socket) checkDiscipline(config SocketConfig) error {
	reason := ""
	switch {
	case s.umem.zeroCopy:
		reason = "zero-copy devices read"
	case sendsByReference(s.fd, s.ifindex):
		reason = "the driver's skbs point at"
	}
	switch {
	case config.Discipline == Lend && reason != "":
		return fmt.Errorf("cannot lend chunks: %s them after the TX ring was consumed", reason)
	case config.Discipline == Give || reason != "":
		s.obtained.Discipline = Give
		return s.prepareSuccessor()
	}
	s.obtained.Discipline = Lend
	return nil
}

// sendsByReference reports a driver for which copy mode does not copy on transmit. Such a driver
// sets IFF_TX_SKB_NO_LINEAR, and then the fragments of an skb are the UMEM's own pages
// (xsk_build_skb_zerocopy). User space cannot see the flag; virtio_net is the only driver that sets
// it.
func sendsByReference(fd, ifindex int) bool {
	request, err := unix.NewIfreq("")
	if err != nil {
		return false
	}
	request.SetUint32(uint32(ifindex))
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, request); err != nil {
		return false
	}
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, request.Name())
	return err == nil && unix.ByteSliceToString(info.Driver[:]) == "virtio_net"
}

// prepareSuccessor makes a second, unbound socket for the same queue. It is made while the thread
// is in the right network namespace. Close binds it, because that is the only way to learn when the
// kernel has torn down the first socket: until then the kernel answers EBUSY.
func (s *Socket) prepareSuccessor() error {
	umem, err := NewUMEM(1)
	if err != nil {
		return err
	}
	config := SocketConfig{RxDescs: 1, TxDescs: 1, FillDescs: 1, CompletionDescs: 1}
	s.successor, err = newSocket(umem, s.ifindex, s.queue, config)
	if err != nil {
		return errors.Join(err, umem.Close())
	}
	return nil
}

// awaitRelease waits until the kernel has released the queue of the closed socket: until bind
// answers anything but EBUSY. The successor is in copy mode, so the kernel does not touch its chunk
// after its own close.
func (s *Socket) awaitRelease(patience time.Duration) error {
	err := bindPatiently(s.successor.fd, &unix.SockaddrXDP{
		Flags: unix.XDP_COPY, Ifindex: uint32(s.ifindex), QueueID: s.queue,
	}, patience)
	umem := s.successor.umem
	closeErr := errors.Join(s.successor.discard(), umem.Close())
	s.successor = nil
	if errors.Is(err, unix.EBUSY) {
		stranded := 0
		s.owner(func() { stranded = s.umem.ledger.count(s.receiveSide) + s.umem.ledger.count(s.transmitSide) })
		return fmt.Errorf("close %v: not released within %v, %d chunks stranded: %w", s, patience, stranded, err)
	}
	return closeErr
}
