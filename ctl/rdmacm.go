package ctl

import (
	"context"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
)

// CMUp starts to answer RDMA-CM at a group IP. The request is one item of the config key cm.
func (c *Controller) CMUp(ctx context.Context, request []byte) (api.CM, error) {
	config, err := readRequest(ctx, c, request, cm.ReadConfig)
	if err != nil {
		return api.CM{}, err
	}
	if err := c.cm.Up(config); err != nil {
		return api.CM{}, api.Errorf(api.BadRequest, "%v", err)
	}
	return listed(c.CMs().CMs, func(up api.CM) string { return up.GroupIP }, "RDMA-CM", config.GroupIP)
}

// CMDown ends the connections at a group IP, and stops to answer there.
func (c *Controller) CMDown(groupIP string) error { return takeDown(groupIP, c.cm.Down, "cm") }

// CMs lists the group IPs at which the box answers RDMA-CM, with their connections.
func (c *Controller) CMs() api.CMs {
	list := api.CMs{CMs: []api.CM{}}
	for _, s := range c.cm.List() {
		up := api.CM{GroupIP: s.GroupIP.String(), Port: s.Port, Ack: s.Ack.String(), Connections: []api.CMConnection{}, Refused: s.Counts.Named(), Memory: s.Memory.String(), Choose: s.Choose}
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
