package services

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// tryAgainAfter is the pause before the daemon starts a failed helper of the config again: at boot,
// routes may appear after the daemon starts.
const tryAgainAfter = 5 * time.Second

// Control is what the services need of control. Its methods may be called from any goroutine.
type Control interface {
	// SetUp makes a group that is not stored and ends with the daemon. unreached says of each
	// member that is not reached yet that it is not, and why; the group is there all the same.
	SetUp(ctx context.Context, file *groupfile.File) (unreached []string, err error)
	// Remove removes a group that SetUp has made, here and at the boxes behind this one.
	Remove(name string) error
	// Leave takes a receiver out of a group that SetUp has made, here and at the boxes behind this
	// one.
	Leave(ctx context.Context, name string, receiver netip.Addr) error
	// Counters returns what the data path has counted of a group; false: it does not have the
	// group.
	Counters(name string) (counts api.Counters, ok bool)
	// Saw says which member of a group is in trouble, why and since when; "": none is.
	Saw(name string) string
	// Sees says what Saw says by the last look that the box took at the group: it asks no worker.
	Sees(name string) string
	// AddEvent adds an event to those of the box.
	AddEvent(api.Event)
	// Unfit says why no packets of a path MTU can be sent to a host, or "". It goes by what is
	// known of a host whose next hop is tracked.
	Unfit(host netip.Addr, pathMTU int) (why string)
	// Behind returns the boxes by one of which a host is reached; none: it is attached to this box.
	Behind(host netip.Addr) (boxes []string, err error)
	// FreeIP refuses an IP that the box cannot add to these interfaces, and returns the subnets
	// there that have its family.
	FreeIP(ctx context.Context, ip netip.Addr, at []address.IfAddr) (subnets []netip.Prefix, err error)
	// Resolve tracks hosts until release is called, and waits for a while until the kernel has
	// resolved them.
	Resolve(ctx context.Context, hosts []netip.Addr) (release func())
	// Alone runs a parser when no other one runs.
	Alone(ctx context.Context, parser func() error) error
}

// NextHops is the part of a nexthop.Tracker that the services use.
type NextHops interface {
	Track(netip.Addr) nexthop.Hop
	Untrack(netip.Addr)
	Hop(netip.Addr) nexthop.Hop
}

// Owner is the part of an address.Owner that the services use.
type Owner interface {
	Hold(address.IfAddr) error
	Release(address.IfAddr) error
	Announce(netip.Addr) error
}

// Options are what the services work with.
type Options struct {
	Control   Control
	Hops      NextHops
	Addresses Owner
	Log       *zap.Logger
	Bounds    *bounds.Book
	// Perftest and CM list the services of the config, which KeepUp starts.
	Perftest []perftest.Config
	CM       []cm.Config
}

// Services are the services at group IPs. Its methods may be called from any goroutine.
type Services struct {
	Options
	perftest *perftest.Helper
	cm       *cm.Proxy
}

// New returns Services of which none is up.
func New(o Options) *Services {
	groups, own := Groups{Control: o.Control, Hops: o.Hops}, addresses{control: o.Control, hops: o.Hops, owner: o.Addresses, log: o.Log}
	return &Services{
		Options:  o,
		perftest: perftest.New(perftest.Options{Groups: groups, Addresses: own, Log: o.Log, Bounds: o.Bounds, AddEvent: o.Control.AddEvent, RefuseCM: cm.Refuse, EndQueuePair: cm.EndQueuePair}),
		cm:       cm.New(cm.Options{Groups: groups, Addresses: own, Log: o.Log, Bounds: o.Bounds, Talk: inBand, AddEvent: o.Control.AddEvent}),
	}
}

// Lost says that somebody else has removed a group. If it is that of a connection, the connection
// ends.
func (s *Services) Lost(group string) { s.cm.Lost(group) }

// Close stops all services, which remove their groups.
func (s *Services) Close() {
	s.cm.Close()
	s.perftest.Close()
}

// readRequest reads a request whose text is one item of a key of the config.
func readRequest[C any](ctx context.Context, s *Services, request []byte, read func(yamldoc.Value) (C, error)) (config C, err error) {
	err = s.Control.Alone(ctx, func() error {
		document, err := yamldoc.Parse(request, "the request")
		if err == nil {
			config, err = read(document)
		}
		return withoutLine(err)
	})
	return config, err
}

// withoutLine removes the line number from an error: the client sent a request, not a file.
func withoutLine(err error) error {
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return api.Errorf(api.BadRequest, "%s", e.Message)
	}
	return err
}

// listed returns the service that has just been started at a group IP, from the list of what is up.
func listed[L any](list []L, at func(L) string, kind string, groupIP netip.Addr) (l L, err error) {
	for _, up := range list {
		if at(up) == groupIP.String() {
			return up, nil
		}
	}
	return l, api.Errorf(api.NotFound, "%s on %v was taken down meanwhile", kind, groupIP)
}

// takeDown stops the service at a group IP. noun is the command that lists what is up.
func takeDown(groupIP string, down func(netip.Addr) error, noun string) error {
	ip, err := netip.ParseAddr(groupIP)
	if err != nil {
		return api.Errorf(api.BadRequest, "%q is not an IP address; write one such as 10.77.0.100", groupIP)
	}
	if err := down(ip); err != nil {
		return api.Errorf(api.NotFound, "%v; rocast %s ls lists what is up", err, noun)
	}
	return nil
}

// helper is one of the config: a service at a group IP.
type helper struct {
	service string
	groupIP netip.Addr
	up      func(context.Context) error
}

// helpers returns those of the config.
func (s *Services) helpers() (l []helper) {
	for _, config := range s.Options.Perftest {
		l = append(l, helper{"perftest", config.GroupIP, func(ctx context.Context) error { return s.perftest.Up(ctx, config) }})
	}
	for _, config := range s.Options.CM {
		l = append(l, helper{"RDMA-CM", config.GroupIP, func(context.Context) error { return s.cmUp(config) }})
	}
	return l
}

// KeepUp starts the helpers of the config, and retries each failed one until it starts or ctx is
// done.
func (s *Services) KeepUp(ctx context.Context) error {
	missing := s.bringUp(ctx, s.helpers(), true)
	again := time.NewTicker(tryAgainAfter)
	defer again.Stop()
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			missing = s.bringUp(ctx, missing, false)
		}
	}
	return nil
}

// bringUp starts helpers and returns those that failed to start.
func (s *Services) bringUp(ctx context.Context, helpers []helper, report bool) (missing []helper) {
	for _, h := range helpers {
		err := h.up(ctx)
		if err == nil {
			s.Log.Info("a service of the config is up", zap.String("service", h.service), zap.Stringer("groupIP", h.groupIP))
			continue
		}
		missing = append(missing, h)
		if report {
			s.Log.Warn("a service of the config could not start yet; rocastd tries again",
				zap.Error(err), zap.Duration("every", tryAgainAfter))
		}
	}
	return missing
}

func texts[T interface{ String() string }](values []T) (l []string) {
	for _, v := range values {
		l = append(l, v.String())
	}
	return l
}

func ended(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC().Truncate(time.Millisecond)
	return &at
}
