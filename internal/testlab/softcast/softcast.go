// Package softcast is a lab whose hosts copy files: a box with rocastd (Lab), and rocast-cp with
// its transport for hosts with soft NICs (Transport). That is a member of a group that hosts make,
// with a queue pair of internal/rnic. It is what librocast is for hosts with real NICs, except that
// it never falls back.
package softcast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/host/copying"
	"github.com/rocast/rocast/host/copying/program"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// Transport is the transport of a host, in the namespace of the process.
type Transport struct{}

// policy lets the others go on when a receiver dies.
const policy = "evict=true,on-fatal=evict,silent-after=3s"

const (
	pathMTU = 1024
	buffers = 4
)

// member is a host in a group.
type member struct {
	*endpoint.Endpoint
	qp      *endpoint.QP
	host    *client.Host
	group   string
	buffers [][]byte
	others  atomic.Pointer[[]api.HostMember]
	ended   context.Context // its cause is why
	end     context.CancelCauseFunc
	tasks   sync.WaitGroup
}

// local finds the address by which a host reaches the box, and its interface.
func local(box string) (netip.Addr, string, error) {
	conn, err := net.Dial("udp", box)
	if err != nil {
		return netip.Addr{}, "", err
	}
	defer conn.Close()
	ip := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	links, err := net.Interfaces()
	if err != nil {
		return ip, "", err
	}
	for _, l := range links {
		addresses, err := l.Addrs()
		if err != nil {
			return ip, "", err
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == ip {
				return ip, l.Name, nil
			}
		}
	}
	return ip, "", fmt.Errorf("no interface has %v", ip)
}

// join makes a queue pair, joins the group with it, and waits until the group is clear to send.
func join(ctx context.Context, role string, m program.Membership) (_ *member, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Wait)
	defer cancel()
	ip, link, err := local(m.Box)
	if err != nil {
		return nil, err
	}
	box, err := netip.ParseAddrPort(m.Box)
	if err != nil {
		return nil, err
	}
	x := &member{host: client.NewHost(box, ip), group: m.Group}
	x.ended, x.end = context.WithCancelCause(context.Background())
	if x.Endpoint, err = endpoint.Open(link, ip); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	own := client.HostRequest{
		Role: role, QPN: 2 + rand.Uint32N(1<<23), PSN: rand.Uint32N(1 << 24), Members: m.Members, MTU: pathMTU, Policy: policy,
	}
	if x.qp, err = x.NewQP(bed.QP(roce.QPN(own.QPN), roce.PSN(own.PSN), pathMTU)); err != nil {
		return nil, err
	}
	for range buffers {
		x.buffers = append(x.buffers, make([]byte, copying.MessageBytes))
	}
	g, err := x.host.Join(ctx, m.Group, own)
	if err != nil {
		return nil, err
	}
	peer, err := netip.ParseAddr(g.IP)
	if err != nil {
		return nil, err
	}
	if role == "receiver" {
		for i, b := range x.buffers {
			if err := x.qp.PostRecv(uint64(i), b); err != nil {
				return nil, err
			}
		}
	}
	if err := x.qp.Connect(ctx, endpoint.Peer{IP: peer, QPN: roce.QPN(g.QPN), PSN: roce.PSN(own.PSN)}); err != nil {
		return nil, err
	}
	if g, err = x.host.Ready(ctx, m.Group, own); err != nil {
		return nil, err
	}
	x.others.Store(&g.Members)
	x.tasks.Go(func() { x.follow(own, g) })
	return x, nil
}

// follow keeps the membership, and notices that the group ends.
func (x *member) follow(own client.HostRequest, g client.HostGroup) {
	for x.ended.Err() == nil {
		next, err := x.host.Follow(x.ended, x.group, own, g.Version)
		switch {
		case err != nil:
			x.end(err)
		case next.State == api.HostEnded:
			x.end(errors.New(next.Reason))
		case next.Degraded:
			x.end(errors.New("the box says: " + next.Reason))
		}
		if len(next.Members) > 0 {
			x.others.Store(&next.Members)
		}
		g = next
	}
}

// Local returns the address of the host.
func (x *member) Local() netip.Addr { return x.IP() }

// Has reports whether a host is another member of the group.
func (x *member) Has(ip netip.Addr) bool {
	return ip != x.IP() && slices.ContainsFunc(*x.others.Load(), func(m api.HostMember) bool { return m.IP == ip.String() })
}

// Close leaves the group.
func (x *member) Close() error {
	x.end(errors.New("the group was left"))
	x.tasks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if x.qp != nil {
		_ = x.host.Leave(ctx, x.group) // it may have ended
		x.qp.Destroy()
	}
	return x.Endpoint.Close()
}

// PostSend posts a message.
func (x *member) PostSend(id uint64, message []byte) error { return x.qp.PostSend(id, message) }

// PostRecv posts a receive.
func (x *member) PostRecv(id uint64, buffer []byte) error { return x.qp.PostRecv(id, buffer) }

// Completion takes a completion, until ctx or the membership ends.
func (x *member) Completion(ctx context.Context) (id uint64, bytes int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(x.ended, func() { cancel(context.Cause(x.ended)) })()
	c, err := x.qp.Wait(ctx)
	switch {
	case ctx.Err() != nil:
		return 0, 0, context.Cause(ctx)
	case err != nil:
		return 0, 0, err
	case c.Status != rnic.Success:
		return 0, 0, fmt.Errorf("a work request ended with %q", c.Status)
	}
	return c.WRID, int(c.Bytes), nil
}

// sending is a membership of a source.
type sending struct {
	*member
	copying.Sender
}

// Send joins as the source.
func (Transport) Send(ctx context.Context, m program.Membership) (program.Sending, error) {
	x, err := join(ctx, "source", m)
	if err != nil {
		return nil, err
	}
	return sending{x, copying.NewSender(x, x.buffers)}, nil
}

// receiving is a membership of a receiver.
type receiving struct {
	*member
	copying.Inbox
}

// Receive joins as a receiver.
func (Transport) Receive(ctx context.Context, m program.Membership) (program.Receiving, error) {
	x, err := join(ctx, "receiver", m)
	if err != nil {
		return nil, err
	}
	return receiving{x, copying.NewInbox(x, x.buffers)}, nil
}
