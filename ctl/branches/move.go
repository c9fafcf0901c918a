package branches

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/feedback"
)

// rethink plans a group's tree again after routes have changed. Members stay where they are as long
// as their neighbour is among their next hops.
func (t *Branches) rethink(ctx context.Context, g *groups.Group) {
	t.Groups.Lock()
	was := g.TreeProblem
	t.Groups.Unlock()
	err := t.move(ctx, g, g.Wanted, g.Branch, nil)
	t.Groups.Lock()
	defer t.Groups.Unlock()
	if err == nil {
		if was != "" {
			t.Restored(g, "its members are where their routes lead again")
		}
		return
	}
	err = tellable(err)
	if g.TreeProblem != err.Error() {
		t.Groups.AddEvent(api.Event{Kind: api.GroupDegraded, Group: g.Name, Cause: "it cannot follow its routes: " + err.Error()})
		t.Log.Warn("routes have changed, and the group could not follow them; rocastd tries again",
			zap.String("group", g.Name), zap.Error(err))
	}
	g.TreeProblem, t.moved[g] = err.Error(), struct{}{}
	t.Groups.Changed(g)
}

// move moves members to other boxes if their routes lead there now. It also takes in members that
// come from other boxes: then file and next are what the upper box asks for, and the link to that
// box has another queue pair.
//
// The group begins again as after a restart, here and at each box to which a member moves, because
// nobody knows which packets that member has. If such a box has the group already, the link to it
// gets another queue pair: what the box acknowledged before does not include the member.
func (t *Branches) move(ctx context.Context, g *groups.Group, file *groupfile.File, next *groups.Branch, came map[groupfile.ID]groups.Membership) error {
	// A receiver that another box has evicted must not come back elsewhere, because the source no
	// longer has what it lacks.
	evicts := g.Wanted.Policy.Evict || g.Wanted.Policy.OnFatal == feedback.FatalEvict
	if evicts {
		t.hearBelow(ctx, g, g.Links)
	}
	p, err := t.prepareTold(ctx, g, file, next, came)
	if err == nil {
		t.Groups.Lock()
		err = t.refuseBehind(g, p)
		t.Groups.Unlock()
	}
	if err != nil {
		return err
	}
	if !p.moved && came == nil {
		t.Groups.Lock()
		g.TreeProblem = ""
		t.Groups.Changed(g)
		t.Groups.Unlock()
		return nil
	}
	joined, err := t.askAll(ctx, p.errand, p.joining)
	if err != nil {
		t.undo(g, p)
		return err
	}
	p.join(joined)
	if evicts { // asking may have taken longer than a receiver may be silent
		t.hearBelow(ctx, g, p.left(g, g.Links))
		e := p.errand
		e.hear = true
		hearing, cancel := context.WithTimeout(ctx, hearWithin)
		again, _ := t.askAll(hearing, e, p.left(g, joined))
		cancel()
		p.join(slices.DeleteFunc(again, func(l *groups.Link) bool { return l.Problem != "" }))
	}
	t.Groups.Lock()
	t.Groups.Observe(g)
	if err = p.refuseOut(g); err == nil {
		err = t.refuseBehind(g, p) // the quorum may have gone on while the boxes were asked
	}
	if err == nil {
		p.onto(g)
		p.next.SetLinks(p.links)
		p.next.TreeProblem = ""
		var text []byte // nil: the stored file stays
		if file != g.Wanted {
			text = file.Text()
		}
		err = t.Groups.Republish(g, &p.next, text, p.amend)
	}
	t.Groups.Unlock()
	if err != nil {
		t.undo(g, p)
		return err
	}
	t.Groups.Events.Add(api.Event{Kind: api.RouteChanged, Group: g.Name, Cause: "some of its members are reached by another way now"})
	t.Log.Info("members are reached by another way now", zap.String("group", g.Name), zap.Int("neighbours", len(g.Links)))
	t.leave(ctx, g, p)
	return nil
}

// join enters the answers of the boxes into the links of the change.
func (p *preparation) join(joined []*groups.Link) {
	for _, l := range joined {
		into := groups.LinkTo(p.links, l.Box)
		into.Remote, into.Absent, into.Problem, into.Asked, into.Version, into.Begun = l.Remote, l.Absent, l.Problem, l.Asked, l.Version, true
		into.Later = l.Later
	}
}

// amend enters into the chronicle the members that have moved here, and the new IDs of links.
func (p *preparation) amend(past *chronicle.Chronicle) {
	for was, is := range p.renamed {
		past.Rename(was, is)
	}
	for id, at := range p.here {
		at.Enter(past, id)
	}
}

// hearWithin bounds the wait for boxes that members leave: the members get no data meanwhile.
const hearWithin = 500 * time.Millisecond

// hearBelow asks the boxes behind links what has happened to the receivers there.
func (t *Branches) hearBelow(ctx context.Context, g *groups.Group, links []*groups.Link) {
	ctx, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	t.renewNow(ctx, g, links, true)
}

// left returns those of some links that members leave, if the boxes there have answered so far.
// list has the links of the group, or those that members join, as the boxes there know them now.
func (p *preparation) left(g *groups.Group, list []*groups.Link) (links []*groups.Link) {
	for _, l := range list {
		was, joins := groups.LinkTo(g.Links, l.Box), groups.LinkTo(p.joining, l.Box)
		leaves := func(id groupfile.ID) bool { _, moves := p.memberships[id]; return moves }
		if was != nil && l.Problem == "" && slices.ContainsFunc(was.Members, leaves) && (joins == nil || l != was) {
			links = append(links, l)
		}
	}
	return links
}

// refuseOut refuses a move if one that moves, or a link to which one moves, has gone out of the
// group since the move was planned. When the move is tried again, it is planned with that. The
// caller has locked the groups.
func (p *preparation) refuseOut(g *groups.Group) error {
	var out []netip.Addr
	for id, at := range p.memberships {
		if !at.Known || g.Wanted.Receiver(id) < 0 {
			continue // of one that came from another box the box above knows it
		}
		is := g.MembershipOf(id)
		if l := groups.LinkOf(g.Links, id); l != nil {
			if l = groups.LinkTo(p.links, l.Box); l != nil { // as its box has answered
				m := l.LaterOf(id)
				is.Out = is.Out || m != nil && m.Out
			}
		}
		if is.Out {
			out = append(out, id.IP)
		}
	}
	for was := range p.renamed {
		if g.OwnMembership(was).Out {
			out = append(out, was.IP)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return api.Errorf(api.BadRequest, "the routes have changed, and %v has gone out of the group while other boxes prepared for the move; rocastd tries again",
		slices.MinFunc(out, netip.Addr.Compare))
}

// refuseBehind refuses to move a member behind a link with other members if the quorum has gone on
// without the member for some packets: the source may no longer have these packets, and the whole
// link would stay behind. The caller has locked the groups.
func (t *Branches) refuseBehind(g *groups.Group, p *preparation) error {
	if g.Wanted.Policy.Ack == feedback.AckAll || len(p.sharing) == 0 {
		return nil
	}
	state, _ := t.Groups.Switch.GroupState(g.ID)
	for _, id := range p.sharing {
		own := id
		if l := groups.LinkOf(g.Links, id); l != nil {
			m := l.Member(g.Wanted)
			own = m.ID()
		}
		at := g.Published.FindPath(own.IP, own.RemoteQPN)
		if at < 0 || at >= len(state.Paths) || state.Paths[at].Part != feedback.PartActive || state.Paths[at].Acked.Before(state.Merged) {
			return api.Errorf(api.BadRequest, "the routes have changed, and %v may lack packets that the quorum did not wait for; if this stays, "+
				"update the group without it, and then with it and the psn that its QP expects", id.IP)
		}
	}
	return nil
}
