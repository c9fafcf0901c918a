package ctl

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/store"
)

// saveChronicle stores the member state that a restart needs. The caller has locked c.mu.
func (c *Controller) saveChronicle(g *group) error {
	if !g.Kept {
		return nil
	}
	text, err := g.Past.Text()
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", g.Name, err)
	}
	if c.Desired != nil && g.Branch == nil {
		c.keepMembers(g.Name)
	}
	return c.Store.PutState(g.Name, text)
}

// keepChronicle calls saveChronicle for a running group. It logs an error and continues: a disk
// failure must not stop a running group.
func (c *Controller) keepChronicle(g *group) {
	if err := c.saveChronicle(g); err != nil {
		c.Log.Error("could not store the state of members; a crash would lose it",
			zap.String("group", g.Name), zap.Error(err))
	}
}

// putText stores the text of a group. The caller has locked c.mu.
func (c *Controller) putText(name string, text []byte) error {
	return c.Store.Put(name, text)
}

// keepNew stores a group that nobody knows yet: no lock but that of its name is held.
func keepNew(s *store.Store, g *group, text []byte) error {
	if !g.Kept {
		return nil
	}
	state, err := g.Past.Text()
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", g.Name, err)
	}
	tree, err := g.treeText()
	if err == nil {
		err = errors.Join(s.PutTree(g.Name, tree), s.PutState(g.Name, state))
	}
	if err != nil {
		return err
	}
	// Another group of that name may have left its regions, if it could not be removed as a whole.
	if g.File.Table {
		g.tableEnd, err = s.PutRegions(g.Name, g.Table.Parts(g.File.ReceiverIDs()))
	} else {
		err = s.DropRegions(g.Name)
	}
	if err != nil {
		return err
	}
	return s.Put(g.Name, text)
}
