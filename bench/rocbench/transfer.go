package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
)

// transfer brings messages from host 0 to all others: over a group, or over connections between two
// hosts each, on which programs pass the messages on. The source posts its next message when all
// hosts have the oldest one. It learns that at once; a real program would have to be told.
type transfer struct {
	cut    relaying.Cut
	nodes  []node
	needed int // completions of a message, over all senders

	mu      sync.Mutex
	missing []int       // completions, by message that was posted
	began   []time.Time // by message
	took    []time.Duration
	over    time.Time     // when the last message was complete
	changed chan struct{} // holds a token when a message is complete
	failed  error
}

// node is one host of a transfer.
type node struct {
	rnic   *endpoint.Endpoint
	memory []byte // room for the messages that are posted
	next   []*endpoint.QP
	from   *endpoint.QP // on which slices come; nil: the host passes nothing on
}

// The memory that every host registers, and that a group has.
const (
	lossVA   = 0x10000
	lossRKey = 0x77
)

// run lets the source send for a time, and waits until all hosts have everything, or until ctx
// ends. Its error is that of a queue pair.
func (t *transfer) run(ctx context.Context, span time.Duration) error {
	t.changed = make(chan struct{}, 1)
	waiting, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range t.nodes {
		n := &t.nodes[i]
		for _, qp := range n.next {
			all.Go(func() { t.watch(waiting, qp) })
		}
		if n.from != nil {
			all.Go(func() { t.passOn(waiting, n) })
		}
	}
	began := time.Now()
	for posted := 0; ; {
		t.mu.Lock()
		done, failed := len(t.took), t.failed
		t.mu.Unlock()
		sending := time.Since(began) < span
		if failed != nil || ctx.Err() != nil || !sending && done == posted {
			break
		}
		if sending && posted-done < t.cut.Posted {
			t.post(posted)
			posted++
			continue
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
		}
	}
	stop()
	all.Wait()
	return t.failed
}

// post makes the source send message i, which begins with its number.
func (t *transfer) post(i int) {
	t.mu.Lock()
	t.missing, t.began = append(t.missing, t.needed), append(t.began, time.Now())
	t.mu.Unlock()
	source, first := &t.nodes[0], i*t.cut.Slices
	source.rnic.Freeze(func() { binary.BigEndian.PutUint64(source.memory[t.cut.Place(first):], uint64(i)) })
	for k := range t.cut.Slices {
		t.send(source, first+k)
	}
}

// send makes a host send a slice to the hosts that get it from there.
func (t *transfer) send(n *node, slice int) {
	at := t.cut.Place(slice)
	data, to := n.memory[at:][:t.cut.Bytes(slice)], rnic.Remote{VA: lossVA + uint64(at), RKey: lossRKey}
	for _, qp := range n.next {
		err := qp.PostWriteImm(uint64(slice), data, to, uint32(slice))
		t.fail(err)
	}
}

// passOn sends on what comes to a host.
func (t *transfer) passOn(ctx context.Context, n *node) {
	for {
		c, err := n.from.Wait(ctx)
		if err == nil && c.Status != rnic.Success {
			err = fmt.Errorf("a receiver's queue pair ended with %v", c.Status)
		}
		if err == nil {
			err = n.from.PostRecv(0, nil)
		}
		if err != nil {
			t.fail(err)
			return
		}
		t.send(n, int(c.Imm))
	}
}

// watch takes the completions of a sender.
func (t *transfer) watch(ctx context.Context, qp *endpoint.QP) {
	for {
		c, err := qp.Wait(ctx)
		if err == nil && c.Status != rnic.Success {
			err = fmt.Errorf("slice %d ended with %v", c.WRID, c.Status)
		}
		if err != nil {
			t.fail(err)
			return
		}
		t.complete(t.cut.Message(int(c.WRID)))
	}
}

// complete notes that one more slice of a message is where it was sent to.
func (t *transfer) complete(message int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.missing[message]--; t.missing[message] > 0 {
		return
	}
	t.over = time.Now()
	t.took = append(t.took, t.over.Sub(t.began[message]))
	t.notify()
}

func (t *transfer) fail(err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = errors.Join(t.failed, err)
	t.notify()
}

func (t *transfer) notify() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// whole says whether everything that was posted is complete.
func (t *transfer) whole() bool { return len(t.took) == len(t.began) }

// verify compares the memory of all hosts with that of the source, when everything is complete.
func (t *transfer) verify() error {
	source := &t.nodes[0]
	for i := range t.nodes {
		n := &t.nodes[i]
		same := false
		n.rnic.Freeze(func() { same = bytes.Equal(n.memory, source.memory) })
		if !same {
			return fmt.Errorf("receiver %d does not have what the source sent", i)
		}
	}
	return nil
}
