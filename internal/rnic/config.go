package rnic

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/roce"
)

const (
	minMTUBytes = 256
	maxMTUBytes = 4096

	// maxDepth bounds the work requests of a queue pair; rxe's limit is of the same order.
	maxDepth = 1 << 16

	// retryForever is the value of RetryCount and RNRRetry that never counts down. IBTA says so of RNR retries
	// only; rxe does it for both.
	retryForever = 7

	maxTimeout = 31
)

// Config is what a queue pair is created with: the attributes of ibv_modify_qp, and the host it lives on.
type Config struct {
	MAC      roce.MAC
	IP       netip.Addr
	QPN      roce.QPN
	SendPSN  roce.PSN // the first request's (sq_psn)
	MTUBytes int      // path MTU: 256, 512, 1024, 2048 or 4096

	// Timeout is the local ACK timeout, 4.096 us * 2^Timeout; 0 waits for ever. As in rxe, the timer is not stopped
	// when all is acknowledged, so a message posted soon after may be sent twice: who counts frames chooses a long
	// one.
	Timeout uint8

	RetryCount  uint8         // timeouts and NAKs without an ACK between them; 7 is for ever
	RNRRetry    uint8         // RNR NAKs without an ACK between them; 7 is for ever
	MinRNRTimer roce.RNRTimer // how long an RNR NAK of ours asks the requester to wait

	SendDepth int // work requests posted and not yet polled as completed
	RecvDepth int

	UDPSrcPort   uint16 // 0: derived from both QPNs, as rxe does
	TrafficClass uint8  // of its packets: DSCP and ECN. A congested queue marks those whose ECN field is 1 or 2.

	// FlowControl turns on end-to-end credits (IBTA vol 1, 9.7.7.2), which rxe does not have: ACKs tell how many receives
	// are posted, and what takes a receive is sent only when the peer has one.
	FlowControl bool

	// CNPInterval is the least time between two congestion notifications that this queue pair sends; 0: it sends none, as
	// rxe. Notify has them. DCQCN's authors took 50 us, ConnectX firmware takes 4 us.
	CNPInterval time.Duration

	// AsRXE lets responses beyond what was sent do to this queue pair what they do to rxe: complete messages falsely,
	// skip packets, hang. They are counted as violations either way.
	AsRXE bool
}

// Defaults are the attributes perftest gives its queue pairs; addresses and numbers are left to the caller.
func Defaults() Config {
	return Config{
		MTUBytes: 1024, Timeout: 14, RetryCount: retryForever, RNRRetry: retryForever, MinRNRTimer: 12,
		SendDepth: 128, RecvDepth: 512,
	}
}

// Peer is the other end, as a queue pair learns it on the way to RTR.
type Peer struct {
	MAC roce.MAC
	IP  netip.Addr
	QPN roce.QPN
	PSN roce.PSN // the first its requests carry (rq_psn)
}

var errNoIP = errors.New("no IP address")

func (c *Config) validate() error {
	switch {
	case !c.IP.IsValid():
		return errNoIP
	case c.QPN>>24 != 0 || c.SendPSN>>24 != 0:
		return fmt.Errorf("QPN %#x or PSN %#x has more than 24 bits", c.QPN, c.SendPSN)
	case c.MTUBytes < minMTUBytes || c.MTUBytes > maxMTUBytes || c.MTUBytes&(c.MTUBytes-1) != 0:
		return fmt.Errorf("path MTU %d is not 256, 512, 1024, 2048 or 4096", c.MTUBytes)
	case c.Timeout > maxTimeout:
		return fmt.Errorf("timeout exponent %d exceeds %d", c.Timeout, maxTimeout)
	case c.RetryCount > retryForever || c.RNRRetry > retryForever:
		return fmt.Errorf("retry counts %d and %d: at most %d", c.RetryCount, c.RNRRetry, retryForever)
	case c.SendDepth < 1 || c.SendDepth > maxDepth || c.RecvDepth < 1 || c.RecvDepth > maxDepth:
		return fmt.Errorf("queue depths %d and %d are not between 1 and %d", c.SendDepth, c.RecvDepth, maxDepth)
	}
	return nil
}

func (c *Config) validatePeer(p *Peer) error {
	switch {
	case !p.IP.IsValid():
		return errNoIP
	case p.IP.Is4() != c.IP.Is4():
		return fmt.Errorf("address %s and ours, %s, are of two families", p.IP, c.IP)
	case p.QPN>>24 != 0 || p.PSN>>24 != 0:
		return fmt.Errorf("QPN %#x or PSN %#x has more than 24 bits", p.QPN, p.PSN)
	}
	return nil
}

// ackTimeout is the local ACK timeout (IBTA vol 1, 9.7.6.1.3), Never for exponent 0.
func (c *Config) ackTimeout() time.Duration {
	if c.Timeout == 0 {
		return Never
	}
	return 4096 * time.Nanosecond << c.Timeout
}

// udpSrcPort is the source port the kernel derives without a flow label (rdma_get_udp_sport): symmetric in both QPNs,
// so that both directions of a connection use the same.
func udpSrcPort(a, b roce.QPN) uint16 {
	label := uint64(a) * uint64(b)
	label ^= label >> 20
	label ^= label >> 40
	label &= 0xFFFFF
	return uint16(label&0x3FFF^label>>14) | 0xC000
}
