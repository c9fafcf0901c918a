package branches

import (
	"context"
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
	if p := &g.Wanted.Policy; p.Evict || p.OnFatal == feedback.FatalEvict {
		// A receiver that another box has evicted must not come back elsewhere, because the source
		// no longer has what it lacks.
		t.hearBelow(ctx, g)
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
	t.Groups.Lock()
	if err = t.refuseBehind(g, p); err == nil { // the quorum may have gone on while the boxes were asked
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

// hearBelow asks the boxes behind this one what has happened to the receivers there.
func (t *Branches) hearBelow(ctx context.Context, g *groups.Group) {
	ctx, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	t.renewNow(ctx, g, g.Links)
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
