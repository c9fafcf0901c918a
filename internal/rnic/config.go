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

	// maxDepth bounds the work requests of a queue pair. The limit of rxe is of the same order.
	maxDepth = 1 << 16

	// retryForever is the value of RetryCount and RNRRetry that never counts down. IBTA defines it
	// for RNR retries only; rxe applies it to both.
	retryForever = 7

	maxTimeout = 31
)

// Config is what a queue pair is created with: the attributes of ibv_modify_qp, and the host to
// which the queue pair belongs.
type Config struct {
	MAC      roce.MAC
	IP       netip.Addr
	QPN      roce.QPN
	SendPSN  roce.PSN // of the first request (sq_psn)
	MTUBytes int      // path MTU: 256, 512, 1024, 2048 or 4096

	// Timeout is the exponent of the local ACK timeout, 4.096 us * 2^Timeout; with 0 the requester
	// waits for ever. As in rxe, the timer keeps running when everything is acknowledged, so a
	// message that is posted soon after may be sent twice. A test that counts frames needs a long
	// timeout.
	Timeout uint8

	RetryCount  uint8         // timeouts and NAKs without an ACK between them; 7: no limit
	RNRRetry    uint8         // RNR NAKs without an ACK between them; 7: no limit
	MinRNRTimer roce.RNRTimer // that the RNR NAKs of this queue pair carry

	SendDepth int // work requests that are posted and not yet polled as completed
	RecvDepth int

	UDPSrcPort uint16 // 0: derived from both QPNs, as rxe does

	// TrafficClass is DSCP and ECN of the packets that the queue pair sends. A congested queue
	// marks packets whose ECN field is 1 or 2.
	TrafficClass uint8

	// FlowControl turns on end-to-end credits (IBTA vol 1, 9.7.7.2), which rxe does not have: an
	// ACK says how many receives are posted, and a message that takes a receive is sent only when
	// the peer has granted it.
	FlowControl bool

	// CNPInterval is the least time between two congestion notifications of this queue pair; Notify
	// returns them. 0: it sends none, as rxe. The authors of DCQCN use 50 us, ConnectX firmware 4
	// us.
	CNPInterval time.Duration

	// RateControl makes the queue pair react to congestion notifications.
	RateControl RateControl

	// AsRXE makes the queue pair treat a response beyond what was sent as rxe does: messages
	// complete falsely, packets are skipped, the queue pair hangs. Such responses are counted as
	// violations with and without AsRXE. An ACK ahead of what is sent again is none, because it may
	// be older. AsRXE believes it too, and may then insert an empty packet
	// (docs/wire.md#requester).
	AsRXE bool

	// TakesNext makes the queue pair take a sequence NAK or an RNR NAK of the first packet that was
	// never sent, as rxe does: it acknowledges all that was sent. Without it and AsRXE the NAK is
	// ignored.
	TakesNext bool
}

// Defaults are the attributes that perftest gives its queue pairs. The caller sets addresses and
// numbers.
func Defaults() Config {
	return Config{
		MTUBytes: 1024, Timeout: 14, RetryCount: retryForever, RNRRetry: retryForever, MinRNRTimer: 12,
		SendDepth: 128, RecvDepth: 512,
	}
}

// Peer is the other end of the connection, as a queue pair learns it on the way to RTR.
type Peer struct {
	MAC roce.MAC
	IP  netip.Addr
	QPN roce.QPN
	PSN roce.PSN // of its first request (rq_psn)
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
	return c.RateControl.validate()
}

func (c *Config) validatePeer(p *Peer) error {
	switch {
	case !p.IP.IsValid():
		return errNoIP
	case p.IP.Is4() != c.IP.Is4():
		return fmt.Errorf("peer address %s and own address %s are of different families", p.IP, c.IP)
	case p.QPN>>24 != 0 || p.PSN>>24 != 0:
		return fmt.Errorf("QPN %#x or PSN %#x has more than 24 bits", p.QPN, p.PSN)
	}
	return nil
}

// ackTimeout is the local ACK timeout (IBTA vol 1, 9.7.6.1.3); Never for exponent 0.
func (c *Config) ackTimeout() time.Duration {
	if c.Timeout == 0 {
		return Never
	}
	return AckTimeout(c.Timeout)
}

// AckTimeout is the local ACK timeout with this exponent, which is not 0.
func AckTimeout(exponent uint8) time.Duration { return 4096 * time.Nanosecond << exponent }

// PacketsIn returns how many full packets of a path MTU a link carries in some time. The rate is in
// bits per second.
func PacketsIn(d time.Duration, mtuBytes int, rate int64) int {
	frame := 14 + 20 + 8 + roce.BTHBytes + mtuBytes + 4 // Ethernet, IPv4, UDP, ICRC: one in the middle of a WRITE
	return int(d.Seconds() * float64(rate) / 8 / float64(frame))
}

// udpSrcPort is the source port that the kernel derives when there is no flow label
// (rdma_get_udp_sport). It is symmetric in both QPNs, so that both directions of a connection use
// the same port.
func udpSrcPort(a, b roce.QPN) uint16 {
	label := uint64(a) * uint64(b)
	label ^= label >> 20
	label ^= label >> 40
	label &= 0xFFFFF
	return uint16(label&0x3FFF^label>>14) | 0xC000
}
