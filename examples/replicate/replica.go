package replicate

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"

	"github.com/rocast/rocast/roce"
)

const (
	pathMTU = 1024
	// itemBytes is the size of a message: a number and data.
	itemBytes   = 4096
	numberBytes = 8
	receives    = 64 // that a queue pair of a replica has posted
)

// message returns item n. Item 0 is the one with which the group is tried, and nobody applies it.
func message(n uint64) []byte {
	text := make([]byte, itemBytes)
	binary.BigEndian.PutUint64(text, n)
	for i := range text[numberBytes:] {
		text[numberBytes+i] = byte(n + uint64(i)*(n|1))
	}
	return text
}

// Replica is a receiver. It applies each item of the stream once, in order.
type Replica struct {
	device Device

	mu      sync.Mutex
	applied uint64            // the number of the last item
	early   map[uint64][]byte // whose turn has not come: two queue pairs are read in any order
	repeats int               // items that came again, and were dropped
	wrong   error
}

// NewReplica returns a replica that has applied nothing.
func NewReplica(d Device) *Replica { return &Replica{device: d, early: map[uint64][]byte{}} }

func (r *Replica) take(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := binary.BigEndian.Uint64(text)
	switch _, waits := r.early[n]; {
	case n == 0:
	case n <= r.applied || waits:
		r.repeats++
	default:
		r.early[n] = text
	}
	for {
		next, there := r.early[r.applied+1]
		if !there {
			return
		}
		delete(r.early, r.applied+1)
		r.applied++
		if string(next) != string(message(r.applied)) && r.wrong == nil {
			r.wrong = fmt.Errorf("item %d has other bytes at %v", r.applied, r.device.IP())
		}
	}
}

// check returns an error unless the replica has applied all items.
func (r *Replica) check(all uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong == nil && (r.applied != all || len(r.early) > 0) {
		r.wrong = fmt.Errorf("%v has applied %d of %d items, and %d wait for their turn", r.device.IP(), r.applied, all, len(r.early))
	}
	return r.wrong
}

// port is one queue pair of a replica, and the goroutine that takes what it receives.
type port struct {
	qp   QueuePair
	qpn  roce.QPN
	psn  roce.PSN // that it expects first
	stop context.CancelFunc
	done chan struct{}
}

// listen creates a queue pair. connect connects it.
func (r *Replica) listen(qpn roce.QPN, psn roce.PSN) (*port, error) {
	qp, err := r.device.Open(Settings{QPN: qpn, MTU: pathMTU, Depth: receives})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &port{qp: qp, qpn: qpn, psn: psn, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.receive(ctx, r)
	}()
	return p, nil
}

func (p *port) connect(ctx context.Context, ip netip.Addr, qpn roce.QPN) error {
	return p.qp.Connect(ctx, Peer{IP: ip, QPN: qpn, PSN: p.psn})
}

// receive hands what arrives to the replica, until the queue pair is closed and empty.
func (p *port) receive(ctx context.Context, r *Replica) {
	buffers := make([][]byte, receives)
	for i := range buffers {
		buffers[i] = make([]byte, itemBytes)
		if err := p.qp.Post(uint64(i), buffers[i]); err != nil {
			return
		}
	}
	for {
		id, bytes, err := p.qp.Receive(ctx)
		if err != nil {
			return
		}
		r.take(buffers[id][:bytes])
		buffers[id] = make([]byte, itemBytes)
		if err := p.qp.Post(id, buffers[id]); err != nil {
			return
		}
	}
}

// close destroys the queue pair. After it returns, nothing arrives by it any more, and what has
// arrived was taken.
func (p *port) close() {
	p.qp.Destroy()
	p.stop()
	<-p.done
}
