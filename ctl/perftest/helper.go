package perftest

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groupip"
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
	// Saw says what the data path of a group saw: which member was in trouble, why, and when; "":
	// none was.
	Saw(name string) string
	// Traffic returns the packet counts of a group; false: the data path does not have the group.
	Traffic(name string) (Traffic, bool)
}

// Traffic counts the packets that reached a group since the group was created.
type Traffic struct {
	FromSource    uint64 // requests of the source, whether the group carried them or not
	FromReceivers uint64 // requests of the receivers; no group carries these
	Refused       uint64 // requests of the source that were answered with a fatal NAK: READ, atomics, accesses outside the group's memory
}

// Options are the interfaces that a Helper uses.
type Options struct {
	Groups    Groups
	Addresses groupip.Addresses
	Log       *zap.Logger
	Bounds    *bounds.Book
	// RefuseCM answers a host that asks by RDMA-CM at a group IP; see cm.Refuse. nil: nobody does.
	RefuseCM func(groupIP, host netip.Addr, datagram []byte, says string) error
	// EndQueuePair ends the queue pair of a host; see cm.EndQueuePair. nil: nobody does.
	EndQueuePair func(groupIP, host netip.Addr, isSource bool, qpn roce.QPN, first roce.PSN) error
	// AddEvent is told what the operator is to see among the events. nil: nobody is.
	AddEvent func(api.Event)
}

// Helper serves perftest clients on any number of group IPs. Its methods may be called from any
// goroutine.
type Helper struct {
	options  Options
	limits   limits
	services *groupip.Services[*service]
}

// New returns a Helper that serves no group IP yet.
func New(o Options) *Helper {
	return &Helper{options: o, limits: usual, services: groupip.NewServices[*service]("perftest")}
}

// Up adds the group IP to the box and starts to listen on it.
func (h *Helper) Up(ctx context.Context, c Config) error {
	if err := check(&c); err != nil {
		return err
	}
	return h.services.Up(c.GroupIP, func() (*service, error) { return h.start(ctx, c) })
}

func (h *Helper) start(ctx context.Context, c Config) (*service, error) {
	release, err := c.Own(h.options.Addresses)
	if err != nil {
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
		clients: map[netip.Addr]int{}, slot: make(chan struct{}, 1),
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
func (h *Helper) Down(groupIP netip.Addr) error { return h.services.Down(groupIP) }

// List returns the services, sorted by group IP.
func (h *Helper) List() (l []Service) {
	for _, s := range h.services.All() {
		l = append(l, s.list())
	}
	return l
}

// Close stops all services, at the same time.
func (h *Helper) Close() { h.services.Close() }
