package follow

import (
	"maps"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/dataplane"
)

// Change is a change of the interfaces that carry groups.
type Change struct {
	Add    []string           // names of interfaces
	Bounds []dataplane.Egress // of the queues of those, in their order
	Remove []string
}

// ChangePorts adds ports and removes ports, at once or not at all. Groups run on. A port behind
// which a group has a member is not removed. The error is an *api.Error.
func (n *Network) ChangePorts(change Change) error {
	n.refreshing.Lock()
	defer n.refreshing.Unlock()
	if err := n.needs(change.Remove); err != nil {
		return err
	}
	n.refresh() // see AddPorts of the Switch
	if err := n.Switch.AddPorts(change.Add, change.Bounds); err != nil {
		return api.Errorf(api.BadFile, "ports: %v", err)
	}
	if err := n.forgetPorts(change.Remove); err != nil { // a group came meanwhile
		n.Switch.RemovePorts(change.Add)
		return err
	}
	n.Switch.RemovePorts(change.Remove)
	n.refresh()
	return nil
}

// forgetPorts forgets ports, so that no group is planned over them any more.
func (n *Network) forgetPorts(names []string) error {
	n.Groups.Lock()
	defer n.Groups.Unlock()
	if err := n.needs(names); err != nil || len(names) == 0 {
		return err
	}
	left := maps.Clone(n.Groups.Ports())
	for _, name := range names {
		delete(left, name)
	}
	n.Groups.SetPorts(left)
	n.replanFor(n.NextHops.SetPorts(n.Groups.Ports().Open()))
	return nil
}

// needs returns an error that names the first group with a member behind one of these ports.
func (n *Network) needs(names []string) error {
	ports := n.Groups.SeenPorts()
	for _, g := range n.Groups.AllSeen() {
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
