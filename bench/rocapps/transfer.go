package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
)

// The memory that every host registers, and that a group has.
const (
	memoryVA   = 0x10000
	memoryRKey = 0x77
)

// toAll is the receiver, in a schedule, of what is sent to a group.
const toAll = -1

// transfer brings messages from host 0 to all others, by a schedule: over a group, or over
// connections between two hosts each, on which the hosts' programs pass the messages on.
//
// A message is told when the programs of all receivers know that they have it, and complete when
// all its senders know it too. The source posts its next message when the oldest one is complete,
// which it learns at once: a program that relays would have to be told. That favours the programs
// without multicast.
type transfer struct {
	schedule relaying.Schedule
	receive  []int // the hosts that get the messages
	bytes    int   // of a message
	posted   int   // messages that are posted at a time; each host has room for so many
	ahead    int   // sends of a host that are not acknowledged; 0: any number
	plain    bool  // WRITE without immediate: no program of a receiver takes part
	nodes    []*node

	mu      sync.Mutex
	posts   []*message
	done    int
	told    []time.Duration // from the post of a message until it was told
	acked   []time.Duration // from the post of a message until it was complete
	over    time.Time       // when the last message was complete
	changed chan struct{}   // holds a token when a message is complete
	failed  error
}

// message is one that was posted.
type message struct {
	began            time.Time
	lacking, missing int // blocks that programs do not have; sends that are not complete
}

// node is the program of one host.
type node struct {
	*transfer
	host  *host
	sends []relaying.Send      // of each message
	qps   map[int]*endpoint.QP // by the host at the other end

	mu      sync.Mutex
	has     map[int]bool // blocks that came or that it posted, of all messages, until they are sent on
	message int          // the place in its list of sends
	next    int
	unacked int
}

// newTransfer is a transfer between hosts that are connected by qps, one map for each host.
func newTransfer(m *method, hosts []*host, qps []map[int]*endpoint.QP, bytes, posted int) *transfer {
	t := &transfer{bytes: bytes, posted: posted, ahead: m.ahead(bytes), schedule: m.schedule(m.receivers+1, bytes)}
	for i, h := range hosts[:m.receivers+1] {
		t.nodes = append(t.nodes, &node{transfer: t, host: h, sends: t.schedule.Sends[i], qps: qps[i], has: map[int]bool{}})
		if i > 0 {
			t.receive = append(t.receive, i)
		}
	}
	return t
}

// run lets the source send as long as more says so, and waits until all hosts have everything, or
// until ctx ends. Its error is that of a queue pair.
func (t *transfer) run(ctx context.Context, more func(posted int) bool) error {
	t.changed = make(chan struct{}, 1)
	waiting, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, n := range t.nodes {
		for _, qp := range n.qps {
			all.Go(func() { n.host.bill(func() { n.watch(waiting, qp) }) })
		}
	}
	t.nodes[0].host.bill(func() { t.source(ctx, more) })
	stop()
	all.Wait()
	return t.failed
}

// source is the loop of the source's program.
func (t *transfer) source(ctx context.Context, more func(posted int) bool) {
	for posted := 0; ; {
		t.mu.Lock()
		done, failed := t.done, t.failed
		t.mu.Unlock()
		sending := more(posted)
		if failed != nil || ctx.Err() != nil || !sending && done == posted {
			return
		}
		if sending && posted-done < t.posted {
			t.post(posted)
			posted++
			continue
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
		}
	}
}

// post makes the source send message i, which begins with its number.
func (t *transfer) post(i int) {
	sends := 0
	for _, list := range t.schedule.Sends {
		sends += len(list)
	}
	m := &message{lacking: t.schedule.Blocks * len(t.receive), missing: sends}
	source := t.nodes[0]
	source.host.RNIC.Freeze(func() { binary.BigEndian.PutUint64(source.host.memory[t.offset(i, 0):], uint64(i)) })
	t.mu.Lock()
	m.began = time.Now()
	t.posts = append(t.posts, m)
	t.mu.Unlock()
	source.mu.Lock()
	defer source.mu.Unlock()
	for block := range t.schedule.Blocks {
		source.has[i*t.schedule.Blocks+block] = true
	}
	source.advance()
}

// offset returns where a block of a message begins in the memory of each host.
func (t *transfer) offset(message, block int) int {
	return message%t.posted*t.bytes + block*t.bytes/t.schedule.Blocks
}

// watch takes the completions of a queue pair: blocks that came, and blocks that were sent.
func (n *node) watch(ctx context.Context, qp *endpoint.QP) {
	for {
		c, err := qp.Wait(ctx)
		if err == nil && c.Status != rnic.Success {
			err = fmt.Errorf("a queue pair of host %v ended with %v", n.host.IP, c.Status)
		}
		came := c.Op == rnic.RecvWriteImm
		if err == nil && came {
			err = qp.PostRecv(0, nil)
		}
		if err != nil {
			n.fail(err)
			return
		}
		if came {
			n.came(int(c.Imm))
		} else {
			n.sent(int(c.WRID))
		}
	}
}

// came notes that a block is there, and passes it on.
func (n *node) came(block int) {
	n.mu.Lock()
	if len(n.sends) > 0 {
		n.has[block] = true
		n.advance()
	}
	n.mu.Unlock()
	n.count(block, func(m *message, now time.Time) {
		if m.lacking--; m.lacking == 0 {
			n.told = append(n.told, now.Sub(m.began))
		}
	})
}

// sent notes that the receiver of a block has it.
func (n *node) sent(block int) {
	n.mu.Lock()
	n.unacked--
	n.advance()
	n.mu.Unlock()
	n.count(block, func(m *message, now time.Time) { m.missing-- })
}

// count lets f note something about the message of a block, and notes whether the message is
// complete by that.
func (t *transfer) count(block int, f func(m *message, now time.Time)) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.posts[block/t.schedule.Blocks]
	f(m, now)
	if m.missing > 0 || m.lacking > 0 && !t.plain {
		return
	}
	t.done++
	t.over = now
	t.acked = append(t.acked, now.Sub(m.began))
	t.notify()
}

// advance posts the sends that are next in the list of the host, as far as the host has their
// blocks.
func (n *node) advance() {
	for n.ahead == 0 || n.unacked < n.ahead {
		s := n.sends[n.next]
		block := n.message*n.schedule.Blocks + s.Block
		if !n.has[block] {
			return
		}
		n.unacked++
		n.fail(n.write(s, block))
		if n.next++; n.next == len(n.sends) {
			for b := range n.schedule.Blocks {
				delete(n.has, n.message*n.schedule.Blocks+b)
			}
			n.message, n.next = n.message+1, 0
		}
	}
}

// write posts one send.
func (n *node) write(s relaying.Send, block int) error {
	at, end := n.offset(n.message, s.Block), n.offset(n.message, 0)+(s.Block+1)*n.bytes/n.schedule.Blocks
	to := rnic.Remote{VA: memoryVA + uint64(at), RKey: memoryRKey}
	if n.plain {
		return n.qps[s.To].PostWrite(uint64(block), n.host.memory[at:end], to)
	}
	return n.qps[s.To].PostWriteImm(uint64(block), n.host.memory[at:end], to, uint32(block))
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

// whole reports whether everything that was posted is complete.
func (t *transfer) whole() bool { return t.done == len(t.posts) }

// verify compares the memory of the receivers with that of the source, when everything is complete.
func (t *transfer) verify() error {
	source, used := t.nodes[0].host, min(len(t.posts), t.posted)*t.bytes
	for _, n := range t.nodes[1:] {
		same := false
		n.host.RNIC.Freeze(func() { same = bytes.Equal(n.host.memory[:used], source.memory[:used]) })
		if !same {
			return fmt.Errorf("receiver %v does not have what the source sent", n.host.IP)
		}
	}
	return nil
}

// bill runs a program of the host on a thread of its own, and adds its CPU time to the host's.
func (h *host) bill(program func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := ownCPUTime()
	program()
	h.programs.Add(int64(ownCPUTime() - began))
}

// ownCPUTime is the CPU time of the calling thread.
func ownCPUTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every kernel has this clock
	}
	return time.Duration(t.Nano())
}
