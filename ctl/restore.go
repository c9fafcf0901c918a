package ctl

import "github.com/rocast/rocast/ctl/api"

// Restore sets up the stored groups again, as groups do. The neighbours hear of those that
// fail.
func (c *Controller) Restore() error {
	if err := c.groups.Restore(); err != nil {
		return err
	}
	c.groups.Lock()
	defer c.groups.Unlock()
	for _, g := range c.groups.All() {
		if g.Problem != "" && (g.Branch != nil || len(g.Links) > 0) {
			c.failing[g] = struct{}{}
		}
	}
	return nil
}

// errSwitchedBelow: a box that had the branch has stored the turns, and this one has not.
var errSwitchedBelow = api.Errorf(api.BadRequest, "its source has switched, so no box can begin to carry a part of it; remove the group and create it "+
	"again with fresh QPs and PSNs")
