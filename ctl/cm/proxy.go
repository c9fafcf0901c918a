package cm

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	crand "crypto/rand"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groupip"
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
	// Leave takes a receiver out of a group that Create has added. The others go on.
	Leave(ctx context.Context, name string, receiver netip.Addr) error
	// Saw says what the data path of a group saw: which member was in trouble, why, and when; "":
	// none was.
	Saw(name string) string
	// Sent returns how many packets the sources of groups have sent, all together, and how many
	// requests their receivers have sent, which no group carries.
	Sent(names []string) (sources, receivers uint64)
	Ways
}

// Options are the interfaces that a Proxy uses.
type Options struct {
	Groups    Groups
	Addresses Addresses
	Log       *zap.Logger
	Bounds    *bounds.Book
	Talk      NewTalk
	// AddEvent is told what the operator is to see among the events. nil: nobody is.
	AddEvent func(api.Event)
}

// Addresses adds group IPs to the box.
type Addresses interface {
	groupip.Addresses
	// Announce tells the hosts that the box has ip. They may remember another box of a tree, which
	// had it for the group of an earlier connection.
	Announce(ip netip.Addr)
}

// Proxy answers RDMA-CM at any number of group IPs. Its methods may be called from any goroutine.
type Proxy struct {
	options  Options
	limits   limits
	services *groupip.Services[*service]
}

// New returns a Proxy that answers at no group IP yet.
func New(o Options) *Proxy {
	return &Proxy{options: o, limits: usual, services: groupip.NewServices[*service]("RDMA-CM")}
}

// Up adds the group IP to the box and answers there.
func (p *Proxy) Up(c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	return p.services.Up(c.GroupIP, func() (*service, error) { return p.start(c) })
}

func (p *Proxy) start(c Config) (*service, error) {
	release, err := c.Own(p.options.Addresses)
	if err != nil {
		return nil, err
	}
	socket, err := openSocket(c.GroupIP)
	if err != nil {
		release()
		return nil, err
	}
	s := &service{
		config: c, options: p.options, limits: p.limits, socket: socket, release: release, began: time.Now(),
		log: p.options.Log.With(zap.Stringer("groupIP", c.GroupIP)), changed: make(chan struct{}, 1),
	}
	s.machine = newMachine(c, p.options.Groups, p.options.Talk, randomSeed(), p.limits, s.began)
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
func (p *Proxy) Down(groupIP netip.Addr) error { return p.services.Down(groupIP) }

// Lost says that somebody else has removed a group. If it is a connection's, the connection ends.
func (p *Proxy) Lost(group string) {
	for _, s := range p.services.All() {
		s.step(Lost{group})
	}
}

// Close stops all services, at the same time.
func (p *Proxy) Close() { p.services.Close() }
