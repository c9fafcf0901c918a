package ctl

import (
	"fmt"

	"go.uber.org/zap"
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
