// Package rtnl is a route netlink connection that stays in the network namespace it was opened in:
// requests, and notifications until a context is done.
//
// It does not interpret messages: packages nexthop and address do.
package rtnl

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// answerWithin bounds the wait for the kernel's answer, which comes at once or never.
	answerWithin = 5 * time.Second
	// eventBytes is the room for notifications not read yet.
	eventBytes = 4 << 20
)

// Conn asks the kernel. Its methods may be called from any goroutine.
type Conn struct {
	*netlink.Handle                          // for what the library can say
	raw             map[int]*nl.SocketHandle // for what it cannot
}

// Open connects to the calling thread's network namespace.
func Open() (*Conn, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	c := &Conn{Handle: handle, raw: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}
	timeout := unix.NsecToTimeval(answerWithin.Nanoseconds())
	if err := errors.Join(handle.SetSocketTimeout(answerWithin), socket.SetSendTimeout(&timeout), socket.SetReceiveTimeout(&timeout)); err != nil {
		c.Close()
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return c, nil
}

// Close ends the connection.
func (c *Conn) Close() {
	c.Handle.Close()
	c.raw[unix.NETLINK_ROUTE].Close()
}

// Request sends a message of a type with flags, whose parts follow each other, and returns the
// answers of type answer (0: all).
func (c *Conn) Request(message, flags int, answer uint16, parts ...nl.NetlinkRequestData) ([][]byte, error) {
	request := nl.NewNetlinkRequest(message, flags)
	request.Sockets = c.raw
	for _, part := range parts {
		request.AddData(part)
	}
	return request.Execute(unix.NETLINK_ROUTE, answer)
}

// Events are the kernel's notifications, from Subscribe on.
type Events struct {
	socket *nl.NetlinkSocket
}

// Subscribe joins groups (RTNLGRP_...) in the calling thread's network namespace.
func Subscribe(groups ...uint) (*Events, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to netlink: %w", err)
	}
	// Forcing needs CAP_NET_ADMIN in the initial namespace; with the default size notifications are
	// only lost sooner.
	_ = socket.SetReceiveBufferSize(eventBytes, true)
	return &Events{socket: socket}, nil
}

// Run calls each for what every read brings until ctx is done, which also closes e. When
// notifications were lost, because they came faster than they were read, it calls each with nil.
func (e *Events) Run(ctx context.Context, each func([]syscall.NetlinkMessage)) error {
	stop := context.AfterFunc(ctx, e.Close)
	defer stop()
	for {
		messages, _, err := e.socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			each(nil)
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read netlink notifications: %w", err)
		default:
			each(messages)
		}
	}
}

// Close ends the subscription.
func (e *Events) Close() { e.socket.Close() }
