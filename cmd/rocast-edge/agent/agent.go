package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/bpf/edge"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/asking"
	"github.com/rocast/rocast/roce"
)

// Kept is how long the mappings of a box stay that does not answer.
const Kept = time.Hour

// Asker asks one box for one IP.
type Asker interface {
	AskEdge(context.Context, api.EdgeQuestion) (api.EdgeAnswer, error)
}

// Config says for whom an agent works.
type Config struct {
	Boxes []netip.AddrPort
	// IPs are those of the RDMA devices. None: for each box the one from which the host reaches it.
	IPs []netip.Addr
	// Wire is the port towards the boxes, where the IPs are those of a host behind this machine.
	// Without it they are this machine's.
	Wire string
	// Ask returns the Asker for a box that asks from an IP of this machine.
	Ask func(box netip.AddrPort, from netip.Addr) Asker
	Log *zap.Logger
	// Changed is called after each change of the state; nil: nobody.
	Changed func(State)
}

// Agent is the edge of this host.
type Agent struct {
	Config
	host     host
	partners []*partner

	mu    sync.Mutex // guards what follows, and what is said to be guarded in partner
	ports map[string]*port
	swept bool // what is pinned for interfaces without a partner has been removed
}

// partner is a box that is asked for one IP.
type partner struct {
	agent  *Agent
	box    netip.AddrPort
	chosen bool   // the operator has named the IP
	owner  uint32 // of the box's mappings

	// The rest is guarded.

	ip       netip.Addr // not valid: not known yet
	port     *port      // nil: no interface has the IP
	at       device     // of the port, for this IP
	mappings map[edge.Key]edge.Mapping
	groups   map[edge.Key]string // their names
	have     uint64              // the number of the last answer that was loaded as a whole
	part     *api.EdgePart       // what is loaded of a later one
	heard    time.Time           // the last answer, or the start
	answered bool
	problem  string // "": none
}

// New returns an agent for this host, which does nothing before Run. Its programs are pinned below
// pins, and are attached in the first of these modes that works.
func New(c Config, pins string, modes []edge.Mode) *Agent { return newAgent(c, kernel{pins, modes}) }

func newAgent(c Config, h host) *Agent {
	a := &Agent{Config: c, host: h, ports: map[string]*port{}}
	for _, box := range c.Boxes {
		ips := c.IPs
		if len(ips) == 0 {
			ips = []netip.Addr{{}}
		}
		for _, ip := range ips {
			sum := fnv.New32a()
			sum.Write([]byte(box.String()))
			a.partners = append(a.partners, &partner{
				agent: a, box: box, ip: ip, chosen: ip.IsValid(), owner: sum.Sum32(), heard: time.Now(),
				mappings: map[edge.Key]edge.Mapping{}, groups: map[edge.Key]string{},
			})
		}
	}
	return a
}

// Run asks the boxes until ctx is done. The programs and their mappings stay then.
func (a *Agent) Run(ctx context.Context) error {
	var all errgroup.Group
	for _, p := range a.partners {
		all.Go(func() error {
			asking.Keep(ctx, p.round)
			return nil
		})
	}
	err := all.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, port := range a.ports {
		err = errors.Join(err, port.close())
	}
	return err
}

// round looks where the IP is, asks the box, and loads the answer.
func (p *partner) round(ctx context.Context) (ok bool) {
	question, from, err := p.prepare()
	var answer api.EdgeAnswer
	news := false // there is something to say at once
	if err == nil {
		within, cancel := context.WithTimeout(ctx, asking.Within)
		answer, err = p.agent.Ask(p.box, from).AskEdge(within, question)
		cancel()
	}
	if ctx.Err() != nil {
		return false
	}
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	if err == nil {
		p.heard = time.Now()
		said := p.part
		err = p.load(answer)
		news = !p.part.IsSame(said)
	}
	if err != nil {
		err = errors.Join(err, p.expire())
	}
	p.note(err)
	return err == nil || news
}

// prepare makes the question, which is asked from an IP of this machine.
func (p *partner) prepare() (q api.EdgeQuestion, from netip.Addr, err error) {
	ip, inWire := p.ip, p.agent.Wire != ""
	if from = ip; !p.chosen || inWire {
		if from, err = p.agent.host.towards(p.box); err != nil {
			return q, from, fmt.Errorf("find the IP from which this host reaches the box: %w", err)
		}
	}
	if !p.chosen {
		ip = from
	}
	if inWire {
		q.Host = ip
	}
	at, lost := p.agent.find(ip) // without the lock: a host in the wire may take long to answer
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	p.ip = ip
	if lost != nil {
		return q, from, lost
	}
	if err := p.moveTo(at); err != nil {
		return q, from, err
	}
	c, err := p.port.program.Counters()
	q.Protocol, q.Have, q.Part, q.Wait, q.Attach = api.EdgeProtocol, p.have, p.part, int(asking.Wait/time.Millisecond), string(p.port.program.Mode())
	q.Mapped, q.NoMapping, q.Refused = c.Mapped, c.NoMapping, c.Refused()
	return q, from, err
}

// find returns the interface by which packets to an IP come.
func (a *Agent) find(ip netip.Addr) (device, error) {
	if a.Wire != "" {
		return a.host.behind(a.Wire, ip)
	}
	return a.host.find(ip)
}

// moveTo moves the mappings to the interface by which packets to the IP come.
func (p *partner) moveTo(at device) error {
	to, err := p.agent.portAt(at)
	if err != nil {
		return fmt.Errorf("attach the program to %s: %w", at.name, err)
	}
	moved := p.port != to || p.at.joins != at.joins
	if moved && p.port != nil && !p.port.closed {
		for key := range p.mappings {
			err = errors.Join(err, p.port.remove(key))
		}
	}
	p.port, p.at = to, at
	for key, m := range p.mappings {
		if moved || m.MAC != at.mac {
			m.MAC = at.mac
			err = errors.Join(err, to.put(m, at))
			p.mappings[key] = m
		}
	}
	if err != nil {
		p.port, p.have, p.part = nil, 0, nil // all are made again the next time
		return err
	}
	return p.agent.sweep()
}

// load makes the mappings of an answer those of the host. A mapping that fails is left out alone.
func (p *partner) load(answer api.EdgeAnswer) (err error) {
	wanted, failed := map[edge.Key]bool{}, map[uint32]error{}
	for _, given := range answer.Mappings {
		m := mapping(given)
		wanted[m.Key] = true
		if failure := p.take(m, given.Group); failure != nil {
			failed[given.LegQPN] = failure
			err = errors.Join(err, failure)
		}
	}
	for key := range p.mappings {
		if !wanted[key] {
			err = errors.Join(err, p.port.remove(key))
			delete(p.mappings, key)
			delete(p.groups, key)
		}
	}
	switch p.part = answer.Part(failed); {
	case err == nil:
		p.have = answer.Number
	case p.part == nil:
		p.have = 0 // what an earlier answer had may be gone
	}
	return err
}

// take makes one mapping of an answer one of the host.
func (p *partner) take(m edge.Mapping, group string) error {
	m.MAC, m.Owner = p.at.mac, p.owner
	switch other := p.agent.holder(p.port, m.Key); {
	case m.Host != p.ip:
		return fmt.Errorf("the box gives a mapping of group %s to %v, which is not the IP for which it was asked", group, m.Host)
	case other != nil && other != p && other.box == p.box:
		return fmt.Errorf("%v is mapped to %v already, and not to %v too: a leg has one queue pair at an interface", m.Key, other.ip, p.ip)
	case other != nil && other != p:
		return fmt.Errorf("the box gives a mapping of %v for group %s, as box %v does; give them other addresses for edges", m.Key, group, other.box)
	}
	if had, known := p.mappings[m.Key]; !known || !same(had, m) {
		if err := p.port.put(m, p.at); err != nil {
			return err
		}
	}
	p.mappings[m.Key], p.groups[m.Key] = m, group
	return nil
}

// holder is the partner that has a mapping at a port; nil: nobody.
func (a *Agent) holder(at *port, key edge.Key) *partner {
	for _, p := range a.partners {
		if _, has := p.mappings[key]; has && p.port == at {
			return p
		}
	}
	return nil
}

// expire takes the mappings away of a box that has not answered for long.
func (p *partner) expire() (err error) {
	if time.Since(p.heard) < Kept || p.port == nil || p.port.closed {
		return nil
	}
	for key := range p.mappings {
		err = errors.Join(err, p.port.remove(key))
		delete(p.mappings, key)
		delete(p.groups, key)
	}
	p.have, p.part = 0, nil
	return err
}

// note keeps what went wrong, and says what is new.
func (p *partner) note(err error) {
	was, first := p.problem, !p.answered && err == nil
	p.problem = ""
	if err != nil {
		p.problem = err.Error()
	} else {
		p.answered = true
	}
	fields := []zap.Field{zap.Stringer("box", p.box), zap.Stringer("ip", p.ip)}
	switch {
	case p.problem == was && !first:
	case err != nil:
		p.agent.Log.Warn("the box does not give this host its mappings", append(fields, zap.Error(err))...)
	default:
		p.agent.Log.Info("the box gives this host its mappings", append(fields, zap.Int("mappings", len(p.mappings)))...)
	}
	if p.agent.Changed != nil {
		p.agent.Changed(p.agent.state())
	}
}

// portAt returns the port of an interface. A new one has the mappings that are pinned there; those
// of boxes that are no partners any more go.
func (a *Agent) portAt(at device) (*port, error) {
	if old := a.ports[at.name]; old != nil {
		if old.index == at.index {
			return old, nil
		}
		delete(a.ports, at.name)
		if err := old.close(); err != nil {
			return nil, err
		}
	}
	made, err := a.host.attach(at)
	if err != nil {
		return nil, err
	}
	a.Log.Info("the program is attached", zap.String("interface", at.name), zap.String("mode", string(made.Mode())))
	port := &port{host: a.host, name: at.name, index: at.index, program: made, members: map[joined]*member{}}
	var found []edge.Mapping
	for m, err := range made.Mappings() {
		if err != nil {
			return nil, errors.Join(err, port.close())
		}
		found = append(found, m)
	}
	for _, m := range found {
		if err := a.adopt(port, m); err != nil {
			return nil, errors.Join(err, port.close())
		}
	}
	a.ports[at.name] = port
	return port, nil
}

// adopt gives a mapping that was found to the partner whose it is. The partner joins its address
// when it comes to the port.
func (a *Agent) adopt(at *port, m edge.Mapping) error {
	for _, p := range a.partners {
		if p.owner == m.Owner && (p.ip == m.Host || !p.chosen && !p.ip.IsValid()) {
			p.mappings[m.Key] = m
			return nil
		}
	}
	return at.remove(m.Key)
}

// sweep removes what is pinned for interfaces without a partner, once all partners have one.
func (a *Agent) sweep() error {
	for _, p := range a.partners {
		if a.swept || p.port == nil {
			return nil
		}
	}
	a.swept = true
	names, err := a.host.pinned()
	for _, name := range names {
		if a.ports[name] == nil {
			err = errors.Join(err, a.host.detach(name))
		}
	}
	return err
}

// mapping is a mapping as the program has it.
func mapping(m api.EdgeMapping) edge.Mapping {
	to := edge.Mapping{
		Key: edge.Key{From: m.From, To: m.To, QPN: roce.QPN(m.LegQPN)}, Host: m.Host, HostQPN: roce.QPN(m.QPN), AddPSN: m.AddPSN,
	}
	for _, r := range m.Regions {
		to.Regions = append(to.Regions, edge.Region{
			VA: uint64(r.VA), Length: r.Length, RKey: uint32(r.RKey), AddVA: uint64(r.AddVA), ToRKey: uint32(r.ToRKey),
		})
	}
	return to
}
