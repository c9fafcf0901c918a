package perftest

import (
	"context"
	"errors"
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

// Groups makes and removes what the runs need. Its methods are called from several goroutines.
type Groups interface {
	// Create adds a group. When it returns, the data path carries it. The group is not to outlive the daemon.
	Create(ctx context.Context, g *groupfile.File) error
	// Remove takes a group away again that Create added.
	Remove(ctx context.Context, name string) error
	// Traffic is what the data path has seen of a group up to this moment; false if it does not have it.
	Traffic(name string) (Traffic, bool)
}

// Traffic counts packets that reached a group since it was made.
type Traffic struct {
	FromSource    uint64 // requests of its source, carried or not
	FromReceivers uint64 // requests of its receivers, which no group carries
	Refused       uint64 // requests of its source that were answered with a fatal NAK: READ, atomics, memory it does not have
}

// Addresses makes the box own IPs: the kernel answers ARP and ND for them and terminates TCP.
type Addresses interface {
	// Own lasts until release is called. towards are hosts that are to reach ip. subnets are those of the box that ip is in.
	Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error)
}

// Options are what a Helper works with.
type Options struct {
	Groups    Groups
	Addresses Addresses
	Log       *zap.Logger
}

// Helper serves perftest clients on any number of group IPs. Its methods may be called from any goroutine.
type Helper struct {
	options Options
	limits  limits

	changing sync.Mutex // one Up, Down or Close at a time
	mu       sync.Mutex
	services map[netip.Addr]*service
}

// New returns a Helper that serves nobody yet.
func New(o Options) *Helper {
	return &Helper{options: o, limits: usual, services: map[netip.Addr]*service{}}
}

// Up owns the group IP and begins to listen on it.
func (h *Helper) Up(ctx context.Context, c Config) error {
	c.Receivers, c.Allow = slices.Clone(c.Receivers), slices.Clone(c.Allow)
	if err := c.check(); err != nil {
		return err
	}
	h.changing.Lock()
	defer h.changing.Unlock()
	switch {
	case h.service(c.GroupIP) != nil:
		return fmt.Errorf("perftest on %v is up already; take it down first", c.GroupIP)
	case len(h.services) == MaxServices:
		return fmt.Errorf("perftest is up on %d group IPs, which is all that can be", MaxServices)
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
	if len(c.Allow) == 0 {
		c.Allow = subnets
	}
	if len(c.Allow) == 0 {
		release()
		return nil, errors.New("the box has no address in the group IP's subnet, so nobody is known to be allowed; give it one, or name the networks of the clients with allow")
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
		// Not where the last service on this IP began, whose runs may not all be dead.
		lastQPN: roce.QPN(rand.Uint32() & 0xFFFFFF),
	}
	running, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.tasks.Go(func() { s.serve(running) })
	s.hearCM(running)
	return s, nil
}

// Down ends what Up began, and the run that is on.
func (h *Helper) Down(groupIP netip.Addr) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	s := h.service(groupIP)
	if s == nil {
		return fmt.Errorf("perftest on %v is not up", groupIP.WithZone("")) // a zone is any text, and none is ever up
	}
	s.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.services, groupIP)
	return nil
}

// List is what is served, by group IP.
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

// Close takes everything down.
func (h *Helper) Close() {
	h.mu.Lock()
	up := slices.Collect(maps.Keys(h.services))
	h.mu.Unlock()
	for _, groupIP := range up {
		_ = h.Down(groupIP) // its only error: somebody else was quicker
	}
}

func (h *Helper) service(groupIP netip.Addr) *service {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.services[groupIP]
}
