package ctl

import (
	"context"

	"go.uber.org/zap"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// logNotes writes the data path's news about receivers to the log until ctx is done. The data path drops what is not taken
// in time, so a storm of them cannot become a storm of lines.
func (c *Controller) logNotes(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-c.Switch.Notes():
			c.logNote(n)
		}
	}
}

func (c *Controller) logNote(n dataplane.Note) {
	fields := []zap.Field{
		zap.String("group", c.groupName(n.Group)), zap.Stringer("member", n.Receiver), zap.Stringer("event", n.What), zap.Uint32("psn", uint32(n.PSN)),
	}
	if n.Syndrome != 0 {
		fields = append(fields, zap.Stringer("answer", n.Syndrome))
	}
	c.Log.Warn("receiver", fields...)
}

// groupName is empty for a group that has gone since.
func (c *Controller) groupName(id mft.GroupID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		if g.published != nil && g.id == id {
			return g.name
		}
	}
	return ""
}
