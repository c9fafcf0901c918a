package groupip

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// MaxServices bounds the services of one kind. One more is refused.
const MaxServices = 256

// Services are the services of one kind that are up, at most one at each group IP. Its methods may
// be called from any goroutine.
type Services[S interface{ Stop() }] struct {
	kind string

	changing sync.Mutex // held by Up, Down and Close, so that only one of them runs at a time
	mu       sync.Mutex
	up       map[netip.Addr]S
}

// NewServices returns Services of which none is up. Errors call such a service kind.
func NewServices[S interface{ Stop() }](kind string) *Services[S] {
	return &Services[S]{kind: kind, up: map[netip.Addr]S{}}
}

// Up adds the service that start returns.
func (s *Services[S]) Up(groupIP netip.Addr, start func() (S, error)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	switch _, ok := s.Get(groupIP); {
	case ok:
		return fmt.Errorf("%s on %v is already up; take it down first", s.kind, groupIP)
	case len(s.up) == MaxServices:
		return fmt.Errorf("%s is up on %d group IPs, which is the limit; take one down first", s.kind, MaxServices)
	}
	service, err := start()
	if err != nil {
		return fmt.Errorf("%s on %v: %w", s.kind, groupIP, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up[groupIP] = service
	return nil
}

// Down stops a service. The service is listed until it has stopped.
func (s *Services[S]) Down(groupIP netip.Addr) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	service, ok := s.Get(groupIP)
	if !ok {
		return fmt.Errorf("%s on %v is not up", s.kind, groupIP.WithZone("")) // the zone can be any text, and no service has a zone
	}
	service.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.up, groupIP)
	return nil
}

// Close stops all services at the same time.
func (s *Services[S]) Close() {
	s.changing.Lock()
	defer s.changing.Unlock()
	var stops sync.WaitGroup
	for _, service := range s.All() {
		stops.Go(service.Stop)
	}
	stops.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.up)
}

// Get returns the service at a group IP; false: there is none.
func (s *Services[S]) Get(groupIP netip.Addr) (S, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	service, ok := s.up[groupIP]
	return service, ok
}

// All returns the services, sorted by group IP.
func (s *Services[S]) All() (all []S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, groupIP := range slices.SortedFunc(maps.Keys(s.up), netip.Addr.Compare) {
		all = append(all, s.up[groupIP])
	}
	return all
}
