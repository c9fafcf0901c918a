// Package beside puts a box beside the switch of a lab, with one port, and edges at hosts. The
// switch replicates multicast, and the box's port has a rate towards it.
package beside

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/slow"
)

// Box is a box with one port at the switch that the hosts of a bed are on too, which snoops, and
// the edges at hosts.
type Box struct {
	NS   *netns.NS
	Port netns.Link

	link  *slow.Link
	edges []*edges.Edge
}

var (
	boxIP = netip.AddrFrom4([4]byte{10, 77, 3, 10})
	asks  = netip.AddrPortFrom(boxIP, 7472)
)

// SharesCopies are the lines of a config with which such a box shares copies.
var SharesCopies = fmt.Sprintf("hosts: {listen: %v, groupIPs: [10.77.3.200]}\nedges: {addresses: [239.77.0.0/28]}\n", asks)

// Put puts a box beside the switch of a bed. The rate is in bits per second. Close removes
// the box, before the bed.
func Put(at *bed.Bed, rate int) (_ *Box, err error) {
	b := &Box{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := edges.Snoop(at.Box, bed.Bridge); err != nil {
		return nil, err
	}
	const uplink = "box"
	if b.NS, b.Port, err = at.AddStick(uplink, boxIP); err != nil {
		return nil, err
	}
	b.link, err = slow.Attach(netns.Link{NS: at.Box, Name: uplink}, rate)
	return b, err
}

// StartEdge starts an edge at a host, which is the program at this path.
func (b *Box) StartEdge(program string, at *bed.Host) error {
	e, err := edges.New(program, at.NS)
	if err != nil {
		return err
	}
	b.edges = append(b.edges, e)
	return e.Start(asks)
}

// Sent returns how many bytes have left the port.
func (b *Box) Sent() (uint64, error) { return b.link.Carried() }

// patience bounds how long edges take to map what a box shares.
const patience = 30 * time.Second

// Sharing returns when one leg of a group brings copies to so many receivers. ask describes the
// group.
func Sharing(ctx context.Context, receivers int, ask func(context.Context) (api.Group, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		g, err := ask(ctx)
		if err != nil {
			return fmt.Errorf("wait until %d receivers share the copies: %w", receivers, err)
		}
		if len(g.Shares) == 1 && g.Shares[0].Working == receivers {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d receivers do not share the copies after %v: %+v %s", receivers, patience, g.Shares, g.CopiesOwn)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Close ends the edges and removes the box.
func (b *Box) Close() error {
	var errs []error
	for _, e := range b.edges {
		errs = append(errs, e.Close())
	}
	if b.NS != nil {
		errs = append(errs, b.NS.Close())
	}
	return errors.Join(errs...)
}
