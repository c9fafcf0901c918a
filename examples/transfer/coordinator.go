package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rocast/rocast/client"
)

// coordinator does for the hosts what they do not know how to do: it collects the queue pairs of
// the receivers, makes a group of them, and says when it is clear to send. Khooi et al. (ANCS 2021,
// figure 2) have the same steps with rules in a P4 switch.
type coordinator struct {
	api     *client.Client
	groupIP netip.Addr
	within  time.Duration // what a host may take for each step that is no transfer of data
	out     io.Writer

	mu        sync.Mutex
	waiting   map[netip.Addr]*line // the receivers that wait for a transfer
	arrived   chan struct{}        // closed and replaced when one comes
	transfers int
}

func newCoordinator(c *client.Client, groupIP netip.Addr, within time.Duration, out io.Writer) *coordinator {
	return &coordinator{
		api: c, groupIP: groupIP, within: within, out: out,
		waiting: map[netip.Addr]*line{}, arrived: make(chan struct{}),
	}
}

// serve takes connections until ctx ends. Several transfers may run at a time.
func (c *coordinator) serve(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		go c.handle(ctx, newLine(ctx, conn))
	}
}

func (c *coordinator) handle(ctx context.Context, l *line) {
	switch m, err := l.receive(); {
	case err != nil:
	case m.Receiver != nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting[*m.Receiver] = l
		close(c.arrived)
		c.arrived = make(chan struct{})
		return
	case m.Request != nil:
		answer := message{}
		if answer.Result, err = c.carry(ctx, l, m.Request); err != nil {
			answer = message{Error: err.Error()}
			fmt.Fprintln(c.out, "the transfer has failed:", err)
		}
		_ = l.send(answer) // a sender that is gone needs none
	}
	l.conn.Close()
}

// take returns the connection of a receiver that waits, or will within the time of ctx.
func (c *coordinator) take(ctx context.Context, ip netip.Addr) (*line, error) {
	for {
		c.mu.Lock()
		l, arrived := c.waiting[ip], c.arrived
		delete(c.waiting, ip)
		c.mu.Unlock()
		if l != nil {
			return l, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("no receiver at %v has connected within %v", ip, c.within)
		}
	}
}

// carry carries a transfer out, from the request to the end of the group. Receivers that die while
// data is sent do not end it: the box evicts them, and they are in the result.
func (c *coordinator) carry(ctx context.Context, sender *line, r *request) (_ *result, err error) {
	t := c.begin(r)
	defer t.close()
	t.say("1  %v asks for a transfer of %d bytes to %v", r.From.IP, r.Bytes, r.To)
	if err := t.each(ctx, (*receiver).prepare); err != nil {
		return nil, err
	}
	t.say("2  all receivers have their queue pairs and memory")
	if _, err := c.api.CreateGroup(ctx, t.file()); err != nil {
		return nil, err
	}
	defer func() {
		_, failure := c.api.RemoveGroup(context.WithoutCancel(ctx), t.name)
		if err = errors.Join(err, failure); failure == nil {
			t.say("7  group %s is removed", t.name)
		}
	}()
	if err := t.each(ctx, (*receiver).connect); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	if _, err := c.api.WaitClear(bounded, t.name); err != nil {
		return nil, err
	}
	t.say("3  group %s is installed", t.name)
	t.say("4  clear to send")
	done, err := sender.ask(message{Clear: &t.group}, 0)
	if err != nil {
		return nil, fmt.Errorf("the sender: %w", err)
	}
	t.say("6  the sender has sent everything")
	return t.collect(ctx, done.Sent), nil
}
