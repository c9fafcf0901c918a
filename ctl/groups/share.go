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
	"github.com/rocast/rocast/mft"
)

// share lets receivers of a group share a leg in its next version, as far as they can. book is nil
// where nothing is shared.
func share(book *edges.Book, g *Group, p *plan.Plan, next *mft.Group) {
	g.Sharing = edges.Sharing{}
	if book == nil {
		return
	}
	if own := book.Unfit(g.File, next.Policy, g.Branch == nil && len(g.Links) == 0); own != "" {
		book.Forget(g.Name)
		g.Sharing.Own = own
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
		r := edges.Receiver{Path: path, Port: hop.PortName, AddPSN: uint32(path.FirstPSN-next.Source.FirstPSN) & 0xFFFFFF}
		switch {
		case g.Past.Standing(groupfile.ID(path.QP())) != "":
			r.Unfit = "it has not taken part all the time"
		case path.Box != mft.NoBox:
			r.Unfit = "it is a box"
		case path.Multipath:
			r.Unfit = "it is reached by several next hops"
		case hop.Gateways != nexthop.Gateways{}:
			r.Unfit = "it is behind a router, which passes no shared copies on"
		}
		receivers = append(receivers, r)
	}
	next.Shares, g.Sharing = book.Share(g.Name, next.Memory, receivers)
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

// ShareWithout gives the shares of a group another generation from which a member has been taken
// out: its edge would map copies for it all the same. Until then nothing leaves by their legs.
func (s *Set) ShareWithout(g *Group) {
	if g.Published == nil || len(g.Published.Shares) == 0 {
		return
	}
	state, _ := s.Switch.GroupState(g.ID)
	if slices.ContainsFunc(state.Shares, func(is dataplane.ShareState) bool { return is.Retired }) {
		shareAnew(s, g)
	}
}

// shareAnew publishes a group as it is, with those who share now. After an error it goes on as
// before.
func shareAnew(s *Set, g *Group) {
	next, err := s.build(g, &g.Plan)
	if err == nil {
		err = s.Switch.Replace(g.ID, next)
	}
	if err != nil {
		s.Log.Error("could not change which receivers of a group share their copies", zap.String("group", g.Name), zap.Error(err))
		return
	}
	g.Published = next
	s.Changed(g)
}
