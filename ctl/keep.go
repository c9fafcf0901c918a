package ctl

import (
	"errors"
	"fmt"

	"go.uber.org/zap"
)

// saveChronicle stores the member state that a restart needs. The caller has locked c.mu.
func (s *book) saveChronicle(g *group) error {
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

// keepChronicle calls saveChronicle for a running group. It logs an error and continues: a disk
// failure must not stop a running group. The next look at the group tries again.
func (s *book) keepChronicle(g *group) {
	err := s.saveChronicle(g)
	if err != nil && !g.unkeptInLog {
		s.Log.Error("could not store the state of members; a crash would lose it, so rocastd tries again",
			zap.String("group", g.Name), zap.Error(err))
	}
	g.unkeptInLog = err != nil
}

// keepUp stores the chronicle if the disk lacks it. It is called after observe and with every look,
// so a disk that fails costs time only. While a turn may be stored that has not begun, settleTurn
// stores both.
func (s *book) keepUp(g *group) {
	if !g.unkept || g.unsure {
		return
	}
	s.show() // what the data path did stands, and the disk may take long
	s.keepChronicle(g)
}

// keepAtStop stores what a group has come to, and reports whether its state on the disk is that of
// a clean stop. Of a group that could not be read, the state stays what it was.
func (s *book) keepAtStop(g *group) (clean bool) {
	if g.Published != nil {
		s.observe(g)
	}
	if readable := g.Published != nil || s.hasFailed(g); readable && g.unkept {
		s.keepChronicle(g)
	}
	return !g.unkept
}

// putText stores the text of a group. The caller has locked c.mu.
func (s *book) putText(name string, text []byte) error {
	return s.Store.Put(name, text)
}

// keepNew stores a group that nobody knows yet: no lock but that of its name is held.
func (s *book) keepNew(g *group, text []byte) error {
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
