package ctl

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// changeTable changes the memory of a group with memory: table. The change is stored before it is
// published: a crash in between leaves a change that nobody was told of.
func (c *Controller) changeTable(ctx context.Context, name string, change *api.RegionChange) (api.Group, error) {
	unlock, _, err := c.names.lock(ctx, name, "")
	if err != nil {
		return api.Group{}, err
	}
	defer unlock()
	c.book.Lock()
	g := c.named(name)
	if g == nil || g.Published == nil || g.Table == nil {
		c.book.Unlock()
		return api.Group{}, changedMeanwhile(name)
	}
	next := *g // of this, only the table is used while other goroutines may change the group
	c.book.Unlock()
	stored, err := tableChange(&next, change)
	if err != nil {
		return api.Group{}, err
	}
	if next.Table, err = next.Table.Apply(*stored); err != nil {
		return api.Group{}, api.Errorf(api.BadRequest, "%v", err)
	}
	end := next.tableEnd
	if g.Kept {
		if end, err = c.Store.AppendRegions(name, end, stored.Append(nil)); err != nil {
			return api.Group{}, apiError(err)
		}
	}
	now, err := c.publishStored(g, next.Table, end)
	if err != nil {
		return api.Group{}, apiError(err)
	}
	// Much may have to be written, and what other goroutines do with groups must not wait for it.
	// The table and the file with its changes are those of who has locked the name.
	end = c.compact(&now)
	c.book.Lock()
	g.tableEnd = end
	c.book.Unlock()
	return c.view(g.seenNow()), nil
}

// publishStored publishes a group with a table that is stored: its file has end bytes now. It
// returns a copy of the group.
func (s *book) publishStored(g *group, table *regions.Table, end int64) (now group, err error) {
	s.Lock()
	defer s.Unlock()
	before := g.Table.Len()
	if err := s.publishTable(g, table); err != nil {
		if g.Kept {
			err = errors.Join(err, s.Store.CutRegions(g.Name, g.tableEnd))
		}
		return now, err
	}
	s.tell(api.Event{Kind: api.GroupUpdated, Group: g.Name, Cause: fmt.Sprintf("its memory has %d regions, and had %d",
		g.Table.Len(), before)})
	g.tableEnd = end
	return *g, nil
}

// publishTable publishes a group with another table.
func (s *book) publishTable(g *group, table *regions.Table) error {
	if g.Published == nil {
		return changedMeanwhile(g.Name)
	}
	next := *g
	next.Table = table
	built, err := s.build(&next, &next.Plan)
	if err == nil {
		err = s.Switch.Replace(g.ID, built)
	}
	if err != nil {
		return aboutFile(g.File, err)
	}
	g.Table, g.Published = table, built
	s.changed(g)
	return nil
}

// spareBytes is how much more than twice its table a file of changes may have.
const spareBytes = 16 << 20

// compact writes the file of a group's regions anew when most of its changes have no effect any
// more. Until then it is only appended to, so a change does not cost what the whole table does.
// compact returns how many bytes the file has then.
func (s *book) compact(g *group) (end int64) {
	if !g.Kept || g.tableEnd <= 2*g.Table.Bytes()+spareBytes {
		return g.tableEnd
	}
	end, err := s.Store.PutRegions(g.Name, g.Table.Parts(g.File.ReceiverIDs()))
	if err != nil {
		s.Log.Error("could not write the regions of a group anew; the file with their changes stays, and grows",
			zap.String("group", g.Name), zap.Error(err))
		return g.tableEnd
	}
	return end
}

// recallTable reads the stored regions of a group with memory: table.
func (s *book) recallTable(g *group) error {
	if !g.File.Table {
		return nil
	}
	var history regions.History
	end, cut, err := s.Store.Regions(g.Name, history.Add)
	if err != nil {
		return err
	}
	if cut > 0 {
		s.Log.Warn("the last change of a group's regions was not complete when the box stopped, and was not confirmed; it is not made",
			zap.String("group", g.Name), zap.Int64("bytes", cut))
	}
	g.tableEnd = end
	if g.Table, err = history.Table(g.File.ReceiverIDs()); err != nil {
		return err
	}
	g.tableEnd = s.compact(g)
	return nil
}

// refuseUnplaced refuses a receiver that comes to a group whose memory is a table with ranges:
// where the receiver keeps them is not known.
func (g *group) refuseUnplaced(next *groupfile.File) error {
	if g.Table == nil || g.Table.Len() == 0 {
		return nil
	}
	for i := range next.Receivers {
		if m := &next.Receivers[i]; g.Wanted.Receiver(m.ID()) < 0 {
			return yamldoc.Errorf(m.Line, "the member at %v would join, and where it keeps the %d regions of the group is not known; "+
				"remove the regions first (rocast region rm), or the group, and create it again with this member", m.IP, g.Table.Len())
		}
	}
	return nil
}

// tableChange checks a change of the memory of a group with a table.
func tableChange(g *group, change *api.RegionChange) (*regions.Change, error) {
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
