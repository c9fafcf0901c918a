package groups

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// ChangeTable changes the memory of a group with memory: table, as change says, and returns what
// readers see then. The change is stored before it is published: a crash in between leaves a change
// that nobody was told of. The caller has locked the group's name.
func (s *Set) ChangeTable(name string, change func(*Version) (*regions.Change, error)) (*Version, error) {
	s.Lock()
	g := s.Named(name)
	if g == nil || g.Published == nil || g.Table == nil {
		s.Unlock()
		return nil, ChangedMeanwhile(name)
	}
	next := *g // only its table is used from here on: other goroutines may change the group meanwhile
	s.Unlock()
	made, err := change(&next.Version)
	if err != nil {
		return nil, err
	}
	if next.Table, err = next.Table.Apply(*made); err != nil {
		return nil, api.Errorf(api.BadRequest, "%v", err)
	}
	if next.Kept {
		if next.tableEnd, err = s.Store.AppendRegions(name, next.tableEnd, made.Append(nil)); err != nil {
			return nil, err
		}
	}
	now, err := s.publishStored(g, next.Table, next.tableEnd)
	if err != nil {
		return nil, err
	}
	// compact may write much, and other changes must not wait for it, so the Set is not locked.
	// Only a change that has locked the name touches the table and the file of its changes.
	end := s.compact(&now)
	s.Lock()
	g.tableEnd = end
	s.Unlock()
	return g.Seen(), nil
}

// publishStored publishes a group with a table that is stored: its file has end bytes now. It
// returns a copy of the group.
func (s *Set) publishStored(g *Group, table *regions.Table, end int64) (now Group, err error) {
	s.Lock()
	defer s.Unlock()
	before := g.Table.Len()
	if err := s.publishTable(g, table); err != nil {
		if g.Kept {
			err = errors.Join(err, s.Store.CutRegions(g.Name, g.tableEnd))
		}
		return now, err
	}
	s.AddEvent(api.Event{Kind: api.GroupUpdated, Group: g.Name, Cause: fmt.Sprintf("its memory has %d regions, and had %d",
		g.Table.Len(), before)})
	g.tableEnd = end
	return *g, nil
}

// publishTable publishes a group with another table.
func (s *Set) publishTable(g *Group, table *regions.Table) error {
	if g.Published == nil {
		return ChangedMeanwhile(g.Name)
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
	s.Changed(g)
	return nil
}

// spareBytes is how much more than twice its table a file of changes may have.
const spareBytes = 16 << 20

// compact writes the file of a group's regions anew when most of its changes have no effect any
// more. Until then it is only appended to, so a change does not cost what the whole table does.
// It returns how many bytes the file has then.
func (s *Set) compact(g *Group) (end int64) {
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
func (s *Set) recallTable(g *Group) error {
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

// RefuseUnplaced refuses a receiver that comes to a group whose memory is a table with ranges:
// where the receiver keeps them is not known.
func (g *Group) RefuseUnplaced(next *groupfile.File) error {
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
