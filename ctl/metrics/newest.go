package metrics

import (
	"net"
	"slices"
	"sync"

	"github.com/rocast/rocast/ctl/bounds"
)

// newest is a listener that takes every connection, and closes an old one if there are too many.
// Connections that are kept open would otherwise hold up the question whether the box is healthy.
type newest struct {
	net.Listener
	met *bounds.Book

	mu    sync.Mutex
	open  map[string][]*visit // the oldest first, by the address from which they come
	total int
}

type visit struct {
	net.Conn
	forget func()
}

// Close implements net.Conn.
func (v *visit) Close() error {
	v.forget()
	return v.Conn.Close()
}

// Accept returns the next connection.
func (l *newest) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	from, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // never fails with TCP
	v := &visit{Conn: conn}
	v.forget = sync.OnceFunc(func() { l.forget(from, v) })
	if old := l.enter(from, v); old != nil {
		l.met.Met(bounds.MetricsConnections, from)
		_ = old.Close()
	}
	return v, nil
}

// enter counts a connection, and returns the one whose place it takes; nil: there was room.
func (l *newest) enter(from string, v *visit) (old *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[string][]*visit{}
	}
	loser := from
	if l.total == mostOfAll {
		for address, of := range l.open {
			if len(of) > len(l.open[loser]) {
				loser = address
			}
		}
	}
	if l.total == mostOfAll || len(l.open[from]) == mostOfAnAddress {
		old = l.open[loser][0]
	}
	l.open[from] = append(l.open[from], v)
	l.total++
	return old
}

func (l *newest) forget(from string, v *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.open[from] = slices.DeleteFunc(l.open[from], func(o *visit) bool { return o == v })
	if len(l.open[from]) == 0 {
		delete(l.open, from)
	}
}
