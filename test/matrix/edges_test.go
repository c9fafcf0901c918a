package matrix

import (
	"net/netip"
	"time"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/edges"
)

// openEdges lets the switch snoop, and starts rocast-edge at all hosts but the source.
func (l *lab) openEdges(b *bed.Bed) {
	l.check(edges.Snoop(b.Box, bed.Bridge))
	program, err := edges.Build(l.t.TempDir())
	l.check(err)
	for _, h := range b.Hosts[1:] {
		e, err := edges.New(program, h.NS)
		l.check(err)
		l.t.Cleanup(func() {
			if l.t.Failed() {
				l.t.Logf("the edge of %v:\n%s", h.IP, e.Log())
			}
			l.check(e.Close())
		})
		l.edges = append(l.edges, e)
		l.check(e.Start(l.asks()))
	}
}

// asks is where the edges ask the box.
func (l *lab) asks() netip.AddrPort { return netip.AddrPortFrom(l.ip, hostsPort) }

// share waits until the receivers share a leg. Of members that all may send, another one than the
// first may be the source, and the first one has no edge.
func (r *run) share() {
	if len(r.edges) == 0 {
		return
	}
	least := len(r.members) - 1
	if !r.c.Is("source-switch", "none") {
		least--
	}
	r.eventually("the receivers share a leg", func() bool {
		g := r.group()
		return len(g.Shares) == 1 && g.Shares[0].Working >= least
	})
}

// edgeDies kills the edge of a receiver, and returns how to start it again. Its program maps on,
// and after a while the switch forwards no shared copies to its host.
func (r *run) edgeDies() (begin func()) {
	if len(r.edges) == 0 {
		return func() {}
	}
	e := r.edges[r.random.IntN(len(r.members)-1)]
	r.check(e.Kill())
	time.Sleep(switchForgets) // the story: whatever comes then does not reach the host
	return func() { r.check(e.Start(r.asks())) }
}

// switchForgets is about the time after which the switch knows that nobody at a port listens.
const switchForgets = 300 * time.Millisecond
