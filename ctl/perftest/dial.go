package perftest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// listenTo starts the goroutine that reads from a side.
func (c *conversation) listenTo(ctx context.Context, s *side) {
	c.pumps.Go(func() {
		s.pump(ctx)
		if s != c.client {
			c.gone <- s
		}
	})
}

// connect connects to the servers of all receivers at the same time. If one server cannot be
// reached, the operator has to restart the other servers, because each server accepts only one
// connection.
func (c *conversation) connect(ctx context.Context) error {
	n := len(c.config.Receivers)
	conns, errs := make([]net.Conn, n), make([]error, n)
	var dials sync.WaitGroup
	for i, ip := range c.config.Receivers {
		dials.Go(func() { conns[i], errs[i] = c.dial(ctx, ip) })
	}
	dials.Wait()
	c.gone = make(chan *side, n)
	var missing []string
	for i, conn := range conns {
		if errs[i] != nil {
			missing = append(missing, errs[i].Error())
			continue
		}
		r := newSide("receiver", conn)
		c.receivers = append(c.receivers, r)
		c.listenTo(ctx, r)
	}
	if len(missing) > 0 {
		return refuse("%s", strings.Join(missing, "; "))
	}
	return nil
}

func (c *conversation) dial(ctx context.Context, ip netip.Addr) (net.Conn, error) {
	d := net.Dialer{Timeout: c.limits.dial}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), strconv.Itoa(int(c.config.Port))))
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, refuse("receiver %v: nothing listens on TCP %d; start %s there first", ip, c.config.Port, c.tool())
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // op.Err does not repeat the address
	}
	return nil, refuse("receiver %v: no answer on TCP %d (%v); is the host up, and the port open in its firewall?",
		ip, c.config.Port, err)
}

// tool returns the name of the tool that the client runs, out of the tools that a group supports.
func (c *conversation) tool() string {
	if c.isWrite {
		return "ib_write_bw"
	}
	return "ib_send_bw"
}

// hangUp closes all connections and waits until the goroutines that read from them have ended.
func (c *conversation) hangUp() {
	c.client.conn.Close()
	for _, r := range c.receivers {
		r.conn.Close()
	}
	c.pumps.Wait()
}
