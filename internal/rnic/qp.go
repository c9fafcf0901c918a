package rnic

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rocast/rocast/roce"
)

// Never is the deadline of a queue pair that waits for nothing.
const Never time.Duration = math.MaxInt64

// MaxFrameBytes is the length of the longest frame that a queue pair sends: WRITE_ONLY with
// immediate over IPv6 at path MTU 4096. A buffer of this size never grows.
const MaxFrameBytes = 14 + 40 + 8 + roce.BTHBytes + roce.RETHBytes + roce.ImmDtBytes + maxMTUBytes + 4

// SetMAC gives the queue pair's host another MAC: frames to the old one are refused from now on.
func (q *QP) SetMAC(mac roce.MAC) { q.cfg.MAC = mac }

// State is the state of a queue pair in the life cycle of verbs.
type State uint8

const (
	StateInit  State = iota // receives may be posted
	StateReady              // RTS: connected
	StateError              // everything that is posted is flushed
)

var stateNames = [...]string{StateInit: "INIT", StateReady: "RTS", StateError: "ERR"}

// String is the name of the state in verbs.
func (s State) String() string { return stateNames[s] }

// QP is one reliable-connection queue pair. Its owner moves frames and time:
//
//	reply := qp.Receive(now, frame, buf)   // at most one frame goes back,
//	cnp := qp.Notify(buf2)                 // and one more if Config.CNPInterval is set
//	frame := qp.Transmit(now, buf)         // until there is none
//	qp.Tick(now)                           // when NextDeadline has come
//
// All times are durations since the owner's start. A QP is not safe for concurrent use.
type QP struct {
	cfg      Config
	peer     Peer
	mem      *Memory
	state    State
	ip       roce.IPUDP
	req      requester
	comp     completer
	resp     responder
	notifier notifier
	reaction reaction
	sendUsed int // posted work requests whose completion was not polled yet
	recvUsed int

	completions ring[Completion]
	counters    Counters
	violation   Violation
}

// NewQP creates a queue pair whose peer may write into mem.
func NewQP(c Config, mem *Memory) (*QP, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("create queue pair: %w", err)
	}
	q := &QP{cfg: c, mem: mem, completions: newRing[Completion](c.SendDepth + c.RecvDepth)}
	q.req = requester{
		queue: newRing[sendWQE](c.SendDepth), psn: c.SendPSN, nextNew: c.SendPSN, deadline: Never, rnrDeadline: Never,
	}
	q.comp = completer{psn: c.SendPSN, credits: credits{unlimited: !c.FlowControl}}
	q.resetRetries()
	q.resp = responder{queue: newRing[recvWQE](c.RecvDepth)}
	q.reaction = newReaction(c.RateControl)
	return q, nil
}

var errConnected = errors.New("not in INIT")

// Connect takes the queue pair from INIT to RTS.
func (q *QP) Connect(p Peer) error {
	err := q.cfg.validatePeer(&p)
	if q.state != StateInit {
		err = errConnected
	}
	if err != nil {
		return fmt.Errorf("connect queue pair %#x: %w", q.cfg.QPN, err)
	}
	q.peer = p
	q.ip = roce.IPUDP{
		Src: q.cfg.IP, Dst: p.IP, TrafficClass: q.cfg.TrafficClass, HopLimit: 64, SrcPort: q.cfg.UDPSrcPort,
	}
	if q.ip.SrcPort == 0 {
		q.ip.SrcPort = udpSrcPort(q.cfg.QPN, p.QPN)
	}
	q.resp.psn = p.PSN
	q.state = StateReady
	return nil
}

// QPN returns the number of the queue pair.
func (q *QP) QPN() roce.QPN { return q.cfg.QPN }

// State returns the state of the queue pair.
func (q *QP) State() State { return q.state }

// Counters returns what the queue pair has counted so far. The caller only reads it, or copies it.
func (q *QP) Counters() *Counters { return &q.counters }

// Poll takes the oldest completion. Only then is the place of its work request in the queue free
// again, so that completions cannot overflow.
func (q *QP) Poll() (c Completion, ok bool) {
	if q.completions.empty() {
		return Completion{}, false
	}
	c = *q.completions.front()
	q.completions.pop()
	if c.Op.isReceive() {
		q.recvUsed--
	} else {
		q.sendUsed--
	}
	return c, true
}

// HasCompletion reports whether Poll has a completion to return.
func (q *QP) HasCompletion() bool { return !q.completions.empty() }

// NextDeadline returns the time at which Tick has something to do, or at which Transmit has a
// packet that had to wait because of its rate; or Never.
func (q *QP) NextDeadline() time.Duration {
	return min(q.req.deadline, q.req.rnrDeadline, q.reaction.deadline())
}

// fail moves the queue pair to ERR: everything that is still posted, on both queues, is flushed.
func (q *QP) fail() {
	q.state = StateError
	q.req.deadline, q.req.rnrDeadline = Never, Never
	q.reaction.held = false
	for !q.req.queue.empty() {
		q.completeSend(WRFlushed)
	}
	for !q.resp.queue.empty() {
		q.completeRecv(Completion{Status: WRFlushed, Op: Recv})
	}
}

func (q *QP) count(c Counter) { q.counters.Count[c]++ }
