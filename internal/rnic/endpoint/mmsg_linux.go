package endpoint

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	bytes  uint32
}

// batch is a fixed set of frame buffers that one system call fills or sends.
type batch struct {
	headers [batchFrames]mmsghdr
	vectors [batchFrames]unix.Iovec
	buffers [batchFrames][]byte
}

const (
	batchFrames = 64

	// bufferBytes is one more than the longest frame, so that a longer frame is recognised.
	bufferBytes = 4608
)

func newBatch() *batch {
	b := &batch{}
	arena := make([]byte, batchFrames*bufferBytes)
	for i := range b.headers {
		b.buffers[i] = arena[i*bufferBytes:][:bufferBytes:bufferBytes]
		b.vectors[i].Base = &b.buffers[i][0]
		b.headers[i].header.Iov = &b.vectors[i]
		b.headers[i].header.Iovlen = 1
		b.setBytes(i, bufferBytes)
	}
	return b
}

func (b *batch) setBytes(i, bytes int) { b.vectors[i].SetLen(bytes) }

// receive fills a buffer with each frame that is there, and returns how many there are.
func (b *batch) receive(fd uintptr) (int, unix.Errno) {
	return b.call(unix.SYS_RECVMMSG, fd, 0, batchFrames)
}

// send sends frames first to last-1, and returns how many the kernel took.
func (b *batch) send(fd uintptr, first, last int) (int, unix.Errno) {
	return b.call(unix.SYS_SENDMMSG, fd, first, last)
}

func (b *batch) call(number, fd uintptr, first, last int) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall6(number, fd, uintptr(unsafe.Pointer(&b.headers[first])), uintptr(last-first),
			unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func (b *batch) received(i int) []byte { return b.buffers[i][:b.headers[i].bytes] }
