package ctl

import (
	"fmt"

	"go.uber.org/zap"
)

// saveChronicle keeps what a restart has to know of the group's members.
func (c *Controller) saveChronicle(g *group) error {
	if !g.kept {
		return nil
	}
	text, err := g.past.Text()
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", g.name, err)
	}
	return c.Store.PutState(g.name, text)
}

// keepChronicle is saveChronicle for a group that runs, which nothing on a disk may stop.
func (c *Controller) keepChronicle(g *group) {
	if err := c.saveChronicle(g); err != nil {
		c.Log.Error("state of members not kept; a crash now would forget it", zap.String("group", g.name), zap.Error(err))
	}
}
