package cm

import (
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
)

// refusedPause is the shortest time between two lines of the log, and two events, about requests
// that are refused: a host can ask again and again.
const refusedPause = 10 * time.Second

// note tells the log and the events what the last step has to say of a source.
func (s *service) note(n Note) {
	log := s.log.With(zap.Stringer("source", n.Source), zap.String("reason", n.Says))
	switch n.Kind {
	case Refused:
		s.options.Bounds.Met(bounds.CMConnections, n.Source.String())
		s.refused = Refusal{n.Source, n.Says, time.Now()}
		if s.refused.At.Sub(s.refusalTold) < refusedPause {
			return
		}
		s.refusalTold = s.refused.At
		log.Warn("RDMA-CM connection refused")
		s.event(api.ConnectionRefused, n)
	case Silent:
		log.Warn("the source of an RDMA-CM connection does not answer")
		s.event(api.ConnectionSilent, n)
	case Returned:
		log.Info("the source of an RDMA-CM connection answers again")
		s.event(api.ConnectionReturned, n)
	}
}

func (s *service) event(kind api.EventKind, n Note) {
	if s.options.AddEvent != nil {
		s.options.AddEvent(api.Event{Kind: kind, Member: n.Source.String(), Cause: fmt.Sprintf("by RDMA-CM at %v: %s", s.config.GroupIP, n.Says)})
	}
}

// Trouble is what a status says of a service.
type Trouble struct {
	GroupIP netip.Addr
	// Silent are sources that do not answer, although their connections stand.
	Silent  []Connection
	Refused Refusal
}

// Refusal is the last request that was refused because of others.
type Refusal struct {
	Source netip.Addr
	Says   string
	At     time.Time // zero: none was
}

// publish makes the troubles known to those who wait for nobody.
func (s *service) publish() {
	t := &Trouble{GroupIP: s.config.GroupIP, Refused: s.refused}
	for _, c := range inOrder(s.machine.busy) {
		if c.unheard >= firstDoubt && c.state == Established {
			t.Silent = append(t.Silent, s.machine.seen(c))
		}
	}
	s.trouble.Store(t)
}

// Troubles returns what a status says of the services, sorted by group IP. It waits for nothing.
func (p *Proxy) Troubles() (l []Trouble) {
	for _, s := range p.services.All() {
		if t := s.trouble.Load(); t != nil {
			l = append(l, *t)
		}
	}
	return l
}
