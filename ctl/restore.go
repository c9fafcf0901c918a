package ctl

import (
	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Restore sets the kept groups up again. A group that cannot be is kept, shown as failed and tried again when the network
// changes; it keeps no other from coming back.
func (c *Controller) Restore() error {
	kept, err := c.Store.Restore()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kept {
		c.restore(k)
	}
	// What a crash left on interfaces and no group wants any more.
	return c.Addresses.Sweep()
}

func (c *Controller) restore(k store.Group) {
	g := &group{name: k.Name, restored: !k.Idle}
	c.groups[g.name] = g
	file, err := groupfile.Parse(k.Text)
	if err != nil {
		c.fail(g, err)
		return
	}
	g.file = file
	if err := c.begin(g, nil); err != nil {
		c.fail(g, err)
		c.track(g)
		return
	}
	c.Log.Info("group restored", zap.String("group", g.name), zap.Bool("fresh", !g.restored), zap.Int("waiting", g.waiting()))
}

// fail notes why a kept group is not there. A sentence about the file may quote an R_Key in a wrong place: the log gets the
// line alone.
func (c *Controller) fail(g *group, err error) {
	g.problem = err.Error()
	why := zap.Error(err)
	if line := yamldoc.Line(err); line > 0 {
		why = zap.Int("line", line)
	}
	c.Log.Error("group could not be restored; rocast group show says why", zap.String("group", g.name), why)
}
