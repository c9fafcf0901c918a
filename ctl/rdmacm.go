package ctl

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/perftest"
)

// CMUp starts to answer RDMA-CM at a group IP. The request is one item of the config key cm.
func (c *Controller) CMUp(ctx context.Context, request []byte) (api.CM, error) {
	config, err := readRequest(ctx, c, request, cm.ReadConfig)
	if err != nil {
		return api.CM{}, err
	}
	if err := c.cmUp(config); err != nil {
		return api.CM{}, api.Errorf(api.BadRequest, "%v", err)
	}
	up, err := listed(c.CMs().CMs, func(up api.CM) string { return up.GroupIP }, "RDMA-CM", config.GroupIP)
	up.Notes = c.silent(ctx, config.Receivers)
	return up, err
}

// silent returns a sentence for each host that does not answer the kernel. A host may come later,
// so this is no error.
func (c *Controller) silent(ctx context.Context, hosts []netip.Addr) (notes []string) {
	members := make([]groupfile.Member, len(hosts))
	for i, ip := range hosts {
		members[i].IP = ip
	}
	defer c.settle(ctx, members)()
	for _, ip := range hosts {
		if hop := c.NextHops.Hop(ip); !hop.Known() || hop.Silent {
			notes = append(notes, hop.Reason)
		}
	}
	return notes
}

// inBand lets the CM proxy understand the messages of perftest.
func inBand(groupIP, source netip.Addr, receivers []netip.Addr) cm.Talk {
	return perftest.NewInBand(groupIP, source, receivers)
}

func (c *Controller) cmUp(config cm.Config) error {
	if config.Memory == cm.ByRegions {
		if err := c.refuseFar(config.Receivers); err != nil {
			return fmt.Errorf("RDMA-CM on %v: %w", config.GroupIP, err)
		}
	}
	return c.cm.Up(config)
}

// refuseFar refuses receivers behind other boxes, which do not hear of regions that come to a
// running group (assign): no connection to such a receiver could be made.
func (c *Controller) refuseFar(receivers []netip.Addr) error {
	for _, host := range receivers {
		c.NextHops.Track(host)
		boxes, err := c.through(&groupfile.Member{IP: host}, nil)
		c.NextHops.Untrack(host)
		if err != nil {
			return err
		}
		if len(boxes) > 0 {
			return fmt.Errorf("memory is %v and receiver %v is behind box %s, which hears of a group's memory only when the group begins; "+
				"leave that receiver out, or let the receivers say their memory when they accept (%v)", cm.ByRegions, host, boxes[0], cm.PrivateData)
		}
	}
	return nil
}

// CMDown ends the connections at a group IP, and stops to answer there.
func (c *Controller) CMDown(groupIP string) error { return takeDown(groupIP, c.cm.Down, "cm") }

// CMs lists the group IPs at which the box answers RDMA-CM, with their connections.
func (c *Controller) CMs() api.CMs {
	list := api.CMs{CMs: []api.CM{}}
	for _, s := range c.cm.List() {
		up := api.CM{GroupIP: s.GroupIP.String(), Port: s.Port, Ack: s.Policy.Ack.String(), Connections: []api.CMConnection{}, Refused: s.Counts.Named(), Memory: s.Memory.String(), Choose: s.Choose}
		up.Allow, up.Receivers = texts(s.Allow), texts(s.Receivers)
		for _, conn := range s.Connections {
			up.Connections = append(up.Connections, api.CMConnection{
				Source: conn.Source.String(), State: conn.State.String(), Reason: conn.Reason, Group: conn.Group, Receivers: conn.Receivers,
				Began: conn.Began.UTC().Truncate(time.Millisecond), Ended: ended(conn.Ended),
			})
		}
		list.CMs = append(list.CMs, up)
	}
	return list
}
