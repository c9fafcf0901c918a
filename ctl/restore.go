package ctl

// Restore sets up the stored groups again (groups.Set.Restore), and lets the neighbours hear which
// of them have failed.
func (c *Controller) Restore() error {
	if err := c.groups.Restore(); err != nil {
		return err
	}
	c.groups.Lock()
	defer c.groups.Unlock()
	for _, g := range c.groups.All() {
		if g.Problem != "" && (g.Branch != nil || len(g.Links) > 0) {
			c.Branches.Fails(g)
		}
	}
	return nil
}
