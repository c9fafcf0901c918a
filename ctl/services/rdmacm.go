package services

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/perftest"
)

// CMUp starts to answer RDMA-CM at a group IP. The request is one item of the config key cm.
func (s *Services) CMUp(ctx context.Context, request []byte) (api.CM, error) {
	config, err := readRequest(ctx, s, request, cm.ReadConfig)
	if err != nil {
		return api.CM{}, err
	}
	if err := s.cmUp(config); err != nil {
		return api.CM{}, api.Errorf(api.BadRequest, "%v", err)
	}
	up, err := listed(s.CMs().CMs, func(up api.CM) string { return up.GroupIP }, "RDMA-CM", config.GroupIP)
	up.Notes = s.silent(ctx, config.Receivers)
	return up, err
}

// silent returns a sentence for each host that does not answer the kernel. A host may come later,
// so this is no error.
func (s *Services) silent(ctx context.Context, hosts []netip.Addr) (notes []string) {
	defer s.Control.Resolve(ctx, hosts)()
	for _, ip := range hosts {
		if hop := s.Hops.Hop(ip); !hop.Known() || hop.Silent {
			notes = append(notes, hop.Reason)
		}
	}
	return notes
}

// inBand lets the CM proxy understand the messages of perftest.
func inBand(groupIP, source netip.Addr, receivers []netip.Addr) cm.Talk {
	return perftest.NewInBand(groupIP, source, receivers)
}

func (s *Services) cmUp(config cm.Config) error {
	if config.Memory == cm.ByRegions {
		if err := s.refuseFar(config.Receivers); err != nil {
			return fmt.Errorf("RDMA-CM on %v: %w", config.GroupIP, err)
		}
	}
	return s.cm.Up(config)
}

// refuseFar refuses receivers behind other boxes, which do not hear of regions that come to a
// running group (assign): no connection to such a receiver could be made.
func (s *Services) refuseFar(receivers []netip.Addr) error {
	for _, host := range receivers {
		s.Hops.Track(host)
		boxes, err := s.Control.Behind(host)
		s.Hops.Untrack(host)
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
func (s *Services) CMDown(groupIP string) error { return takeDown(groupIP, s.cm.Down, "cm") }

// CMs lists the group IPs at which the box answers RDMA-CM, with their connections.
func (s *Services) CMs() api.CMs {
	list := api.CMs{CMs: []api.CM{}}
	for _, at := range s.cm.List() {
		up := api.CM{GroupIP: at.GroupIP.String(), Port: at.Port, Ack: at.Policy.Ack.String(), Connections: []api.CMConnection{}, Refused: at.Counts.Named(), Memory: at.Memory.String(), Choose: at.Choose}
		up.Allow, up.Receivers = texts(at.Allow), texts(at.Receivers)
		for i := range at.Connections {
			up.Connections = append(up.Connections, s.described(&at.Connections[i]))
		}
		list.CMs = append(list.CMs, up)
	}
	return list
}

// described is a connection for the operator. While it is established, its reason has what the box
// sees of its group: the sides do not know of each other's trouble.
func (s *Services) described(conn *cm.Connection) api.CMConnection {
	d := api.CMConnection{
		Source: conn.Source.String(), State: conn.State.String(), Reason: conn.Reason, Group: conn.Group, Receivers: conn.Receivers,
		HoldsRun: conn.HoldsRun, Ends: ended(conn.Ends), Unless: conn.Unless,
		Began: conn.Began.UTC().Truncate(time.Millisecond), Ended: ended(conn.Ended),
	}
	if conn.State != cm.Established {
		return d
	}
	if sees := s.Control.Sees(conn.Group); sees != "" && d.Reason != "" {
		d.Reason += "; " + sees
	} else if sees != "" {
		d.Reason = sees
	}
	return d
}
