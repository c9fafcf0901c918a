package server

import (
	"net"
	"sync"

	"github.com/rocast/rocast/ctl/seats"
)

// mostOfAUser bounds the connections of one user who may not change anything. With readGroup
// everybody can connect to the socket, and the daemon has only so many file descriptors.
const mostOfAUser = 64

// crowd is a listener that closes a connection at once if there are too many like it.
type crowd struct {
	net.Listener
	// enters returns the rights of a connection's peer, and the name under which the connection
	// counts. "": it does not count.
	enters  func(net.Conn) (p peer, who string)
	seats   seats.Book
	refused func(who string) // is told of each connection that was closed
}

// crowdOf is a crowd whose connections count by the IP from which they come.
func crowdOf(l net.Listener, most, all int, refused func(who string)) *crowd {
	return &crowd{Listener: l, seats: seats.Book{Most: most, All: all}, refused: refused, enters: func(conn net.Conn) (peer, string) {
		ip, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // never fails with TCP
		return peer{}, ip
	}}
}

// Accept returns the next connection, with the rights of its peer.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, who := c.enters(conn)
		if who == "" {
			return &visitor{Conn: conn, peer: p, forget: func() {}}, nil
		}
		if c.seats.Take(who) {
			return &visitor{Conn: conn, peer: p, forget: sync.OnceFunc(func() { c.seats.Free(who) })}, nil
		}
		c.refused(who)
		_ = conn.Close() // nothing was written
	}
}

// visitor is a connection that may count.
type visitor struct {
	net.Conn
	peer   peer
	forget func()
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.forget()
	return v.Conn.Close()
}
