package cm

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	crand "crypto/rand"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// Groups creates and removes the groups of the connections. Its methods are called from several
// goroutines.
type Groups interface {
	// Create adds a group. The data path carries the group when Create returns. The group does not
	// outlive the daemon.
	Create(ctx context.Context, g *groupfile.File) error
	// Remove removes a group that Create has added.
	Remove(ctx context.Context, name string) error
}

// Addresses adds IPs to the box, for which the kernel answers ARP.
type Addresses interface {
	// Own adds ip to the box until release is called. towards lists the hosts that must be able to
	// reach ip. subnets are the box's subnets that contain ip.
	Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error)
}

// Options are the interfaces that a Proxy uses.
type Options struct {
	Groups    Groups
	Addresses Addresses
	Log       *zap.Logger
}

// Proxy answers RDMA-CM at any number of group IPs. Its methods may be called from any goroutine.
type Proxy struct {
	options Options
	limits  limits

	changing sync.Mutex // held by Up, Down and Close, so that only one of them runs at a time
	mu       sync.Mutex
	services map[netip.Addr]*service
}

// New returns a Proxy that answers at no group IP yet.
func New(o Options) *Proxy {
	return &Proxy{options: o, limits: usual, services: map[netip.Addr]*service{}}
}

// Up adds the group IP to the box and answers there.
func (p *Proxy) Up(c Config) error {
	c.Receivers, c.Allow = slices.Clone(c.Receivers), slices.Clone(c.Allow)
	if err := c.check(); err != nil {
		return err
	}
	p.changing.Lock()
	defer p.changing.Unlock()
	switch {
	case p.service(c.GroupIP) != nil:
		return fmt.Errorf("RDMA-CM on %v is already up; take it down first", c.GroupIP)
	case len(p.services) == MaxServices:
		return fmt.Errorf("RDMA-CM is up on %d group IPs, which is the limit; take one down first", MaxServices)
	}
	s, err := p.start(c)
	if err != nil {
		return fmt.Errorf("RDMA-CM on %v: %w", c.GroupIP, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.services[c.GroupIP] = s
	return nil
}

func (p *Proxy) start(c Config) (*service, error) {
	subnets, release, err := p.options.Addresses.Own(c.GroupIP, c.Receivers)
	if err != nil {
		return nil, err
	}
	if err := c.AllowOr(subnets); err != nil {
		release()
		return nil, err
	}
	socket, err := openSocket(c.GroupIP)
	if err != nil {
		release()
		return nil, err
	}
	s := &service{
		config: c, options: p.options, limits: p.limits, socket: socket, release: release, began: time.Now(),
		log: p.options.Log.With(zap.Stringer("groupIP", c.GroupIP)), changed: make(chan struct{}, 1), logged: map[uint64]State{},
	}
	s.machine = newMachine(c, randomSeed(), p.limits, s.began)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.alarm = time.AfterFunc(time.Hour, func() { s.step(nil) })
	s.tasks.Go(s.listen)
	return s, nil
}

func randomSeed() seed {
	var b [24]byte
	crand.Read(b[:]) // never fails
	const local = 1 << 57
	return seed{
		commID: binary.BigEndian.Uint32(b[0:]), qpn: roce.QPN(binary.BigEndian.Uint32(b[4:]) & 0xFFFFFF),
		tid: binary.BigEndian.Uint64(b[8:]), guid: binary.BigEndian.Uint64(b[16:]) | local,
	}
}

// Down ends the connections at a group IP and stops to answer there.
func (p *Proxy) Down(groupIP netip.Addr) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	s, err := p.take(groupIP)
	if err == nil {
		s.stop()
	}
	return err
}

func (p *Proxy) take(groupIP netip.Addr) (*service, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.services[groupIP]
	if s == nil {
		return nil, fmt.Errorf("RDMA-CM on %v is not up", groupIP.WithZone("")) // the zone can be any text, and no service has a zone
	}
	delete(p.services, groupIP)
	return s, nil
}

// Lost says that somebody else has removed a group. If it is a connection's, the connection ends.
func (p *Proxy) Lost(group string) {
	for _, s := range p.all() {
		s.step(Lost{group})
	}
}

// Close stops all services, at the same time.
func (p *Proxy) Close() {
	p.changing.Lock()
	defer p.changing.Unlock()
	var stops sync.WaitGroup
	for _, s := range p.all() {
		stops.Go(s.stop)
	}
	stops.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.services)
}

func (p *Proxy) service(groupIP netip.Addr) *service {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.services[groupIP]
}

func (p *Proxy) all() []*service {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.services))
}
