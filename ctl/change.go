package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
)

// stand sets up a new group: at the boxes behind this one, then here. It stores the text, unless
// that is nil. If stand returns an error, nothing has changed here, and what was set up behind is
// withdrawn. The caller has locked the group's name, and tracks the members.
func (c *Controller) stand(ctx context.Context, g *group, text []byte) error {
	if err := c.branchOff(g); err != nil {
		return err
	}
	if err := c.refuseNetwork(ctx, g); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return givenUp(ctx)
	}
	if len(g.links) > 0 {
		links, err := c.askAll(ctx, c.errandOf(g, g.wanted), g.links)
		if err == nil && ctx.Err() != nil {
			err = givenUp(ctx)
		}
		if err != nil {
			c.registrationFailed(g.name, err)
			c.withdraw(g.name, g.links)
			return notStanding(g.name, err)
		}
		g.setLinks(links)
	}
	if err := c.beginKept(g, text); err != nil {
		c.withdraw(g.name, g.links)
		return err
	}
	return nil
}

// branchOff gives the members of a new group to links.
func (c *Controller) branchOff(g *group) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuseNameTaken(g.wanted); err != nil {
		return err
	}
	var visited []string
	now := time.Now()
	if g.branch != nil {
		visited = g.branch.Visited
	} else {
		g.epoch = nextVersion(0, now)
	}
	links, err := c.linksFor(g.wanted, nil, visited)
	if err != nil {
		return err
	}
	for _, l := range links {
		l.Version = max(g.epoch, nextVersion(0, now))
		l.Begun = g.restored
		if g.restored {
			l.Later = laterOf(g, l)
		}
	}
	g.setLinks(links)
	return nil
}

// laterOf returns the members behind a link that joined later, as far as this box knows.
func laterOf(g *group, l *link) (later []groupfile.ID) {
	for _, id := range l.Members {
		if s := g.past.Standing(id); s == chronicle.Joined || s == chronicle.Joining || s == chronicle.Lost {
			later = append(later, id)
		}
	}
	return later
}

// beginKept begins a group and stores it.
func (c *Controller) beginKept(g *group, text []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuseNameTaken(g.wanted); err != nil {
		return err
	}
	if err := c.begin(g); err != nil {
		return err
	}
	if g.kept {
		if err := errors.Join(c.saveTree(g), c.saveChronicle(g)); err != nil {
			return errors.Join(err, c.end(g))
		}
		if err := c.Store.Put(g.name, text); err != nil {
			return errors.Join(err, c.end(g))
		}
	}
	c.groups[g.name] = g
	e := api.Event{Kind: api.GroupCreated, Group: g.name}
	if b := g.branch; b != nil {
		e.Neighbour, e.Cause = b.Upper, fmt.Sprintf("box %s asks for it; it was created on box %s", b.Upper, b.Root)
	}
	c.events.Add(e)
	return nil
}

// forget ends a group and removes it from the state directory.
func (c *Controller) forget(g *group) error {
	if g.kept {
		if err := c.Store.Delete(g.name); err != nil {
			return apiError(err)
		}
	}
	delete(c.groups, g.name)
	c.events.Add(api.Event{Kind: api.GroupRemoved, Group: g.name})
	if err := c.end(g); err != nil {
		// The group has left the table and will not come back. An address that could not be removed
		// is visible only in the kernel.
		c.Log.Error("could not remove all addresses of the removed group from the box",
			zap.String("group", g.name), zap.Error(err))
		return nil
	}
	c.Log.Info("group removed", zap.String("group", g.name))
	return nil
}

// change makes a running group that of the file: receivers join and leave, here and at the boxes
// behind. next is the branch after the change, if the group is one.
//
// Receivers join first, at all boxes, and only if all agree the change is made here; until then it
// can be taken back. Then receivers leave. A box that does not hear of that is told again with the
// next renewals.
func (c *Controller) change(ctx context.Context, g *group, file *groupfile.File, text []byte, next *branch) error {
	p, err := c.prepare(g, file, next)
	if err == nil && p.moved {
		// First those that move, as after a restart; only then is it known who joins.
		if err = c.move(ctx, g); err == nil {
			p, err = c.prepare(g, file, next)
		}
	}
	if err != nil {
		return err
	}
	e := c.errandOf(&p.next, file)
	e.file = below(withMembers(file, g.wanted))
	joined, err := c.askAll(ctx, e, p.joining)
	if err == nil && ctx.Err() != nil {
		err = givenUp(ctx)
	}
	if err != nil {
		c.takeBack(g, p)
		return notStanding(g.name, err)
	}
	p.join(joined)
	c.mu.Lock()
	p.next.setLinks(p.links)
	if err = c.regroup(g, &p.next, text); err == nil {
		c.mu.Unlock()
		c.leave(ctx, g, p)
		return nil
	}
	c.mu.Unlock()
	c.takeBack(g, p)
	return err
}

// preparation is a change that was not made yet.
type preparation struct {
	next    group
	links   []*link // after the change
	joining []*link // those that members join, as they are asked first: nobody has left yet
	leaving []string
	gone    []*link
	moved   bool // a member goes from one box to another
}

func (c *Controller) prepare(g *group, file *groupfile.File, next *branch) (*preparation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &preparation{next: *g}
	p.next.wanted = file
	var visited []string
	now := time.Now()
	if p.next.branch = next; next != nil {
		visited, p.next.epoch = next.Visited, next.Epoch
	} else {
		p.next.epoch = nextVersion(g.epoch, now)
	}
	var err error
	if p.links, err = c.linksFor(file, g.links, visited); err != nil {
		return nil, err
	}
	for _, l := range p.links {
		was := linkTo(g.links, l.Box)
		if was == nil {
			was = &link{}
		}
		for _, id := range l.Members {
			if !slices.Contains(was.Members, id) && g.wanted.Receiver(id) >= 0 {
				p.moved = true
			}
		}
		l.Later = slices.DeleteFunc(slices.Clone(l.Later), func(id groupfile.ID) bool { return !slices.Contains(l.Members, id) })
	}
	for i := range file.Receivers {
		id := file.Receivers[i].ID()
		p.moved = p.moved || linkOf(p.links, id) == nil && linkOf(g.links, id) != nil
	}
	if err := g.refuseMove(file, p.links); err != nil {
		return nil, err
	}
	for _, l := range p.links {
		if err := c.prepareLink(g, p, l, now); err != nil {
			return nil, err
		}
	}
	for _, was := range g.links {
		if linkTo(p.links, was.Box) == nil {
			p.gone = append(p.gone, was)
		}
	}
	return p, nil
}

// refuseMove refuses to move a running member to a place where the PSN that its QP expects is not
// known: to a box that already carries the group, for which the member would be one that joins, or
// to this box if the member joined later. Its QP would take new data for a duplicate and
// acknowledge it.
func (g *group) refuseMove(file *groupfile.File, links []*link) error {
	for i := range g.wanted.Receivers {
		id := g.wanted.Receivers[i].ID()
		from, to := linkOf(g.links, id), linkOf(links, id)
		switch {
		case file.Receiver(id) < 0: // it leaves
		case from == nil && to == nil, from != nil && to != nil && from.Box == to.Box:
		case to == nil && g.joinedLater(from, id), to != nil && linkTo(g.links, to.Box) != nil:
			return api.Errorf(api.BadRequest, "the routes have changed, and the PSN that %v expects is not known where it is now; update the "+
				"group without it, and then with it and the psn that its QP expects", id.IP)
		}
	}
	return nil
}

// joinedLater says whether a member behind a link, or the link itself, joined when the group was
// running.
func (g *group) joinedLater(l *link, id groupfile.ID) bool {
	m := l.member(g.wanted)
	return slices.Contains(l.Later, id) || g.past.Standing(m.ID()) != ""
}

// prepareLink finds out who joins and leaves behind a link. Nobody can join behind a link that
// takes no part any more.
func (c *Controller) prepareLink(g *group, p *preparation, l *link, now time.Time) error {
	was := linkTo(g.links, l.Box)
	first := *l
	joins := false
	for _, id := range l.Members {
		if was != nil && slices.Contains(was.Members, id) {
			continue
		}
		joins = true
		runs := g.wanted.Receiver(id) >= 0
		elsewhere := linkOf(g.links, id)
		if was != nil && !runs || elsewhere != nil && g.joinedLater(elsewhere, id) || g.past.Standing(id) != "" {
			l.Later = append(l.Later, id)
		}
	}
	first.Later = l.Later
	first.Begun = first.Begun || p.moved
	if was != nil {
		for _, id := range was.Members {
			if !slices.Contains(l.Members, id) {
				first.Members = append(slices.Clone(first.Members), id)
				if !slices.Contains(p.leaving, l.Box) {
					p.leaving = append(p.leaving, l.Box)
				}
			}
		}
	}
	if joins || was == nil {
		first.Version = max(p.next.epoch, nextVersion(l.Version, now))
		p.joining = append(p.joining, &first)
	}
	if end := g.linkEnded(l); joins && was != nil && end != nil {
		return api.Errorf(api.BadRequest, "box %s takes no part in the group any more (%s), so nobody can join behind it; update the group "+
			"without the members behind that box, and then with them", l.Box, end.Standing)
	}
	return nil
}

// linkEnded returns the record of a link that no longer takes part, or nil.
func (g *group) linkEnded(l *link) *chronicle.Record {
	m := l.member(g.wanted)
	return g.ended(&m)
}

// withMembers returns a file with the receivers of both.
func withMembers(f, more *groupfile.File) *groupfile.File {
	both := *f
	both.Receivers = slices.Clone(f.Receivers)
	for i := range more.Receivers {
		if f.Receiver(more.Receivers[i].ID()) < 0 {
			both.Receivers = append(both.Receivers, more.Receivers[i])
		}
	}
	return &both
}

// takeBack undoes the first part of a change: the receivers that joined leave again.
func (c *Controller) takeBack(g *group, p *preparation) {
	var fresh []*link
	c.mu.Lock()
	for _, l := range p.joining {
		if was := linkTo(g.links, l.Box); was != nil {
			was.Version = nextVersion(l.Version, time.Now())
			was.asked = time.Time{} // the next renewal tells the box, and it is due
		} else {
			fresh = append(fresh, l)
		}
	}
	c.mu.Unlock()
	c.withdraw(g.name, fresh)
	c.renewLinks(context.Background(), g)
}

// leave tells the boxes behind which receivers have left.
func (c *Controller) leave(ctx context.Context, g *group, p *preparation) {
	c.mu.Lock()
	for _, box := range p.leaving {
		if l := linkTo(g.links, box); l != nil {
			l.Version = nextVersion(l.Version, time.Now())
			l.asked = time.Time{}
		}
	}
	c.mu.Unlock()
	c.withdraw(g.name, p.gone)
	c.renewLinks(ctx, g)
}

func (c *Controller) saveTree(g *group) error {
	if !g.kept {
		return nil
	}
	text, err := g.treeText()
	if err != nil {
		return err
	}
	return c.Store.PutTree(g.name, text)
}
