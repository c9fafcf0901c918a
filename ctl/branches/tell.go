package branches

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
)

// If a group fails at a box, the box tells its neighbours in the group's tree at once. Otherwise
// the box above would hear of it only with the next renewal, and a box below perhaps never: a group
// that cannot be restored renews no link.

// reportFailure tells the boxes below and above that this box does not carry a group at present.
func (t *Branches) reportFailure(ctx context.Context, g *groups.Group) {
	t.Groups.Lock()
	delete(t.failing, g)
	if g.Problem == "" || g.Wanted == nil {
		t.Groups.Unlock()
		return
	}
	e, upper := t.errandOf(g, g.Wanted), ""
	var links []*groups.Link
	for _, l := range g.Links {
		copied := *l
		links = append(links, &copied)
	}
	if g.Branch != nil {
		upper = g.Branch.Upper
	}
	t.Groups.Unlock()
	_, err := t.askAll(ctx, e, links)
	if upper != "" {
		err = errors.Join(err, t.Boxes.NotifyUpper(ctx, upper, g.Name))
	}
	if err != nil {
		t.Log.Debug("could not tell a neighbour that a group has failed; rocastd tries again", zap.String("group", g.Name), zap.Error(tellable(err)))
		t.Groups.Lock()
		defer t.Groups.Unlock()
		t.failing[g] = struct{}{}
	}
}

// BranchChanged makes a link due, because the box below says that its part of the group has
// changed.
func (t *Branches) BranchChanged(lower, name string) error {
	t.Groups.Lock()
	defer t.Groups.Unlock()
	if g := t.Groups.Named(name); g != nil {
		if l := groups.LinkTo(g.Links, lower); l != nil {
			l.Due = true
			t.Groups.Changed(g)
			return nil
		}
	}
	return api.Errorf(api.NotFound, "box %s does not ask box %s for a part of group %s", t.Box, lower, name)
}

// hearAbove records why the box above does not carry the group at present; "": it does. The links
// become due, so that the boxes below hear it too. The caller has locked the groups.
func (t *Branches) hearAbove(g *groups.Group, problem string) {
	b := g.Branch
	if b.Above == problem {
		return
	}
	if problem != "" {
		t.Groups.AddEvent(api.Event{Kind: api.NeighbourDown, Group: g.Name, Neighbour: b.Upper, Cause: problem})
	} else {
		t.Groups.AddEvent(api.Event{Kind: api.NeighbourUp, Group: g.Name, Neighbour: b.Upper, Cause: "it carries the group again"})
	}
	b.Above = problem
	t.Groups.Changed(g)
	for _, l := range g.Links {
		l.Due = true
	}
}
