package ctl

import (
	"context"
	"math"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/mft"
)

// changeTable changes the memory of a group with memory: table.
func (c *Controller) changeTable(ctx context.Context, name string, change *api.RegionChange) (api.Group, error) {
	unlock, _, err := c.groups.Names.Lock(ctx, name, "")
	if err != nil {
		return api.Group{}, err
	}
	defer unlock()
	v, err := c.groups.ChangeTable(name, func(v *groups.Version) (*regions.Change, error) { return tableChange(v, change) })
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	return c.view(v), nil
}

// tableChange checks a change of the memory of a group with a table.
func tableChange(v *groups.Version, change *api.RegionChange) (*regions.Change, error) {
	c := &regions.Change{Receivers: v.File.ReceiverIDs()}
	for _, r := range change.Remove {
		at, found := mft.VirtualRegion{}, false
		if r.RKey <= math.MaxUint32 {
			at, found = v.Table.Find(uint64(r.VA), uint32(r.RKey))
		}
		if !found {
			return nil, noRegion(v.Name, r)
		}
		c.Remove = append(c.Remove, at)
	}
	for i := range change.Add {
		r := &change.Add[i]
		kept, err := whereKept(v.File, r)
		if err != nil {
			return nil, err
		}
		c.Add = append(c.Add, regions.Range{
			VirtualRegion: mft.VirtualRegion{VA: uint64(r.VA), Length: r.Length, RKey: uint32(r.RKey)}, At: kept,
		})
	}
	return c, nil
}
