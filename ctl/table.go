package ctl

import (
	"context"
	"math"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/mft"
)

// changeTable changes the memory of a group with memory: table. The change is stored before it is
// published: a crash in between leaves a change that nobody was told of.
func (c *Controller) changeTable(ctx context.Context, name string, change *api.RegionChange) (api.Group, error) {
	unlock, _, err := c.groups.Names.Lock(ctx, name, "")
	if err != nil {
		return api.Group{}, err
	}
	defer unlock()
	c.groups.Lock()
	g := c.groups.Named(name)
	if g == nil || g.Published == nil || g.Table == nil {
		c.groups.Unlock()
		return api.Group{}, groups.ChangedMeanwhile(name)
	}
	next := *g // of this, only the table is used while other goroutines may change the group
	c.groups.Unlock()
	stored, err := tableChange(&next, change)
	if err != nil {
		return api.Group{}, err
	}
	if next.Table, err = next.Table.Apply(*stored); err != nil {
		return api.Group{}, api.Errorf(api.BadRequest, "%v", err)
	}
	end := next.TableEnd
	if g.Kept {
		if end, err = c.Store.AppendRegions(name, end, stored.Append(nil)); err != nil {
			return api.Group{}, groups.APIError(err)
		}
	}
	now, err := c.groups.PublishStored(g, next.Table, end)
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	// Much may have to be written, and what other goroutines do with groups must not wait for it.
	// The table and the file with its changes are those of who has locked the name.
	end = c.groups.Compact(&now)
	c.groups.Lock()
	g.TableEnd = end
	c.groups.Unlock()
	return c.view(g.Seen()), nil
}

// tableChange checks a change of the memory of a group with a table.
func tableChange(g *groups.Group, change *api.RegionChange) (*regions.Change, error) {
	c := &regions.Change{Receivers: g.File.ReceiverIDs()}
	for _, r := range change.Remove {
		v, found := mft.VirtualRegion{}, false
		if r.RKey <= math.MaxUint32 {
			v, found = g.Table.Find(uint64(r.VA), uint32(r.RKey))
		}
		if !found {
			return nil, noRegion(g.Name, r)
		}
		c.Remove = append(c.Remove, v)
	}
	for i := range change.Add {
		r := &change.Add[i]
		places, err := placesOf(g.File, r)
		if err != nil {
			return nil, err
		}
		c.Add = append(c.Add, regions.Range{
			VirtualRegion: mft.VirtualRegion{VA: uint64(r.VA), Length: r.Length, RKey: uint32(r.RKey)}, At: places,
		})
	}
	return c, nil
}
