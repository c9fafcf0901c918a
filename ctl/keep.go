package ctl

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/store"
)

// saveChronicle stores the member state that a restart needs. The caller has locked c.mu.
func (c *Controller) saveChronicle(g *group) error {
	if !g.kept {
		return nil
	}
	text, err := g.past.Text()
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", g.name, err)
	}
	if c.Desired != nil && g.branch == nil {
		c.keepMembers(g.name)
	}
	return c.Store.PutState(g.name, text)
}

// keepChronicle calls saveChronicle for a running group. It logs an error and continues: a disk
// failure must not stop a running group.
func (c *Controller) keepChronicle(g *group) {
	if err := c.saveChronicle(g); err != nil {
		c.Log.Error("could not store the state of members; a crash would lose it",
			zap.String("group", g.name), zap.Error(err))
	}
}

// putText stores the text of a group. The caller has locked c.mu.
func (c *Controller) putText(name string, text []byte) error {
	return c.Store.Put(name, text)
}

// keepNew stores a group that nobody knows yet: no lock but that of its name is held.
func keepNew(s *store.Store, g *group, text []byte) error {
	if !g.kept {
		return nil
	}
	state, err := g.past.Text()
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", g.name, err)
	}
	tree, err := g.treeText()
	if err == nil {
		err = errors.Join(s.PutTree(g.name, tree), s.PutState(g.name, state))
	}
	if err != nil {
		return err
	}
	// Another group of that name may have left its regions, if it could not be removed as a whole.
	if g.file.Table {
		g.tableEnd, err = s.PutRegions(g.name, g.table.Parts(receiverIDs(g.file)))
	} else {
		err = s.DropRegions(g.name)
	}
	if err != nil {
		return err
	}
	return s.Put(g.name, text)
}
