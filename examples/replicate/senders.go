package replicate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
)

// send sends an item, and waits until the peer has acknowledged it: with a group, until all
// receivers have.
func send(ctx context.Context, qp QueuePair, n uint64) error {
	if err := qp.Send(ctx, message(n)); err != nil {
		return fmt.Errorf("item %d: %w", n, err)
	}
	return nil
}

// Each sends each item to every replica by a connection of its own.
type Each struct {
	qps   []QueuePair
	ports []*port
}

const (
	oneQPN  = 0x100 // of the connections: the first of both ends
	forever = 7
)

// ConnectEach connects a sender with each replica. Close ends the connections.
func ConnectEach(ctx context.Context, from Device, replicas []*Replica) (*Each, error) {
	o := &Each{}
	for i, r := range replicas {
		qpn := roce.QPN(oneQPN + i)
		p, err := r.listen(qpn, 0)
		if err != nil {
			return nil, err
		}
		o.ports = append(o.ports, p)
		qp, err := from.Open(Settings{QPN: qpn, MTU: pathMTU, Retries: forever})
		if err != nil {
			return nil, err
		}
		o.qps = append(o.qps, qp)
		if err := errors.Join(p.connect(ctx, from.IP(), qpn), qp.Connect(ctx, Peer{IP: r.device.IP(), QPN: qpn})); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Send sends an item to all replicas at once. The queue pairs try for ever, so only ctx ends it.
func (o *Each) Send(ctx context.Context, n uint64) error {
	errs := make(chan error)
	for _, qp := range o.qps {
		go func() { errs <- send(ctx, qp, n) }()
	}
	var all error
	for range o.qps {
		all = errors.Join(all, <-errs)
	}
	return all
}

// Close ends the connections.
func (o *Each) Close() {
	for _, p := range o.ports {
		p.close()
	}
}

// Group sends each item once, to a group. Each time it is opened it has other queue pairs: nothing
// that was sent to the old ones can reach the new ones.
type Group struct {
	API      *client.Client
	Name     string
	IP       netip.Addr
	Source   Device
	Replicas []*Replica
	Patient  atomic.Bool // the source's next queue pairs try for ever, and not a few times

	session int
	qp      QueuePair
	ports   []*port
}

// Open implements client.GroupSender: it creates the group. Here source and replicas are one
// process; others tell each other the numbers of their queue pairs over a TCP connection.
func (g *Group) Open(ctx context.Context) error {
	g.session++
	qpn := roce.QPN(0x1000 * g.session)
	psn := roce.PSN(rand.Uint32N(1 << 24))
	for i, r := range g.Replicas {
		p, err := r.listen(qpn+1+roce.QPN(i), roce.PSN(rand.Uint32N(1<<24)))
		if err != nil {
			return err
		}
		g.ports = append(g.ports, p)
	}
	if _, err := g.API.RemoveGroup(ctx, g.Name); err != nil && client.KindOf(err) != api.NotFound {
		return err
	}
	if _, err := g.API.CreateGroup(ctx, g.file(qpn, psn)); err != nil {
		return err
	}
	for i, p := range g.ports {
		if err := p.connect(ctx, g.IP, qpn); err != nil {
			return err
		}
		first := uint32(p.psn)
		_, err := g.API.Confirm(ctx, g.Name, client.Confirmation{
			IP: g.Replicas[i].device.IP().String(), QPN: uint32(p.qpn), State: p.qp.State(), PSN: &first, RemoteQPN: uint32(qpn), MTU: pathMTU,
		})
		if err != nil {
			return err
		}
	}
	if _, err := g.API.WaitClear(ctx, g.Name); err != nil {
		return err
	}
	retries := uint8(3)
	if g.Patient.Load() {
		retries = forever
	}
	var err error
	if g.qp, err = g.Source.Open(Settings{QPN: qpn, PSN: psn, MTU: pathMTU, Retries: retries}); err != nil {
		return err
	}
	if err := g.qp.Connect(ctx, Peer{IP: g.IP, QPN: qpn}); err != nil {
		return err
	}
	return send(ctx, g.qp, 0)
}

// file describes the group. Each member waits for its program's confirmation.
func (g *Group) file(qpn roce.QPN, psn roce.PSN) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %d\ndegraded-after: 1s\nmembers:\n", g.Name, g.IP, qpn, pathMTU)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", g.Source.IP(), qpn, psn)
	for i, p := range g.ports {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, confirm: true}\n", g.Replicas[i].device.IP(), p.qpn, p.psn)
	}
	return []byte(b.String())
}

// Send implements client.GroupSender.
func (g *Group) Send(ctx context.Context, n uint64) error { return send(ctx, g.qp, n) }

// Close implements client.GroupSender: it destroys the queue pairs of the replicas, so that nothing
// arrives by the group any more. The group itself is removed if the daemon answers, and otherwise
// by the next Open.
func (g *Group) Close(ctx context.Context) error {
	if g.qp != nil {
		g.qp.Destroy()
	}
	for _, p := range g.ports {
		p.close()
	}
	g.qp, g.ports = nil, nil
	_, _ = g.API.RemoveGroup(ctx, g.Name)
	return nil
}
