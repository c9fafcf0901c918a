package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/follow"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// Groups lists the groups.
func (c *Controller) Groups() api.Groups {
	list := api.Groups{Groups: []api.GroupSummary{}}
	for _, v := range c.groups.AllSeen() {
		list.Groups = append(list.Groups, view.Summary(v))
	}
	if c.shared != nil {
		list.Groups = append(list.Groups, c.shared.AllElsewhere()...)
	}
	view.Sort(list.Groups)
	return list
}

// Group describes a group. The answer contains R_Keys.
func (c *Controller) Group(name string) (api.Group, error) {
	if v := c.groups.Seen(name); v != nil {
		return c.view(v), nil
	}
	if s, ok := c.elsewhere(name); ok {
		return api.Group{GroupSummary: s}, nil
	}
	return api.Group{}, groups.NoGroup(name)
}

// elsewhere describes a group that another box carries.
func (c *Controller) elsewhere(name string) (s api.GroupSummary, ok bool) {
	if c.shared == nil {
		return s, false
	}
	return c.shared.Elsewhere(name)
}

// view describes a group as it is in the data path now.
func (c *Controller) view(v *groups.Version) api.Group {
	var b view.DataPath
	if v.Published != nil {
		b.State, _ = c.Switch.GroupState(v.ID)
		if v.Policy().Repair == feedback.RepairOff {
			b.CannotRetain = c.Switch.Retains(v.File.Policy, v.File.PathMTU)
		}
	}
	return view.Group(v, b, c.groups.SeenPorts())
}

// Confirm records that a member's program says that its QP is ready.
func (c *Controller) Confirm(name string, request []byte) (api.Group, error) {
	var ready api.Confirmation
	decoder := json.NewDecoder(bytes.NewReader(request))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&ready); err != nil {
		return api.Group{}, api.Errorf(api.BadRequest, "the confirmation cannot be read (%v); write ip, qpn and state", err)
	}
	if c.groups.Seen(name) == nil {
		if s, ok := c.elsewhere(name); ok {
			return api.Group{}, api.Errorf(api.BadRequest, "group %s is carried by box %s; confirm there", name, s.Root)
		}
	}
	if err := c.watch.Confirm(name, &ready); err != nil {
		return api.Group{}, err
	}
	return c.Group(name)
}

// Tree describes a group at all boxes that carry it.
func (c *Controller) Tree(ctx context.Context, name string) (api.Tree, error) {
	return c.Branches.Tree(ctx, name)
}

// Regions lists at most count regions of a group's memory, beginning with the one of index from.
func (c *Controller) Regions(name string, from, count int) (api.Regions, error) {
	if v := c.groups.Seen(name); v != nil && v.Table != nil {
		return view.TableRegions(v.Table, v.File, from, count), nil
	}
	v, err := c.Group(name)
	if err != nil {
		return api.Regions{}, err
	}
	return view.FileRegions(&v, from, count), nil
}

// Traffic returns the totals of this box's groups, first of those that are not ready.
func (c *Controller) Traffic() api.Traffic {
	now, names := time.Now(), view.ByTrouble(c.groups.AllSeen())
	shown := names[:min(len(names), api.MaxTraffic)]
	t := api.Traffic{At: now, Groups: []api.GroupTraffic{}, More: len(names) - len(shown)}
	for _, name := range shown {
		if g, ok := c.trafficOf(name, time.Now()); ok { // else it was removed meanwhile
			t.Groups = append(t.Groups, g)
		}
	}
	return t
}

// GroupTraffic is Traffic for one group.
func (c *Controller) GroupTraffic(name string) (api.Traffic, error) {
	now := time.Now()
	g, ok := c.trafficOf(name, now)
	if !ok {
		return api.Traffic{}, groups.NoGroup(name)
	}
	return api.Traffic{At: now, Groups: []api.GroupTraffic{g}}, nil
}

// trafficOf asks the group's worker for the totals. ok is false if there is no such group.
func (c *Controller) trafficOf(name string, now time.Time) (t api.GroupTraffic, ok bool) {
	v := c.groups.Seen(name)
	if v == nil {
		return t, false
	}
	var state dataplane.GroupState
	if v.Published != nil {
		state, _ = c.Switch.GroupState(v.ID)
	}
	return view.Traffic(v, state, c.groups.Events.Counts(name), now), true
}

// ChangePorts changes the interfaces that carry groups.
func (c *Controller) ChangePorts(change follow.Change) error { return c.network.ChangePorts(change) }

// PortList describes the ports.
func (c *Controller) PortList() api.Ports { return view.Ports(c.Switch.Ports()) }

// Stats returns the sums of the counters of all groups, and what is retained for repair.
func (c *Controller) Stats() api.Stats {
	m := c.Switch.RepairMemory()
	return api.Stats{
		Counters: view.Counters(c.Switch.Counters()),
		Retained: api.Retained{Packets: m.Packets, Buffers: m.Buffers, Room: m.Room},
	}
}

// BoundsMet returns how often each bound was met.
func (c *Controller) BoundsMet() map[bounds.Bound]uint64 { return c.Bounds.Counts() }

// Status reports whether the box works. It asks no worker, and waits for nothing. If a worker is
// stuck, changes of groups may wait for that worker, so what readers see of the ports and groups
// may be old. Status leaves them out then.
func (c *Controller) Status() api.Status { return c.statusAt(time.Now()) }

func (c *Controller) statusAt(now time.Time) api.Status {
	b := view.Box{Started: c.started, Workers: c.Workers, Stuck: c.pulse.alive(now), Ports: c.groups.SeenPorts(), Groups: c.groups.AllSeen(), Strays: c.watch.Strays()}
	if c.shared != nil {
		b.StoreAway = c.shared.Desired.Away()
	}
	b.Services, b.Notes = c.Services.Status(now)
	if bad := c.badGroupIPs.Load(); bad != nil {
		b.BadGroupIPs = *bad
	}
	return view.Status(now, &b)
}

// Tally says how many groups and ports the daemon has.
type Tally struct {
	Groups      int // in this box
	Ports, Open int
}

// Tally counts groups and ports. It asks no worker and does not wait, because the daemon's sign of
// life to systemd is made from it.
func (c *Controller) Tally() Tally {
	ports := c.groups.SeenPorts()
	return Tally{Groups: len(c.groups.SeenNames()), Ports: len(ports), Open: len(ports.Open())}
}

// Events returns the events after a cursor. If there is none, it waits for one until ctx is done.
func (c *Controller) Events(ctx context.Context, at api.Cursor, group string) api.Events {
	return c.groups.Events.Wait(ctx, at, group)
}

// ConfigEvent records that the config was reloaded, or why it was not.
func (c *Controller) ConfigEvent(kind api.EventKind, cause string) {
	c.groups.Events.Add(api.Event{Kind: kind, Cause: cause})
}
