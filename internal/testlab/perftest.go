package testlab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"
)

// PerftestKey is a key line of perftest on Ethernet: one queue pair of one side of a run.
type PerftestKey struct {
	QPN, PSN, RKey uint32
	VA             uint64
	IP             netip.Addr
}

// PerftestOpening are the messages before the first key line. mtu is an enum ibv_mtu.
func PerftestOpening(version string, mtu uint8) [][]byte {
	text := make([]byte, 16)
	copy(text, version)
	return [][]byte{text, {0, 0, 0x10, 0}, {0, 0, 0, 0x40}, {'0' + mtu, 0}}
}

// Line is the key as perftest sends it.
func (k PerftestKey) Line() []byte {
	b := fmt.Appendf(nil, "0000:0001:%06x:%06x:%08x:%016x:", k.QPN, k.PSN, k.RKey, k.VA)
	for _, octet := range k.IP.As16() {
		b = fmt.Appendf(b, "%02x:", octet)
	}
	return append(b, "00000000:\x00"...)
}

// ReadPerftestKey is the inverse of Line.
func ReadPerftestKey(line []byte) (k PerftestKey, err error) {
	var gid [16]byte
	var lid, reads uint16
	rest := ""
	if _, err = fmt.Sscanf(string(line), "%4x:%4x:%6x:%6x:%8x:%16x:%s", &lid, &reads, &k.QPN, &k.PSN, &k.RKey, &k.VA, &rest); err != nil {
		return k, fmt.Errorf("%q is no key line: %w", line, err)
	}
	for i := range gid {
		if _, err = fmt.Sscanf(rest[3*i:], "%2x:", &gid[i]); err != nil {
			return k, fmt.Errorf("%q has no GID: %w", line, err)
		}
	}
	k.IP = netip.AddrFrom16(gid).Unmap()
	return k, nil
}

// ReadOnce reads like perftest: one read must return the whole message.
func ReadOnce(conn net.Conn, length int, within time.Duration) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	message := make([]byte, length)
	n, err := conn.Read(message)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("waited in vain for %d bytes", length)
	case err != nil:
		return nil, err
	case n != length:
		return nil, fmt.Errorf("a read of %d bytes gave %d: %q", length, n, message[:n])
	}
	return message, nil
}

// HungUpOn waits until the other end disconnects, and ignores what it sends before.
func HungUpOn(conn net.Conn, within time.Duration) error {
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil // it has ended
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the other end does not disconnect")
	}
	return nil
}
