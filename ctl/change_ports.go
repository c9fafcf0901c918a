package ctl

import (
	"maps"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/dataplane"
)

// PortChange is a change of the interfaces that carry groups.
type PortChange struct {
	Add    []string           // names of interfaces
	Bounds []dataplane.Egress // of the queues of those, in their order
	Remove []string
}

// ChangePorts adds ports and removes ports, at once or not at all. Groups run on. A port behind
// which a group has a member is not removed.
func (c *Controller) ChangePorts(change PortChange) error {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	if err := c.needs(change.Remove); err != nil {
		return err
	}
	c.refresh() // see AddPorts of the Switch
	if err := c.Switch.AddPorts(change.Add, change.Bounds); err != nil {
		return api.Errorf(api.BadFile, "ports: %v", err)
	}
	if err := c.forgetPorts(change.Remove); err != nil { // a group came meanwhile
		c.Switch.RemovePorts(change.Add)
		return err
	}
	c.Switch.RemovePorts(change.Remove)
	c.refresh()
	return nil
}

// forgetPorts forgets ports, so that no group is planned over them any more.
func (c *Controller) forgetPorts(names []string) error {
	c.groups.Lock()
	defer c.groups.Unlock()
	if err := c.needs(names); err != nil || len(names) == 0 {
		return err
	}
	left := maps.Clone(c.groups.Ports())
	for _, name := range names {
		delete(left, name)
	}
	c.groups.SetPorts(left)
	c.replanFor(c.NextHops.SetPorts(c.groups.Ports().Open()))
	return nil
}

// needs returns an error that names the first group with a member behind one of these ports.
func (c *Controller) needs(names []string) error {
	ports := c.groups.SeenPorts()
	for _, g := range c.groups.AllSeen() {
		for l := range g.Plan.Members() {
			for _, port := range names {
				if p, is := ports[port]; is && isBehind(g, l, &p) {
					return api.Errorf(api.BadFile, "ports: %s cannot be removed while %s of group %s is behind it; keep %s in the config, "+
						"or remove the group first", port, g.NameOf(l.Member), g.Name, port)
				}
			}
		}
	}
	return nil
}

// isBehind reports whether a member is behind a port: by the plan, or by what is published, which
// has the port under its number when the interface has another index and nothing newer could be
// published.
func isBehind(g *groups.Version, l *plan.Leg, p *dataplane.PortInfo) bool {
	if l.Hop.Known() && p.IfIndex != 0 && l.Hop.Port == p.IfIndex {
		return true
	}
	if g.Published == nil {
		return false
	}
	if l.Member.Role == groupfile.Source {
		return g.Published.Source.Port == p.ID
	}
	i := g.Published.FindPath(l.Member.IP, l.Member.RemoteQPN)
	return i >= 0 && g.Published.Paths[i].Port == p.ID
}

// ConfigEvent records that the config was reloaded, or why it was not.
func (c *Controller) ConfigEvent(kind api.EventKind, cause string) {
	c.groups.Events.Add(api.Event{Kind: kind, Cause: cause})
}
