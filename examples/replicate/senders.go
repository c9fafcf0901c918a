package main

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
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// send posts an item, and waits until the peer has acknowledged it: with a group, until all
// receivers have.
func send(ctx context.Context, qp *endpoint.QP, n uint64) error {
	if err := qp.PostSend(n, message(n)); err != nil {
		return err
	}
	c, err := qp.Wait(ctx)
	if err == nil && c.Status != rnic.Success {
		err = fmt.Errorf("item %d: %v", n, c.Status)
	}
	return err
}

// source returns a queue pair of the sender. It gives up after a few timeouts of 67 ms, unless
// retries is forever.
func source(host *bed.Host, qpn roce.QPN, psn roce.PSN, retries uint8) (*endpoint.QP, error) {
	settings := bed.QP(qpn, psn, pathMTU)
	settings.RetryCount = retries
	return host.RNIC.NewQP(settings)
}

// one sends each item to every replica by a connection of its own.
type one struct {
	qps   []*endpoint.QP
	ports []*port
}

const (
	oneQPN  = 0x100 // of the connections: the first of both ends
	forever = 7
)

func connectEach(ctx context.Context, from *bed.Host, replicas []*replica) (*one, error) {
	o := &one{}
	for i, r := range replicas {
		qpn := roce.QPN(oneQPN + i)
		p, err := r.listen(qpn, 0)
		if err != nil {
			return nil, err
		}
		o.ports = append(o.ports, p)
		qp, err := source(from, qpn, 0, forever)
		if err != nil {
			return nil, err
		}
		o.qps = append(o.qps, qp)
		if err := errors.Join(p.connect(ctx, from.IP, qpn), qp.Connect(ctx, endpoint.Peer{IP: r.host.IP, QPN: qpn})); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Send sends an item to all replicas at once. The queue pairs try for ever, so only ctx ends it.
func (o *one) Send(ctx context.Context, n uint64) error {
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

func (o *one) close() {
	for _, p := range o.ports {
		p.close()
	}
}

// group sends each item once, to a group. Each time it is opened it has other queue pairs: nothing
// that was sent to the old ones can reach the new ones.
type group struct {
	api      *client.Client
	name     string
	ip       netip.Addr
	host     *bed.Host
	replicas []*replica
	session  int
	patient  atomic.Bool // the source's next queue pairs try for ever
	qp       *endpoint.QP
	ports    []*port
}

// Open creates the group. In this program source and replicas are one process; others tell each
// other the numbers of their queue pairs over a TCP connection.
func (g *group) Open(ctx context.Context) error {
	g.session++
	qpn := roce.QPN(0x1000 * g.session)
	psn := roce.PSN(rand.Uint32N(1 << 24))
	for i, r := range g.replicas {
		p, err := r.listen(qpn+1+roce.QPN(i), roce.PSN(rand.Uint32N(1<<24)))
		if err != nil {
			return err
		}
		g.ports = append(g.ports, p)
	}
	if _, err := g.api.RemoveGroup(ctx, g.name); err != nil && client.KindOf(err) != api.NotFound {
		return err
	}
	if _, err := g.api.CreateGroup(ctx, g.file(qpn, psn)); err != nil {
		return err
	}
	for i, p := range g.ports {
		if err := p.connect(ctx, g.ip, qpn); err != nil {
			return err
		}
		first := uint32(p.psn)
		_, err := g.api.Confirm(ctx, g.name, client.Confirmation{
			IP: g.replicas[i].host.IP.String(), QPN: uint32(p.qpn), State: p.qp.State().String(), PSN: &first, RemoteQPN: uint32(qpn), MTU: pathMTU,
		})
		if err != nil {
			return err
		}
	}
	if _, err := g.api.WaitClear(ctx, g.name); err != nil {
		return err
	}
	retries := uint8(3)
	if g.patient.Load() {
		retries = forever
	}
	var err error
	if g.qp, err = source(g.host, qpn, psn, retries); err != nil {
		return err
	}
	if err := g.qp.Connect(ctx, endpoint.Peer{IP: g.ip, QPN: qpn}); err != nil {
		return err
	}
	return send(ctx, g.qp, 0)
}

// file describes the group. Each member waits for its program's confirmation.
func (g *group) file(qpn roce.QPN, psn roce.PSN) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %d\ndegraded-after: 1s\nmembers:\n", g.name, g.ip, qpn, pathMTU)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", g.host.IP, qpn, psn)
	for i, p := range g.ports {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, confirm: true}\n", g.replicas[i].host.IP, p.qpn, p.psn)
	}
	return []byte(b.String())
}

func (g *group) Send(ctx context.Context, n uint64) error { return send(ctx, g.qp, n) }

// Close destroys the queue pairs of the replicas, so that nothing arrives by the group any more.
// The group itself is removed if the daemon answers, and otherwise by the next Open.
func (g *group) Close(ctx context.Context) error {
	if g.qp != nil {
		g.qp.Destroy()
	}
	for _, p := range g.ports {
		p.close()
	}
	g.qp, g.ports = nil, nil
	_, _ = g.api.RemoveGroup(ctx, g.name)
	return nil
}
