package bpf

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a minimal AF_XDP socket that receives in copy mode: one UMEM chunk for each descriptor,
// and no refill.
type socket struct {
	fd   int
	umem []byte
	rx   []byte
	off  unix.XDPRingOffset
	next uint32
}

const (
	socketDescs     = 8
	socketChunk     = 4096
	socketDescBytes = 16
)

// openSocket binds a socket to queue 0 of an interface.
func openSocket(t testing.TB, ifindex int) *socket {
	t.Helper()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip("needs a kernel with AF_XDP")
	}
	must(t, "socket", err)
	t.Cleanup(func() { unix.Close(fd) })
	s := &socket{fd: fd, umem: anonymous(t, socketDescs*socketChunk)}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&s.umem[0]))), Len: uint64(len(s.umem)), Size: socketChunk}
	must(t, "register UMEM", setsockopt(fd, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)))
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		must(t, "size ring", unix.SetsockoptInt(fd, unix.SOL_XDP, ring, socketDescs))
	}
	offsets := mmapOffsets(t, fd)
	s.off = offsets.Rx
	s.rx = ring(t, fd, unix.XDP_PGOFF_RX_RING, offsets.Rx.Desc+socketDescs*socketDescBytes)
	fill := ring(t, fd, unix.XDP_UMEM_PGOFF_FILL_RING, offsets.Fr.Desc+socketDescs*8)
	for i := range uint64(socketDescs) {
		*(*uint64)(unsafe.Pointer(&fill[offsets.Fr.Desc+8*i])) = i * socketChunk
	}
	*(*uint32)(unsafe.Pointer(&fill[offsets.Fr.Producer])) = socketDescs
	must(t, "bind", unix.Bind(fd, &unix.SockaddrXDP{Ifindex: uint32(ifindex), Flags: unix.XDP_COPY}))
	return s
}

// receive waits for a frame and returns it together with the metadata in front of it.
func (s *socket) receive(t testing.TB) (meta, frame []byte) {
	t.Helper()
	awaitInput(t, s.fd)
	if s.next == *(*uint32)(unsafe.Pointer(&s.rx[s.off.Producer])) {
		t.Fatal("the socket is readable and its ring empty")
	}
	desc := s.rx[s.off.Desc+uint64(s.next%socketDescs)*socketDescBytes:]
	s.next++
	*(*uint32)(unsafe.Pointer(&s.rx[s.off.Consumer])) = s.next
	addr := *(*uint64)(unsafe.Pointer(&desc[0]))
	bytes := *(*uint32)(unsafe.Pointer(&desc[8]))
	return s.umem[addr-MetaBytes : addr], s.umem[addr : addr+uint64(bytes)]
}

// tap opens a packet socket on an interface. It sees the frames that the kernel receives, and what
// is written to it leaves by the interface.
func tap(t testing.TB, ifindex int) int {
	t.Helper()
	const allProtocols = 0x0300 // ETH_P_ALL in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, allProtocols)
	must(t, "packet socket", err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, "bind packet socket", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: ifindex}))
	return fd
}

func send(t testing.TB, fd int, frame []byte) {
	t.Helper()
	_, err := unix.Write(fd, frame)
	must(t, "send", err)
}

func awaitInput(t testing.TB, fd int) {
	t.Helper()
	const limit = 30 * time.Second
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(limit.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		must(t, "poll", err)
		if n == 0 {
			t.Fatalf("no frame within %v", limit)
		}
		return
	}
}

func ring(t testing.TB, fd int, offset int64, bytes uint64) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, offset, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	must(t, "map ring", err)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func anonymous(t testing.TB, bytes int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	must(t, "map UMEM", err)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func mmapOffsets(t testing.TB, fd int) (o unix.XDPMmapOffsets) {
	t.Helper()
	bytes := uint32(unsafe.Sizeof(o))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&o)), uintptr(unsafe.Pointer(&bytes)), 0)
	if errno != 0 {
		t.Fatalf("ring offsets: %v", errno)
	}
	return o
}

func setsockopt(fd, option int, value unsafe.Pointer, bytes uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(value), bytes, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
