package branches

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Stand sets up a new group: at the boxes behind this one, then here. It stores the text, unless
// that is nil. If Stand returns an error, nothing has changed here, and what was set up behind is
// withdrawn. The caller has locked the group's name, and tracks the members.
func (t *Branches) Stand(ctx context.Context, g *groups.Group, text []byte) error {
	return stand(ctx, t, g, text, nil)
}

// stand is Stand. joins has the members that join if the group begins as after a restart.
func stand(ctx context.Context, t *Branches, g *groups.Group, text []byte, joins []groupfile.ID) error {
	if err := t.branchOff(g); err != nil {
		return err
	}
	if err := t.Refuse(ctx, g, joiners(&g.Version, nil, joins)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return groups.GivenUp(ctx)
	}
	if len(g.Links) > 0 {
		e := t.errandOf(g, g.Wanted)
		e.joins = joins
		links, err := t.askAll(ctx, e, g.Links)
		if err == nil && ctx.Err() != nil {
			err = groups.GivenUp(ctx)
		}
		if err != nil {
			t.registrationFailed(g.Name, err)
			t.Withdraw(g.Name, g.Links)
			return notSetUp(g.Name, err)
		}
		g.SetLinks(links)
	}
	if err := t.Groups.Add(g, text); err != nil {
		t.Withdraw(g.Name, g.Links)
		return err
	}
	t.Groups.Lock()
	defer t.Groups.Unlock()
	t.NoteMove(g) // routes may have changed while it was stored
	return nil
}

// branchOff finds the links of a new group, and which members are behind each.
func (t *Branches) branchOff(g *groups.Group) error {
	t.Groups.Lock()
	defer t.Groups.Unlock()
	if err := t.Groups.RefuseNameTaken(g.Wanted); err != nil {
		return err
	}
	var visited []string
	now := time.Now()
	if g.Branch != nil {
		visited = g.Branch.Visited
	} else {
		g.Epoch = groups.NextVersion(0, now)
	}
	links, err := t.linksFor(g.Wanted, nil, visited, !g.Restored)
	if err != nil {
		return err
	}
	if err := t.RefuseTree(g, links); err != nil {
		return err
	}
	for _, l := range links {
		l.Version = max(g.Epoch, groups.NextVersion(0, now))
		l.Begun = g.Restored
		if g.Restored {
			l.Later = laterOf(g, l)
		}
	}
	g.SetLinks(links)
	return nil
}

// joiners returns which members of this box's part of a group join: those of a list that are not
// behind another box, and those with which a link joins that the group did not have before.
func joiners(v *groups.Version, before []*groups.Link, list []groupfile.ID) (own []groupfile.ID) {
	for _, id := range list {
		l := groups.LinkOf(v.Links, id)
		switch {
		case l == nil:
			own = append(own, id)
		case l.Passes() || groups.LinkTo(before, l.Box) == nil && !slices.ContainsFunc(l.Members, func(m groupfile.ID) bool { return !slices.Contains(list, m) }):
			own = append(own, l.EndOf(v.Wanted, id))
		}
	}
	return own
}

// laterOf returns the members behind a new link that have not taken part from the source's first
// packet on, as far as this box knows.
func laterOf(g *groups.Group, l *groups.Link) (later []groups.Later) {
	for _, id := range l.Members {
		if p := g.OwnMembership(id); p != g.Origin() {
			later = append(later, l.LaterAt(id, p, g.Origin()))
		}
	}
	return later
}

// Change gives a running group the receivers and the memory of a file, here and at the boxes
// behind. next is the branch after the change; nil: the group is no branch.
//
// First the new receivers join at all boxes behind. If one of these boxes refuses, the change is
// undone. If all agree, it is made here, and then receivers leave. A box that cannot be told who
// has left is told again with the next renewals.
//
// came has the receivers that are new here and take no part any more.
func (t *Branches) Change(ctx context.Context, g *groups.Group, file *groupfile.File, text []byte, next *groups.Branch, came map[groupfile.ID]groups.Membership) error {
	p, err := t.prepareTold(ctx, g, file, next, came)
	if err == nil && p.moved {
		// Members that move go first, as after a restart: only then is it known who joins.
		if err = t.move(ctx, g, g.Wanted, g.Branch, nil); err == nil {
			p, err = t.prepareTold(ctx, g, file, next, came)
		}
	}
	if err != nil {
		return err
	}
	if len(p.errand.joins) > 0 {
		next := p.next.Version
		next.SetLinks(p.links)
		if err := t.RefuseJoin(&next, joiners(&next, g.Links, p.errand.joins)); err != nil {
			return err
		}
	}
	e := p.errand
	if !p.remembers { // else no member leaves: CheckOneChange at the root refuses both at once
		e.file = below(withMembers(file, g.Wanted))
	}
	joined, err := t.askAll(ctx, e, p.joining)
	if err == nil && ctx.Err() != nil {
		err = groups.GivenUp(ctx)
	}
	if err != nil {
		t.undo(g, p)
		return notSetUp(g.Name, err)
	}
	p.join(joined)
	t.Groups.Lock()
	p.onto(g)
	p.next.SetLinks(p.links)
	if err = t.Groups.Regroup(g, &p.next, text, came); err == nil {
		t.Groups.Unlock()
		t.leave(ctx, g, p)
		return nil
	}
	t.Groups.Unlock()
	t.undo(g, p)
	return err
}

// preparation is a change that is planned and not made yet.
type preparation struct {
	next    groups.Group
	errand  errand
	links   []*groups.Link // after the change
	joining []*groups.Link // the links that members join, as their boxes are asked first: nobody has left yet
	leaving []string
	gone    []*groups.Link
	untold  []*groups.Link // links that members join, as they are now: their boxes may not know yet who has left
	// remembers is true if the memory changes. Then all boxes behind are told before this one
	// changes.
	remembers bool

	// The following fields are about running members that move from one box to another.

	moved       bool
	memberships map[groupfile.ID]groups.Membership // of the members that move, and of those that came
	here        map[groupfile.ID]groups.Membership // of the members that move to this box itself
	sharing     []groupfile.ID                     // the members that move behind a link, together with members that have another way now
	renamed     map[groupfile.ID]groupfile.ID
}

// prepareTold plans a change as prepare does. Before that, it tells the boxes that members join
// which members have left there. Otherwise such a box would take a member that joins again, with
// another queue pair, for the one that it still has.
func (t *Branches) prepareTold(ctx context.Context, g *groups.Group, file *groupfile.File, next *groups.Branch, came map[groupfile.ID]groups.Membership) (*preparation, error) {
	p, err := t.prepare(g, file, next, came)
	if err != nil || len(p.untold) == 0 {
		return p, err
	}
	t.renewNow(ctx, g, p.untold, false)
	if p, err = t.prepare(g, file, next, came); err == nil && len(p.untold) > 0 {
		l := p.untold[0]
		return nil, api.Errorf(api.BadRequest, "box %s has not heard who has left the group there, so nobody can join (%s); try again when it answers",
			l.Box, l.Problem)
	}
	return p, err
}

// prepare plans a change. came has the receivers that are new here and do not join.
func (t *Branches) prepare(g *groups.Group, file *groupfile.File, next *groups.Branch, came map[groupfile.ID]groups.Membership) (*preparation, error) {
	t.Groups.Lock()
	defer t.Groups.Unlock()
	p := &preparation{remembers: !file.HasMemoryOf(g.Wanted), memberships: maps.Clone(came), here: map[groupfile.ID]groups.Membership{}, renamed: map[groupfile.ID]groupfile.ID{}}
	p.next.Wanted = file
	var visited []string
	now := time.Now()
	if p.next.Branch = next; next != nil {
		visited, p.next.Epoch = next.Visited, next.Epoch
	} else {
		p.next.Epoch = groups.NextVersion(g.Epoch, now)
	}
	p.onto(g)
	var err error
	if p.links, err = t.linksFor(file, g.Links, visited, false); err != nil {
		return nil, err
	}
	if err := t.RefuseTree(g, p.links); err != nil {
		return nil, err
	}
	if err := p.refuseHastyJoin(g, t.Box); err != nil {
		return nil, err
	}
	if err := p.findMoves(g, file); err != nil {
		return nil, err
	}
	state, _ := t.Groups.Switch.GroupState(g.ID)
	for _, l := range p.links {
		if err := t.prepareLink(g, p, l, now); err != nil {
			return nil, err
		}
		l.Weight = p.weight(g, l, &state)
	}
	if err := refuseTooFew(file, p.links); err != nil {
		return nil, err
	}
	for _, was := range g.Links {
		if groups.LinkTo(p.links, was.Box) == nil {
			p.gone = append(p.gone, was)
		}
	}
	p.errand = t.errandOf(&p.next, file) // what the box above says of itself may change from now on
	for i := range file.Receivers {
		id := file.Receivers[i].ID()
		if _, runs := p.memberships[id]; !runs && g.Wanted.Receiver(id) < 0 {
			p.errand.joins = append(p.errand.joins, id)
		}
	}
	return p, nil
}

// refuseHastyJoin refuses a box behind this one with which the group would come to have the fault
// of which refuseHasty tells: nobody there runs already.
func (p *preparation) refuseHastyJoin(g *groups.Group, box string) error {
	runs := func(id groupfile.ID) bool { _, came := p.memberships[id]; return came || g.Wanted.Receiver(id) >= 0 }
	for _, l := range p.links {
		if groups.LinkTo(g.Links, l.Box) == nil && !slices.ContainsFunc(l.Members, runs) {
			return refuseHasty(p.next.Wanted, box)
		}
	}
	return nil
}

// onto makes next from the group as it is now and what the change asks for. It is called again
// after the boxes behind have answered: meanwhile another member may have become the source, a port
// may have changed, etcd may have been told something, or a link may have become due.
func (p *preparation) onto(g *groups.Group) {
	for _, l := range p.links {
		if was := groups.LinkTo(g.Links, l.Box); was != nil {
			l.Due = was.Due
		}
	}
	next := *g
	next.Wanted, next.Branch, next.Epoch = p.next.Wanted, p.next.Branch, p.next.Epoch
	if s := &next.Wanted.Source; s.Role == groupfile.Both && (s.ID() != g.Wanted.Source.ID() || g.Wanted.Source.Role != s.Role) {
		next.Source = s.ID() // another queue pair of the upper box, or the box is a receiver from now on
	}
	p.next = next
}

// findMoves finds the running members that move from one box to another, and since when each takes
// part. A member that is still joining, as far as this box knows, cannot move: findMoves then
// returns an error, and the move is tried again. If members that have joined move too, they are cut
// off and do not wait: the joining member moves with them, and takes no part any more.
func (p *preparation) findMoves(g *groups.Group, file *groupfile.File) error {
	if p.memberships == nil {
		p.memberships = map[groupfile.ID]groups.Membership{}
	}
	var joining []groupfile.ID
	running := false
	for i := range file.Receivers {
		id := file.Receivers[i].ID()
		to := groups.LinkOf(p.links, id)
		at, came := p.memberships[id]
		if !came {
			from := groups.LinkOf(g.Links, id)
			if g.Wanted.Receiver(id) < 0 || from == nil && to == nil || from != nil && to != nil && from.Box == to.Box {
				continue
			}
			at = g.MembershipOf(id)
			if !at.Known && !at.Out && (from == nil || from.Problem == "") {
				joining = append(joining, id)
			}
			p.memberships[id] = at
			p.moved = true
		}
		running = running || at.Known
		p.moved = p.moved || at.Known
		if to == nil && at != g.Origin() {
			p.here[id] = at
		}
	}
	if len(joining) > 0 && !running {
		return api.Errorf(api.BadRequest, "the routes have changed, and %v stays where it was: it is joining, and which packet its QP gets first "+
			"is not known yet; rocastd tries again", joining[0].IP)
	}
	return nil
}

// prepareLink finds out which members behind a link join, move there and leave.
func (t *Branches) prepareLink(g *groups.Group, p *preparation, l *groups.Link, now time.Time) error {
	was := groups.LinkTo(g.Links, l.Box)
	l.Later = slices.DeleteFunc(slices.Clone(l.Later), func(m groups.Later) bool { return !slices.Contains(l.Members, m.ID) })
	joins, err := p.come(g, l, was)
	if err != nil {
		return err
	}
	first := *l
	first.Begun = first.Begun || p.moved
	if was != nil && !p.remembers {
		for _, id := range was.Members {
			if !slices.Contains(l.Members, id) {
				first.Members = append(slices.Clone(first.Members), id)
				if !slices.Contains(p.leaving, l.Box) {
					p.leaving = append(p.leaving, l.Box)
				}
			}
		}
	}
	if joins && was != nil && !was.IsTold() {
		p.untold = append(p.untold, was)
	}
	if joins || was == nil || p.remembers {
		first.Version = max(p.next.Epoch, groups.NextVersion(l.Version, now))
		p.joining = append(p.joining, &first)
	}
	return nil
}

// come finds out which members join behind a link, or move there from another box. was is the link
// as it is now, or nil. come refuses both if the link takes no part any more.
func (p *preparation) come(g *groups.Group, l, was *groups.Link) (joins bool, err error) {
	begins := g.Origin() // of the link's first packet
	if was != nil {
		begins = g.LinkMembership(was)
	}
	running := 0
	if l.Passes() {
		return p.comeTo(g, l, was), nil
	}
	for _, id := range l.Members {
		if was != nil && slices.Contains(was.Members, id) {
			continue
		}
		joins = true
		at, runs := p.memberships[id]
		if at.Known {
			running++
			if was != nil || !g.ShareLink(l.Members) {
				p.sharing = append(p.sharing, id)
			}
		}
		if was != nil && !runs || runs && (was != nil || at != begins) {
			m := l.LaterAt(id, at, begins)
			m.Out = runs && !at.Known
			l.Later = append(l.Later, m)
		}
	}
	switch {
	case was == nil || !joins:
	case begins.Out:
		return false, api.Errorf(api.BadRequest, "box %s takes no part in the group any more (%s), so nobody can join behind it; %s", l.Box,
			g.LinkEnded(was).Standing, g.JoinAgainBehind("update the group without the members behind that box, and then with them"))
	case running > 0 && !begins.Known:
		return false, api.Errorf(api.BadRequest, "the routes have changed, and box %s, behind which members are now, takes part only from the "+
			"source's next message on; rocastd tries again", l.Box)
	case running > 0:
		p.relink(g, l)
	}
	return joins, nil
}

// comeTo is come for a link whose box passes frames on: each member takes part by itself. One that
// moves there takes with it what is known of it.
func (p *preparation) comeTo(g *groups.Group, l, was *groups.Link) (joins bool) {
	for _, id := range l.Members {
		if was != nil && slices.Contains(was.Members, id) {
			continue
		}
		joins = true
		if at, runs := p.memberships[id]; runs && at != g.Origin() {
			p.here[l.EndOf(p.next.Wanted, id)] = at
		}
	}
	return joins
}

// relink gives this box's end of a link another queue pair, and forgets that of the other box,
// which answers with a new one.
func (p *preparation) relink(g *groups.Group, l *groups.Link) {
	was := l.Member(g.Wanted)
	l.First = l.FirstQPN()
	l.Local = newEnd(groups.AddrOf(l.Local.IP), roce.PSN(l.Local.PSN))
	is := l.Member(g.Wanted)
	p.renamed[was.ID()] = is.ID()
	l.Remote = api.LinkEnd{IP: l.Remote.IP}
}

// weight returns how many receivers a quorum counts behind a link after the change: those that have
// all packets for which the source may still wait. As long as the link has the same queue pair, the
// weight never grows: what the path acknowledges includes only the receivers that were counted
// first.
func (p *preparation) weight(g *groups.Group, l *groups.Link, state *dataplane.GroupState) (n int) {
	if g.Wanted.Policy.Ack == feedback.AckAll || l.Passes() {
		return len(l.Members)
	}
	was := groups.LinkTo(g.Links, l.Box)
	for _, id := range l.Members {
		at, comes := p.memberships[id]
		switch {
		case comes:
		case was == nil: // it joins together with the link
			at = g.Origin()
		case !slices.Contains(was.Members, id): // it joins
			at = groups.Membership{}
		case was.LaterOf(id) == nil: // it is there as long as the link
			at = g.Origin()
		default:
			at = g.MembershipOf(id)
		}
		if hasAll(g, at, state) {
			n++
		}
	}
	if was != nil && was.Local == l.Local {
		n = min(n, was.Weight)
	}
	return n
}

// hasAll reports whether a receiver with this membership has all packets for which the source may
// still wait, as far as this box knows. Of a receiver that has joined later, the box does not know
// it after a restart or in a later turn: the membership is in PSNs of the first source, and what is
// acknowledged is not.
func hasAll(g *groups.Group, at groups.Membership, state *dataplane.GroupState) bool {
	joined := at.Known && !g.Restored && !g.Past.Switched && !at.Since.After(state.Merged.Next())
	return at == g.Origin() || joined
}

// refuseTooFew refuses a change after which a quorum counts too few receivers, or none behind a
// link: the box there would acknowledge packets that none of its receivers has.
func refuseTooFew(file *groupfile.File, links []*groups.Link) error {
	quorum, counted := int(file.Policy.Ack), len(file.Receivers)
	for _, l := range links {
		if l.Weight == 0 {
			return api.Errorf(api.BadRequest, "the quorum counts none of the receivers that would be left behind box %s: they joined later and may lack "+
				"packets that it waits for; update the group without the members behind that box, and then with them", l.Box)
		}
		counted -= len(l.Members) - l.Weight
	}
	if counted < quorum {
		return api.Errorf(api.BadRequest, "the quorum would count %d receivers and needs %d: who joins behind another box does not count at once; "+
			"update the group with the new members first, and without the old ones when they have joined", counted, quorum)
	}
	return nil
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

// undo reverses the first part of a change: the receivers that joined leave again.
func (t *Branches) undo(g *groups.Group, p *preparation) {
	var fresh []*groups.Link
	t.Groups.Lock()
	t.Groups.Changed(g)
	for _, l := range p.joining {
		if was := groups.LinkTo(g.Links, l.Box); was != nil {
			was.Version = groups.NextVersion(l.Version, time.Now())
			was.Asked = time.Time{} // the next renewal tells the box, and it is due
		} else {
			fresh = append(fresh, l)
		}
	}
	t.Groups.Unlock()
	t.Withdraw(g.Name, fresh)
	t.renewLinks(context.Background(), g)
}

// leave tells the boxes behind this one which receivers have left.
func (t *Branches) leave(ctx context.Context, g *groups.Group, p *preparation) {
	t.Groups.Lock()
	t.Groups.Changed(g)
	for _, box := range p.leaving {
		if l := groups.LinkTo(g.Links, box); l != nil {
			l.Version = groups.NextVersion(l.Version, time.Now())
			l.Asked = time.Time{}
		}
	}
	t.Groups.Unlock()
	t.Withdraw(g.Name, p.gone)
	t.renewLinks(ctx, g)
}
