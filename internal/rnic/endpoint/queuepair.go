package endpoint

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// headerRoom is the part of the interface's MTU that rxe keeps for its headers
// (RXE_MAX_HDR_LENGTH): an interface of 1500 bytes carries path MTU 1024.
const headerRoom = 80

// QP is a queue pair of an endpoint. Its methods may be called from any goroutine.
type QP struct {
	endpoint *Endpoint
	core     *rnic.QP
	ready    chan struct{} // holds a token while there may be completions
}

// NewQP creates a queue pair. The endpoint sets its MAC and IP.
func (e *Endpoint) NewQP(c rnic.Config) (*QP, error) {
	if most := e.link.MTU - headerRoom; c.MTUBytes > most {
		return nil, fmt.Errorf("create queue pair: path MTU %d does not fit %s: at most %d", c.MTUBytes, e.link.Name, most)
	}
	c.MAC, c.IP = e.MAC(), e.ip
	core, err := rnic.NewQP(c, &e.memory)
	if err != nil {
		return nil, err
	}
	q := &QP{endpoint: e, core: core, ready: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pair(c.QPN) != nil {
		return nil, fmt.Errorf("create queue pair: QPN %#x is taken", c.QPN)
	}
	e.pairs = append(e.pairs, q)
	return q, nil
}

// Peer is the other end of a connection. Where a switch is in between, it is what the switch
// presents: the IP and QPN of a group.
type Peer struct {
	IP  netip.Addr
	QPN roce.QPN
	PSN roce.PSN // of its first request
}

// Connect resolves the peer's MAC through the kernel and takes the queue pair to RTS.
func (q *QP) Connect(ctx context.Context, p Peer) error {
	mac, err := q.endpoint.routes.resolve(ctx, p.IP)
	if err != nil {
		return fmt.Errorf("connect queue pair %#x: %w", q.core.QPN(), err)
	}
	q.endpoint.mu.Lock()
	defer q.endpoint.mu.Unlock()
	return q.core.Connect(rnic.Peer{MAC: mac, IP: p.IP, QPN: p.QPN, PSN: p.PSN})
}

// PostWrite is PostWrite of rnic, and the same is true of the other requests: data belongs to the
// endpoint until the completion.
func (q *QP) PostWrite(wrID uint64, data []byte, to rnic.Remote) error {
	q.endpoint.mu.Lock()
	defer q.finishPost()
	return q.core.PostWrite(wrID, data, to)
}

// PostWriteImm posts a WRITE with immediate.
func (q *QP) PostWriteImm(wrID uint64, data []byte, to rnic.Remote, imm uint32) error {
	q.endpoint.mu.Lock()
	defer q.finishPost()
	return q.core.PostWriteImm(wrID, data, to, imm)
}

// PostSend posts a SEND.
func (q *QP) PostSend(wrID uint64, data []byte) error {
	q.endpoint.mu.Lock()
	defer q.finishPost()
	return q.core.PostSend(wrID, data)
}

// PostSendImm posts a SEND with immediate.
func (q *QP) PostSendImm(wrID uint64, data []byte, imm uint32) error {
	q.endpoint.mu.Lock()
	defer q.finishPost()
	return q.core.PostSendImm(wrID, data, imm)
}

// PostRead posts a READ, which is refused.
func (q *QP) PostRead(wrID uint64, bytes int, from rnic.Remote) error {
	q.endpoint.mu.Lock()
	defer q.finishPost()
	return q.core.PostRead(wrID, bytes, from)
}

// PostRecv posts a receive.
func (q *QP) PostRecv(wrID uint64, buf []byte) error {
	q.endpoint.mu.Lock()
	defer q.finishPost()
	return q.core.PostRecv(wrID, buf)
}

// finishPost makes run look at the queue pair, and unlocks the endpoint.
func (q *QP) finishPost() {
	q.endpoint.socket.wake()
	q.endpoint.mu.Unlock()
}

// Destroy ends the queue pair. What arrives for it later is for no queue pair. Completions that are
// there can still be taken; outstanding work is forgotten, and its buffers belong to the caller
// again.
func (q *QP) Destroy() {
	q.endpoint.mu.Lock()
	defer q.endpoint.mu.Unlock()
	q.endpoint.pairs = slices.DeleteFunc(q.endpoint.pairs, func(other *QP) bool { return other == q })
}

// Wait waits for a completion and takes the oldest one.
func (q *QP) Wait(ctx context.Context) (rnic.Completion, error) {
	for {
		if c, ok := q.Poll(); ok {
			return c, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return rnic.Completion{}, fmt.Errorf("wait for a completion of queue pair %#x: %w", q.core.QPN(), ctx.Err())
		case <-q.endpoint.done:
			return rnic.Completion{}, ErrClosed
		}
	}
}

// Poll takes the oldest completion, if there is one.
func (q *QP) Poll() (rnic.Completion, bool) {
	q.endpoint.mu.Lock()
	defer q.endpoint.mu.Unlock()
	c, ok := q.core.Poll()
	if ok {
		q.announce()
	}
	return c, ok
}

// announce leaves a token for Wait if there is a completion.
func (q *QP) announce() {
	if !q.core.HasCompletion() {
		return
	}
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// State returns the state of the queue pair.
func (q *QP) State() rnic.State {
	q.endpoint.mu.Lock()
	defer q.endpoint.mu.Unlock()
	return q.core.State()
}

// Counters returns what the queue pair has counted so far.
func (q *QP) Counters() rnic.Counters {
	q.endpoint.mu.Lock()
	defer q.endpoint.mu.Unlock()
	return *q.core.Counters()
}

// Violation returns the first violation, if there was one: a response that breaks an rxe.
func (q *QP) Violation() (v rnic.Violation, any bool) {
	q.endpoint.mu.Lock()
	defer q.endpoint.mu.Unlock()
	return q.core.Violation()
}
