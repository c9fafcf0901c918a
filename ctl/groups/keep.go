package groups

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/groupfile"
)

// SaveChronicle stores the member state that a restart needs. The caller has locked the Set.
func (s *Set) SaveChronicle(g *Group) error {
	if !g.Kept {
		g.unkept = false
		return nil
	}
	g.unkept = true
	text, err := g.Past.Text()
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", g.Name, err)
	}
	if s.Members != nil && g.Branch == nil {
		s.Members(g.Name)
	}
	if err := s.Store.PutState(g.Name, text); err != nil {
		return err
	}
	g.unkept = false
	return nil
}

// keepChronicle calls SaveChronicle for a running group. It logs an error and continues: a disk
// failure must not stop a running group. The next look at the group tries again.
func (s *Set) keepChronicle(g *Group) {
	err := s.SaveChronicle(g)
	if err != nil && !g.unkeptInLog {
		s.Log.Error("could not store the state of members; a crash would lose it, so rocastd tries again",
			zap.String("group", g.Name), zap.Error(err))
	}
	g.unkeptInLog = err != nil
}

// SaveTree stores the links of a group. The caller has locked the Set.
func (s *Set) SaveTree(g *Group) error {
	if !g.Kept {
		return nil
	}
	text, err := g.treeText()
	if err != nil {
		return err
	}
	return s.Store.PutTree(g.Name, text)
}

// KeepUp stores the chronicle if the disk lacks it. It is called after Observe and with every look,
// so a failure of the disk only delays it.
func (s *Set) KeepUp(g *Group) {
	if !g.unkept {
		return
	}
	s.show() // the data path has done it already, and the disk may take long
	s.keepChronicle(g)
}

// KeepAtStop stores the state of a group at a stop of the daemon, and reports whether the disk has
// all of it. If the files of a group could not be read, the disk keeps the state that it has.
func (s *Set) KeepAtStop(g *Group) (clean bool) {
	if g.Published != nil {
		s.Observe(g)
		if g.Past.OnlyJoin(g.File, g.Source) && s.RenewRecord(g) { // else a restart does not know where they join
			g.unkept = true
			s.Changed(g)
		}
	}
	if readable := g.Published != nil || s.hasFailed(g); readable && g.unkept {
		s.keepChronicle(g)
	}
	return !g.unkept
}

// keepNew stores a new group. Only the group's name is locked: nobody else knows the group yet.
func (s *Set) keepNew(g *Group, text []byte) error {
	if !g.Kept {
		return nil
	}
	state, err := g.Past.Text()
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", g.Name, err)
	}
	tree, err := g.treeText()
	if err == nil {
		err = errors.Join(s.Store.PutTree(g.Name, tree), s.Store.PutState(g.Name, state))
	}
	if err != nil {
		return err
	}
	// Another group of that name may have left its regions, if it could not be removed as a whole.
	if g.File.Table {
		g.tableEnd, err = s.Store.PutRegions(g.Name, g.Table.Parts(g.File.ReceiverIDs()))
	} else {
		err = s.Store.DropRegions(g.Name)
	}
	if err != nil {
		return err
	}
	return s.Store.Put(g.Name, text)
}

// putBack returns a function that stores the present version of a group again.
func (s *Set) putBack(g *Group) (func() error, error) {
	if !g.Kept {
		return func() error { return nil }, nil
	}
	text, err := s.Store.Get(g.Name)
	return func() error { return errors.Join(s.Store.Put(g.Name, text), s.SaveChronicle(g), s.SaveTree(g)) }, err
}

// keepNext stores a group's next version. It writes the state first, with the members of both
// versions: a crash may leave either text, and state about a member that is not in the text is
// ignored. A nil text is that of g.
func (s *Set) keepNext(g, next *Group, text []byte) error {
	if !g.Kept {
		return nil
	}
	both := *next
	both.Past = g.Past.With(next.Past)
	both.Links = linksOfBoth(g.Links, next.Links, next.Wanted)
	if err := errors.Join(s.SaveChronicle(&both), s.SaveTree(&both)); err != nil || text == nil {
		return err
	}
	return s.Store.Put(g.Name, text)
}

// linksOfBoth returns the links of next, with the members of was added that the next file lacks. A
// member of that file without a link in next has moved to this box.
func linksOfBoth(was, next []*Link, file *groupfile.File) (both []*Link) {
	for _, l := range next {
		copied := *l
		both = append(both, &copied)
	}
	for _, l := range was {
		to := LinkTo(both, l.Box)
		if to == nil {
			copied := *l
			copied.Members, copied.Relays = nil, nil
			to = &copied
			both = append(both, to)
		}
		for _, id := range l.Members {
			if file.Receiver(id) < 0 && LinkOf(both, id) == nil {
				to.Members = append(slices.Clone(to.Members), id)
				if relay := l.relayOf(id); relay.QPN != 0 {
					to.Relays = append(slices.Clone(to.Relays), relay)
				}
			}
		}
	}
	return both
}
