package ctl

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// begin plans a group and publishes it, then makes the box own its IP: ARP is not answered before the table is ready.
// check may refuse the plan. After an error nothing has changed.
func (c *Controller) begin(g *group, check func(*group, plan) error) (err error) {
	c.track(g)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.end(g))
		}
	}()
	p := c.planner().plan(g.file)
	if check != nil {
		if err := check(g, p); err != nil {
			return err
		}
	}
	if err := c.publish(g, p); err != nil {
		return err
	}
	return c.own(g)
}

// end takes back what begin did, as far as it got.
func (c *Controller) end(g *group) error {
	var errs []error
	if g.published != nil {
		errs = append(errs, c.Switch.Remove(g.id))
		g.published = nil
	}
	for place := range g.held {
		errs = append(errs, c.Addresses.Release(place))
	}
	g.held = nil
	c.untrack(g)
	return errors.Join(errs...)
}

func (c *Controller) publish(g *group, p plan) error {
	next := g.build(p)
	id, err := c.Switch.Add(next)
	if err != nil {
		return takenQPN(g.file, err)
	}
	g.id, g.published, g.plan = id, next, p
	return nil
}

// takenQPN adds the mend to the data path's refusal of a group whose addresses another one has.
func takenQPN(f *groupfile.File, err error) error {
	if errors.Is(err, mft.ErrTaken) {
		return yamldoc.Errorf(f.Lines["qpn"], "%v; write another qpn (or remoteQPN of a member), or another ip", err)
	}
	return err
}

// replace publishes a group's new plan where frames would go another way by it. What was merged is kept.
func (c *Controller) replace(g *group, p plan) error {
	if g.plan.sameLegs(p) {
		g.plan = p
		return nil
	}
	next := g.build(p)
	if err := c.Switch.Replace(g.id, next); err != nil {
		return err
	}
	g.published, g.plan = next, p
	return nil
}

// own makes the box own the group's IP where its plan needs it, and there alone.
func (c *Controller) own(g *group) error {
	wanted := g.plan.places(g.file)
	var errs []error
	for place := range wanted {
		if g.held[place] {
			continue
		}
		if err := c.Addresses.Hold(place); err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g.name, err))
			continue
		}
		if g.held == nil {
			g.held = map[address.Place]bool{}
		}
		g.held[place] = true
	}
	for place := range g.held {
		if !wanted[place] {
			delete(g.held, place)
			errs = append(errs, c.Addresses.Release(place))
		}
	}
	return errors.Join(errs...)
}

// track follows the hops of a group.
func (c *Controller) track(g *group) {
	for _, addr := range targets(g.file) {
		c.NextHops.Track(addr)
		if c.users[addr] == nil {
			c.users[addr] = map[*group]struct{}{}
		}
		c.users[addr][g] = struct{}{}
	}
}

func (c *Controller) isTracked(g *group) bool {
	if g.file == nil {
		return false
	}
	_, tracked := c.users[g.file.Source.IP][g]
	return tracked
}

func (c *Controller) untrack(g *group) {
	if g.file == nil {
		return
	}
	for _, addr := range targets(g.file) {
		if _, tracked := c.users[addr][g]; !tracked {
			continue
		}
		c.NextHops.Untrack(addr)
		if delete(c.users[addr], g); len(c.users[addr]) == 0 {
			delete(c.users, addr)
		}
	}
}

func (c *Controller) planner() *planner { return &planner{ports: c.ports, hop: c.NextHops.Hop} }

// logLegs tells what became of the ways to a group's members between two plans.
func (c *Controller) logLegs(g *group, was, is plan) {
	for i, l := range is.legs {
		if g.isTwin(i) {
			continue
		}
		var before leg
		if i < len(was.legs) {
			before = was.legs[i]
		}
		log := c.Log.With(zap.String("group", g.name), zap.Stringer("member", l.Dst))
		switch {
		case !l.waits() && (before.Leg != l.Leg || before.waits()):
			log.Info("member is reached", zap.String("port", l.hop.PortName))
		case l.waits() && before.reason != l.reason:
			log.Warn("member is waited for", zap.String("reason", l.reason))
		}
	}
}
