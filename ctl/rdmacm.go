package ctl

import (
	"context"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// CMUp starts to answer RDMA-CM at a group IP. The request is one item of the config key cm.
func (c *Controller) CMUp(ctx context.Context, request []byte) (api.CM, error) {
	var config cm.Config
	if err := c.alone(ctx, func() (err error) { config, err = parseRequest(request, cm.ReadConfig); return err }); err != nil {
		return api.CM{}, err
	}
	if err := c.cm.Up(config); err != nil {
		return api.CM{}, api.Errorf(api.BadRequest, "%v", err)
	}
	for _, up := range c.CMs().CMs {
		if up.GroupIP == config.GroupIP.String() {
			return up, nil
		}
	}
	return api.CM{}, api.Errorf(api.NotFound, "RDMA-CM on %v was taken down meanwhile", config.GroupIP)
}

// parseRequest reads a request whose text is one item of a key of the config.
func parseRequest[C any](request []byte, read func(yamldoc.Value) (C, error)) (config C, err error) {
	document, err := yamldoc.Parse(request, "the request")
	if err == nil {
		config, err = read(document)
	}
	return config, withoutLine(err)
}

// CMDown ends the connections at a group IP, and stops to answer there.
func (c *Controller) CMDown(groupIP string) error { return takeDown(groupIP, c.cm.Down, "cm") }

// takeDown stops the service at a group IP. noun is the command that lists what is up.
func takeDown(groupIP string, down func(netip.Addr) error, noun string) error {
	ip, err := netip.ParseAddr(groupIP)
	if err != nil {
		return api.Errorf(api.BadRequest, "%q is not an IP address; write one such as 10.77.0.100", groupIP)
	}
	if err := down(ip); err != nil {
		return api.Errorf(api.NotFound, "%v; rocast %s ls lists what is up", err, noun)
	}
	return nil
}

// CMs lists the group IPs at which the box answers RDMA-CM, with their connections.
func (c *Controller) CMs() api.CMs {
	list := api.CMs{CMs: []api.CM{}}
	for _, s := range c.cm.List() {
		up := api.CM{GroupIP: s.GroupIP.String(), Port: s.Port, Ack: s.Ack.String(), Connections: []api.CMConnection{}, Refused: s.Counts.Named()}
		if s.Memory {
			up.Memory = cm.PrivateData
		}
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

func texts[T interface{ String() string }](values []T) (l []string) {
	for _, v := range values {
		l = append(l, v.String())
	}
	return l
}

func ended(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC().Truncate(time.Millisecond)
	return &at
}
