package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

const (
	lengthBytes = 4

	// maxFrameBytes is above any MTU of the lab. QEMU's own bound is 68 KiB.
	maxFrameBytes = 64 << 10
)

// Framed is a NIC of QEMU. conn carries frames behind their length in 4 bytes, as QEMU's socket
// netdev does. The result owns conn.
func Framed(conn net.Conn) io.ReadWriteCloser {
	return &framed{Conn: conn, in: bufio.NewReaderSize(conn, 4*maxFrameBytes)}
}

// framed may be written to from any goroutine, as a tap may.
type framed struct {
	net.Conn
	in *bufio.Reader

	mu  sync.Mutex
	out []byte
}

func (f *framed) Read(frame []byte) (int, error) { return readFrame(f.in, frame) }

func (f *framed) Write(frame []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out = append(binary.BigEndian.AppendUint32(f.out[:0], uint32(len(frame))), frame...)
	if _, err := f.Conn.Write(f.out); err != nil {
		return 0, err
	}
	return len(frame), nil
}

// readFrame returns the length of the next frame.
func readFrame(in *bufio.Reader, frame []byte) (int, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if uint64(n) > uint64(len(frame)) {
		return 0, fmt.Errorf("a frame of %d bytes exceeds %d", n, len(frame))
	}
	return io.ReadFull(in, frame[:n])
}
