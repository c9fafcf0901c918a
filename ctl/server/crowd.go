package server

import (
	"net"
	"sync"

	"go.uber.org/zap"
)

// mostOfAUser bounds the connections of one user who may not change anything. With readGroup
// everybody can connect to the socket, and the daemon has only so many file descriptors.
const mostOfAUser = 64

// crowd is a listener that closes a connection at once if its user has too many.
type crowd struct {
	net.Listener
	access func(net.Conn) peer
	log    *zap.Logger

	mu   sync.Mutex
	open map[int]int // connections by uid
}

func newCrowd(l net.Listener, access func(net.Conn) peer, log *zap.Logger) *crowd {
	return &crowd{Listener: l, access: access, log: log, open: map[int]int{}}
}

// Accept returns the next connection, with the rights of its peer.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := c.access(conn)
		if p.change {
			return &visitor{Conn: conn, peer: p, leave: func() {}}, nil
		}
		if c.enter(p.uid) {
			return &visitor{Conn: conn, peer: p, leave: sync.OnceFunc(func() { c.leave(p.uid) })}, nil
		}
		c.log.Warn("a user has too many connections to the API; a further one was closed", zap.Int("uid", p.uid), zap.Int("most", mostOfAUser))
		_ = conn.Close() // nothing was written
	}
}

func (c *crowd) enter(uid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[uid] == mostOfAUser {
		return false
	}
	c.open[uid]++
	return true
}

func (c *crowd) leave(uid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[uid]--; c.open[uid] == 0 {
		delete(c.open, uid)
	}
}

// visitor is a connection of the socket.
type visitor struct {
	net.Conn
	peer  peer
	leave func()
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.leave()
	return v.Conn.Close()
}
