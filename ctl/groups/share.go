package groups

import (
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// share lets receivers of a group share a leg in its next version, as far as they can. Where their
// QPs stand says the data path. So the first version of a group has no shares.
func share(s *Set, g *Group, p *plan.Plan, next *mft.Group) {
	g.Sharing = edges.Sharing{}
	if s.Edges == nil {
		return
	}
	if own := s.Edges.Unfit(g.File, next.Policy, treeUnfit(g)); own != "" {
		s.Edges.Forget(g.Name)
		g.Sharing.Own = own
		return
	}
	if g.Published == nil {
		return
	}
	state, known := s.Switch.GroupState(g.ID)
	if !known {
		return
	}
	hops := make(map[groupfile.ID]nexthop.Hop, len(p.Receivers))
	for i := range p.Receivers {
		hops[p.Receivers[i].Member.ID()] = p.Receivers[i].Hop
	}
	var receivers []edges.Receiver
	for i := range next.Paths {
		path := &next.Paths[i]
		hop := hops[groupfile.ID(path.QP())]
		r := edges.Receiver{Path: path, Port: hop.PortName, Box: g.BoxBehind(groupfile.ID(path.QP()))}
		r.Idle, r.AddPSN = standsAt(&state, path)
		switch {
		case path.Box == mft.BoxAbove:
			r.Unfit = "it is the box above"
		case path.Multipath:
			r.Unfit = "it is reached by several next hops"
		case hop.Gateways != nexthop.Gateways{}:
			r.Unfit = "it is behind a router, which passes no shared copies on"
		}
		receivers = append(receivers, r)
	}
	next.Shares, g.Sharing = s.Edges.Share(g.Name, next.Memory, state.Turns, receivers)
}

// treeUnfit says why no receiver of a group shares of which other boxes carry a part, or "".
func treeUnfit(g *Group) string {
	switch {
	case g.Branch == nil && len(g.Links) == 0:
		return ""
	case g.File.IsRelayed() || slices.ContainsFunc(g.Links, (*Link).Passes):
		return "a box passes a part of the group on"
	case slices.ContainsFunc(g.Wanted.Receivers, IsBoth):
		return "other boxes carry a part of the group, and a member of it may send"
	}
	return ""
}

// relayShares lets receivers share the leg to a box that passes on what is for them: those with
// whom the link began, in the first turn, as long as none of them is out. The box there maps copies
// for all of them. A box that passes frames on itself does as the box above says.
func relayShares(s *Set, g *Group, next *mft.Group) {
	var state dataplane.GroupState
	for _, l := range g.Links {
		if !l.Passes() || l.Remote.QPN == 0 {
			continue
		}
		if relays := next.Relay != nil; !relays && state.Group == nil {
			var known bool
			if state, known = s.Switch.GroupState(g.ID); g.Published == nil || !known || state.Turns > 0 {
				return
			}
		}
		if members, leg := relayMembers(g, l, next, &state); len(members) > 1 {
			next.Shares = append(next.Shares, leg.Shared(leg.Dst, roce.QPN(l.Remote.QPN), members))
		}
	}
}

// relayMembers returns the receivers that share the leg to the box behind a link, and one of their
// paths. There are none if the box would map copies for one that must not get them.
func relayMembers(g *Group, l *Link, next *mft.Group, state *dataplane.GroupState) (members []mft.QP, leg *mft.Path) {
	for _, r := range l.Relays {
		if !r.Shares {
			continue
		}
		end := mft.QP(l.EndOf(g.Wanted, r.ID))
		i := slices.IndexFunc(next.Paths, func(p mft.Path) bool { return p.QP() == end }) // not sorted yet
		if i < 0 || !next.Paths[i].Resolved() {
			return nil, nil
		}
		leg = &next.Paths[i]
		if next.Relay == nil {
			why, add := standsAt(state, leg)
			if why != "" || add != uint32(leg.FirstPSN-g.File.Source.FirstPSN)&0xFFFFFF {
				return nil, nil
			}
		}
		members = append(members, leg.QP())
	}
	return members, leg
}

// ShareLinks publishes a group again whose links have another end than before.
func ShareLinks(s *Set, g *Group) {
	if g.Published != nil {
		shareAnew(s, g)
	}
}

// standsAt returns what the PSNs of a receiver's QP are above those of the source, modulo 2^24, or
// why the receiver gets no data.
func standsAt(state *dataplane.GroupState, path *mft.Path) (why string, addPSN uint32) {
	was := state.Group.FindPath(path.Dst, path.RemoteQPN)
	if was < 0 {
		return notJoined, 0
	}
	if p := &state.Group.Paths[was]; p.DestQPN != path.DestQPN || p.FirstPSN != path.FirstPSN {
		return notJoined, 0 // another QP
	}
	return idle(state, was), uint32(path.FirstPSN-state.Since[was]) & 0xFFFFFF
}

const notJoined = "it has not joined yet"

// idle says why the receiver of a path gets no data, or "" if it gets some.
func idle(state *dataplane.GroupState, path int) string {
	switch part := state.Paths[path].Part; {
	case state.Group.Paths[path].QP() == state.Source:
		return "it is the source at present"
	case part.IsToCome():
		return notJoined
	case part == feedback.PartActive, part == feedback.PartUnknown:
		return ""
	}
	return "it takes no part any more"
}

// AskEdge answers the edge of a host, and publishes the groups again whose receivers may share in
// another way then. q is nil when the same question is answered again: what it confirmed may no
// longer be so. changed is closed when the answer is another one.
func (s *Set) AskEdge(at netip.Addr, q *api.EdgeQuestion) (answer api.EdgeAnswer, changed <-chan struct{}) {
	s.Lock()
	defer s.Unlock()
	if q != nil {
		for _, name := range s.Edges.Ask(time.Now(), at, *q) {
			if g := s.Named(name); g != nil && g.Published != nil {
				shareAnew(s, g)
			}
		}
	}
	return s.Edges.Answer(at)
}

// ShareAsNow lets the receivers of a group share as they take part now. One that has joined comes
// to its share. If one has been taken out, its share gets another generation, because its edge
// would map copies for it all the same; until then nothing leaves by that leg. So it is when
// another turn has begun. What the data path refused is tried again for all groups, also for those
// that share legs to boxes only.
func (s *Set) ShareAsNow(g *Group) {
	if g.Published == nil || !g.shareLate && (s.Edges == nil || g.Sharing.Own != "") {
		return
	}
	state, known := s.Switch.GroupState(g.ID)
	if !known {
		return
	}
	changed := g.shareLate || state.Turns != g.Sharing.Turn || slices.ContainsFunc(state.Shares, func(is dataplane.ShareState) bool { return is.Retired })
	for i := range state.Paths {
		was := g.Sharing.Receivers[state.Group.Paths[i].QP()]
		changed = changed || idle(&state, i) != was.Idle
	}
	if changed {
		shareAnew(s, g)
	}
}

// replace gives the data path the next version of a group, unless err says that it could not be
// built. After an error the receivers are shown to share as before, because in the data path they
// do. But the edges may have been told of the next version, so the next look shares anew.
func replace(s *Set, g *Group, next *mft.Group, err error, was edges.Sharing) error {
	if err == nil {
		err = s.Switch.Replace(g.ID, next)
	}
	if g.shareLate = err != nil; g.shareLate {
		g.Sharing = was
	}
	return err
}

// shareAnew publishes a group as it is, with those who share now. After an error it goes on as
// before.
func shareAnew(s *Set, g *Group) {
	if err := publishShares(s, g); err != nil {
		s.Log.Error("could not change which receivers of a group share their copies", zap.String("group", g.Name), zap.Error(err))
	}
}

// publishShares is shareAnew for a caller that says itself what is wrong.
func publishShares(s *Set, g *Group) error {
	was := g.Sharing
	next, err := s.build(g, &g.Plan)
	if err = replace(s, g, next, err, was); err != nil {
		return err
	}
	g.Published = next
	s.Changed(g)
	return nil
}
