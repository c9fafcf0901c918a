package perftest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// Groups creates and removes the groups of the runs. Its methods are called from several
// goroutines.
type Groups interface {
	// Create adds a group. The data path carries the group when Create returns. The group does not
	// outlive the daemon.
	Create(ctx context.Context, g *groupfile.File) error
	// Remove removes a group that Create has added.
	Remove(ctx context.Context, name string) error
	// Traffic returns the packet counts of a group; false: the data path does not have the group.
	Traffic(name string) (Traffic, bool)
}

// Traffic counts the packets that reached a group since the group was created.
type Traffic struct {
	FromSource    uint64 // requests of the source, whether the group carried them or not
	FromReceivers uint64 // requests of the receivers; no group carries these
	Refused       uint64 // requests of the source that were answered with a fatal NAK: READ, atomics, accesses outside the group's memory
}

// Addresses adds IPs to the box: the kernel answers ARP and ND for these IPs and terminates their
// TCP connections.
type Addresses interface {
	// Own adds ip to the box until release is called. towards lists the hosts that must be able to
	// reach ip. subnets are the box's subnets that contain ip.
	Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error)
}

// Options are the interfaces that a Helper uses.
type Options struct {
	Groups    Groups
	Addresses Addresses
	Log       *zap.Logger
}

// Helper serves perftest clients on any number of group IPs. Its methods may be called from any
// goroutine.
type Helper struct {
	options Options
	limits  limits

	changing sync.Mutex // held by Up, Down and Close, so that only one of them runs at a time
	mu       sync.Mutex
	services map[netip.Addr]*service
}

// New returns a Helper that serves no group IP yet.
func New(o Options) *Helper {
	return &Helper{options: o, limits: usual, services: map[netip.Addr]*service{}}
}

// Up adds the group IP to the box and starts to listen on it.
func (h *Helper) Up(ctx context.Context, c Config) error {
	c.Receivers, c.Allow = slices.Clone(c.Receivers), slices.Clone(c.Allow)
	if err := check(&c); err != nil {
		return err
	}
	h.changing.Lock()
	defer h.changing.Unlock()
	switch {
	case h.service(c.GroupIP) != nil:
		return fmt.Errorf("perftest on %v is already up; take it down first", c.GroupIP)
	case len(h.services) == MaxServices:
		return fmt.Errorf("perftest is up on %d group IPs, which is the limit; take one down first", MaxServices)
	}
	s, err := h.start(ctx, c)
	if err != nil {
		return fmt.Errorf("perftest on %v: %w", c.GroupIP, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.services[c.GroupIP] = s
	return nil
}

func (h *Helper) start(ctx context.Context, c Config) (*service, error) {
	subnets, release, err := h.options.Addresses.Own(c.GroupIP, c.Receivers)
	if err != nil {
		return nil, err
	}
	if err := c.AllowOr(subnets); err != nil {
		release()
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(c.GroupIP.String(), strconv.Itoa(int(c.Port))))
	if err != nil {
		release()
		return nil, err
	}
	s := &service{
		config: c, options: h.options, limits: h.limits, listener: listener, release: release,
		log:     h.options.Log.With(zap.Stringer("groupIP", c.GroupIP)),
		clients: make(chan struct{}, MaxClients), turn: make(chan struct{}, 1),
		// Start at a random number: queue pairs of an earlier service on this IP may still send.
		lastQPN: roce.QPN(rand.Uint32() & 0xFFFFFF),
	}
	running, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.tasks.Go(func() { s.serve(running) })
	s.hearCM(running)
	return s, nil
}

// Down stops the service that Up started, and ends its current run.
func (h *Helper) Down(groupIP netip.Addr) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	s := h.service(groupIP)
	if s == nil {
		return fmt.Errorf("perftest on %v is not up", groupIP.WithZone("")) // the zone can be any text, and no service has a zone
	}
	s.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.services, groupIP)
	return nil
}

// List returns the services, sorted by group IP.
func (h *Helper) List() []Service {
	h.mu.Lock()
	defer h.mu.Unlock()
	var l []Service
	for _, s := range h.services {
		l = append(l, s.list())
	}
	slices.SortFunc(l, func(a, b Service) int { return a.GroupIP.Compare(b.GroupIP) })
	return l
}

// Close stops all services.
func (h *Helper) Close() {
	h.mu.Lock()
	up := slices.Collect(maps.Keys(h.services))
	h.mu.Unlock()
	for _, groupIP := range up {
		_ = h.Down(groupIP) // the only error: a concurrent Down was faster
	}
}

func (h *Helper) service(groupIP netip.Addr) *service {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.services[groupIP]
}
