package copying

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// hub is a multicast in memory. Like one of RDMA it holds up the source while a member has no
// buffer, and goes on without a member that has left.
type hub struct {
	mu      sync.Mutex
	members []*member
	free    chan []byte
	sent    int64  // bytes
	fault   func() // called before each message; nil: nothing
	broken  error  // what Send returns; nil: it works
}

type member struct {
	arrived chan []byte
	left    chan struct{}
	once    sync.Once
	spoil   func([]byte) // changes a message on its way; nil: nothing
	lent    []byte       // the message that the caller has
}

const hubBuffers = 3

// hubPatience is how long a member may take no message until the group counts as broken.
const hubPatience = 30 * time.Second

func newHub() *hub {
	h := &hub{free: make(chan []byte, hubBuffers)}
	for range hubBuffers {
		h.free <- make([]byte, MessageBytes)
	}
	return h
}

func (h *hub) join() *member {
	m := &member{arrived: make(chan []byte, hubBuffers), left: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members = append(h.members, m)
	return m
}

func (m *member) leave() { m.once.Do(func() { close(m.left) }) }

func (m *member) Next(ctx context.Context) ([]byte, error) {
	clear(m.lent) // another message uses its buffer
	select {
	case b := <-m.arrived:
		m.lent = b
		return b, nil
	case <-m.left:
		return nil, errors.New("the member has left")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *hub) Buffer(ctx context.Context) ([]byte, error) {
	select {
	case b := <-h.free:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *hub) Send(ctx context.Context, message []byte) error {
	if h.fault != nil {
		h.fault()
	}
	h.mu.Lock()
	members := slices.Clone(h.members)
	h.sent += int64(len(message))
	err := h.broken
	h.mu.Unlock()
	if err != nil {
		return err
	}
	for _, m := range members {
		own := slices.Clone(message)
		if m.spoil != nil {
			m.spoil(own)
		}
		select {
		case m.arrived <- own:
		case <-m.left:
		case <-time.After(hubPatience):
			return errors.New("a member takes no message")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	h.free <- message[:MessageBytes]
	return nil
}

func (h *hub) Flush(context.Context) error { return nil }
