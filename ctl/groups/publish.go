package groups

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// begin plans a group, publishes it, and then adds its IP to the box: the kernel must not answer
// ARP for the IP before the data path is ready. If begin returns an error, nothing has changed.
func (s *Set) begin(g *Group) (err error) {
	if err := s.RefuseTaken(g.Wanted, g.File, g); err != nil {
		return err
	}
	s.track(g)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end(g))
		}
	}()
	if err := s.publish(g, s.Plan(g.File)); err != nil {
		return err
	}
	return s.own(g)
}

// end reverses begin. It also works after begin has failed part of the way.
func (s *Set) end(g *Group) error {
	var errs []error
	if g.Published != nil {
		errs = append(errs, s.Switch.Remove(g.ID))
		g.Published, g.Plan = nil, plan.Plan{}
	}
	if s.Edges != nil {
		s.Edges.Forget(g.Name)
	}
	if g.Problem == "" { // readers may see it while its addresses are removed
		g.Problem = "it has just been taken out of the data path"
	}
	g.show()
	for a := range g.held {
		errs = append(errs, s.Addresses.Release(a))
	}
	g.held = nil
	s.untrack(g)
	return errors.Join(errs...)
}

// Plan plans how frames reach the members of a file now.
func (s *Set) Plan(f *groupfile.File) plan.Plan { return plan.Make(f, s.open, s.NextHops.Hop) }

// build makes the version of a group for the data path. A group that has repair only because that
// is the default has none where the data path has no memory for it.
func (s *Set) build(g *Group, p *plan.Plan) (*mft.Group, error) {
	next, err := p.Group(g.File, g.Table, &g.Past, g.Restored, g.Published)
	if err == nil {
		next.KeepsTurns = g.Kept
		for i := range next.Parts {
			if p := &next.Parts[i]; p.Part == feedback.PartJoining && g.waitsToJoin(groupfile.ID(p.QP)) {
				p.Part = feedback.PartWaiting
			}
		}
	}
	if err == nil && !g.File.AsksForRepair() && s.Switch.Retains(next.Policy, next.PathMTU) != nil {
		next.Policy = next.Policy.WithoutRepair()
	}
	if err == nil && next.Policy.Repair == feedback.RepairOff {
		err = g.Wanted.CheckNoRepair()
	}
	if err == nil {
		next.Mappings = mappingsOf(s, g, next)
		share(s, g, p, next)
		relayShares(s, g, next)
	}
	return next, err
}

func (s *Set) publish(g *Group, p plan.Plan) error {
	next, err := s.build(g, &p)
	if err != nil {
		return err
	}
	id, err := s.Switch.Add(next)
	if err != nil {
		return aboutFile(g.File, err)
	}
	g.ID, g.Published, g.Plan = id, next, p
	if s.Edges != nil && g.Sharing.Own == "" || slices.ContainsFunc(g.Links, (*Link).Passes) {
		shareAnew(s, g)
	}
	g.show()
	return nil
}

// aboutFile names the line of the file to which the data path's error belongs.
func aboutFile(f *groupfile.File, err error) error {
	if errors.Is(err, dataplane.ErrRetention) {
		return yamldoc.Errorf(f.RepairLine(), "%v", err)
	}
	return err
}

// Replan publishes a group's new plan if the plan changes how frames are sent, or if a receiver may
// join that could not before. The merging state is kept.
func (s *Set) Replan(g *Group, p plan.Plan) error {
	s.Changed(g)
	if g.Plan.SameLegs(&p) && !g.someoneMayJoin() {
		g.Plan = p
		return nil
	}
	was := g.Sharing
	next, err := s.build(g, &p)
	if err = replace(s, g, next, err, was); err != nil {
		return err
	}
	g.Published, g.Plan = next, p
	return nil
}

// LetJoin publishes a group again if a receiver may join that could not before.
func (s *Set) LetJoin(g *Group) error {
	if !g.someoneMayJoin() {
		return nil
	}
	return s.Replan(g, g.Plan)
}

// own adds the group's IP to the interfaces where its plan needs it, and removes it from all
// others.
func (s *Set) own(g *Group) error {
	wanted := g.Plan.IfAddrs(g.File)
	var errs []error
	for a := range wanted {
		if g.held[a] {
			continue
		}
		if err := s.Addresses.Hold(a); err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g.Name, err))
			continue
		}
		if g.held == nil {
			g.held = map[address.IfAddr]bool{}
		}
		g.held[a] = true
	}
	for a := range g.held {
		if !wanted[a] {
			delete(g.held, a)
			errs = append(errs, s.Addresses.Release(a))
		}
	}
	return errors.Join(errs...)
}

// HoldAddresses calls own for a running group and logs an error: the group continues without its
// IP.
func (s *Set) HoldAddresses(g *Group) {
	if err := s.own(g); err != nil {
		s.Log.Error("group's IP is not on every interface that needs it", zap.String("group", g.Name), zap.Error(err))
	}
}

// track adds a group to the index and follows the next hops of its members.
func (s *Set) track(g *Group) {
	s.add(g)
	s.followHops(g)
}

// trackFailed follows the next hops of a failed group that will be retried. Its QPs stay free for
// other groups.
func (s *Set) trackFailed(g *Group) {
	s.addFailed(g)
	s.followHops(g)
}

func (s *Set) followHops(g *Group) {
	for _, addr := range plan.Targets(g.allMembers()) {
		s.NextHops.Track(addr)
	}
}

// untrack reverses track and trackFailed.
func (s *Set) untrack(g *Group) {
	if g.File == nil || !s.remove(g) {
		return
	}
	for _, addr := range plan.Targets(g.allMembers()) {
		s.NextHops.Untrack(addr)
	}
}
