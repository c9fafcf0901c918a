package ctl

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Restore sets the kept groups up again. A group that cannot be is kept, shown as failed and tried again by Run; it keeps no
// other from coming back.
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
	if err := c.Addresses.Sweep(); err != nil {
		c.Log.Error("address of an earlier run not removed", zap.Error(err))
	}
	return nil
}

func (c *Controller) restore(k store.Group) {
	// A group that fails below has carried data as little or as much as before: see isIdle.
	g := &group{name: k.Name, kept: true, restored: !k.Idle}
	c.groups[g.name] = g
	if k.Err != nil {
		c.fail(g, fmt.Errorf("%w; mend that and restart rocastd, or remove the group and create it anew", k.Err))
		return
	}
	file, err := groupfile.Parse(k.Text)
	if err != nil {
		c.fail(g, fmt.Errorf("%w; remove the group and create it anew", err))
		return
	}
	g = newGroup(file, true)
	g.name, g.restored = k.Name, !k.Idle
	c.groups[g.name] = g
	if err := g.recall(k); err != nil {
		c.fail(g, err)
		return
	}
	if err := c.resume(g); err != nil {
		c.fail(g, willBeRetried(err))
		c.trackFailed(g)
		return
	}
	// What a crash made of it. Without it the next crash makes the same of it again.
	c.keepChronicle(g)
	c.Log.Info("group restored", zap.String("group", g.name), zap.Bool("fresh", !g.restored), zap.Int("waiting", g.waiting()))
}

// retryEvery is the pause between two tries to set a failed group up. What changes in the network brings the next one at
// once; what changes elsewhere, as when the group that has its QPN is removed, tells nobody.
const retryEvery = 5 * time.Second

func willBeRetried(err error) error {
	return fmt.Errorf("%w; it is tried again every %v", err, retryEvery)
}

// retryFailed tries the groups again that another try can help: those whose file and state could be read.
func (c *Controller) retryFailed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Store.Forget(); err != nil {
		c.Log.Debug("record of the last clean stop not removed", zap.Error(err))
	}
	for _, g := range c.groups {
		if c.index.hasFailed(g) {
			c.retry(g)
		}
	}
}

// recall reads what became of a kept group's members.
func (g *group) recall(k store.Group) (err error) {
	if k.Idle {
		return nil // nothing became of anybody: all begin with the first packet
	}
	if g.past, err = chronicle.Read(k.State, g.file, k.Clean); err != nil {
		return err
	}
	if g.past.Switched {
		return errSwitched
	}
	return nil
}

// errSwitched: who is the source now, and how each member's PSNs lie to its, was known to the data path alone.
var errSwitched = errors.New("its source had switched before the daemon ended, and how the members' PSNs lie to each other " +
	"since is lost; remove it and create it with fresh QPs and PSNs")

// resume sets a kept group up: without those whose part was over, and with those still joining as such.
func (c *Controller) resume(g *group) error {
	if err := c.begin(g); err != nil {
		return err
	}
	if !g.past.Resume() {
		return nil
	}
	next := g.build(&g.plan)
	if err := c.Switch.Replace(g.id, next); err != nil {
		return errors.Join(err, c.end(g))
	}
	g.published = next
	return nil
}

// retry sets a group up that failed before.
func (c *Controller) retry(g *group) {
	c.untrack(g)
	if err := c.resume(g); err != nil {
		g.problem = willBeRetried(err).Error()
		c.trackFailed(g)
		return
	}
	g.problem = ""
	c.keepChronicle(g)
	c.Log.Info("group restored after a failure", zap.String("group", g.name))
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
