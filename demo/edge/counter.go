package main

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

// counter counts the RoCE packets to multicast addresses that come to a link's end: those that a
// packet socket would get if it had room.
type counter struct {
	fd  int
	sum uint64
}

// multicastRoCE takes IPv4 packets without options to UDP port 4791 in frames to a group of hosts.
var multicastRoCE = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 0},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 5, K: 1},
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 12},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.ETH_P_IP},
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 36},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: roce.UDPPort},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

func count(at netns.Link) (c *counter, err error) {
	err = at.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		c = &counter{fd: fd}
		filter := unix.SockFprog{Len: uint16(len(multicastRoCE)), Filter: &multicastRoCE[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return err
		}
		// What a bridge takes goes only to sockets for all protocols.
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bits.ReverseBytes16(unix.ETH_P_ALL), Ifindex: at.Index})
	})
	if err != nil {
		err = fmt.Errorf("count shared copies at %s: %w", at.Name, err)
		if c != nil {
			unix.Close(c.fd)
		}
		return nil, err
	}
	return c, nil
}

// read returns how many packets there were since count.
func (c *counter) read() (uint64, error) {
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil {
		c.sum += uint64(stats.Packets) // with those for which there was no room; reading resets it
	}
	return c.sum, err
}

func (c *counter) close() error { return unix.Close(c.fd) }
