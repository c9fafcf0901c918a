package copying

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

const (
	// maxGiven is how many others are given something at a time. Each takes memory for a block
	// and two descriptors, and any program of a member's host may connect. A receiver asks for
	// its files on one connection, so maxOfAnAddress bounds none that has an address of its own,
	// and one host cannot keep all others out.
	maxGiven       = 64
	maxOfAnAddress = 4
)

// seating are the connections that are served, in the order in which they came.
type seating struct {
	mu  sync.Mutex
	all []*giving
}

// take finds a seat for a connection. If there is none, the one that came first and has not shown
// the token makes room, and is returned: a receiver shows the token at once.
func (s *seating) take(g *giving) (ok bool, out *giving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := 0
	for _, o := range s.all {
		if o.from == g.from {
			of++
		}
	}
	if len(s.all) == maxGiven || of == maxOfAnAddress {
		i := slices.IndexFunc(s.all, func(o *giving) bool { return !o.known && (of < maxOfAnAddress || o.from == g.from) })
		if i < 0 {
			return false, nil
		}
		out = s.all[i]
		s.all = slices.Delete(s.all, i, i+1)
	}
	s.all = append(s.all, g)
	return true, out
}

// knows notes that a connection has shown the token, and reports whether it has its seat still.
func (s *seating) knows(g *giving) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.known = true
	return slices.Contains(s.all, g)
}

// free gives a seat back, and reports whether the connection has had it until now.
func (s *seating) free(g *giving) (had bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.all, g)
	if i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
	}
	return i >= 0
}

// hostOf is the host of a TCP connection.
func hostOf(conn net.Conn) netip.Addr {
	at, _ := conn.RemoteAddr().(*net.TCPAddr)
	return plainIP(at.AddrPort())
}
