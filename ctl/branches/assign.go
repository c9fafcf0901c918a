package branches

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/tree"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// assign returns the neighbour of each member of a file that is behind one. A member that this box
// reaches by itself is left out. now has the group's present links, and visited the boxes on the
// way from the root to this box.
func (t *Branches) assign(f *groupfile.File, now []*groups.Link, visited []string) (map[groupfile.ID]string, error) {
	if len(t.Neighbours) == 0 && !slices.ContainsFunc(f.Receivers, func(m groupfile.Member) bool { return m.Via != "" }) {
		return nil, nil
	}
	if err := t.refuseFarSource(f); err != nil {
		return nil, err
	}
	members := make([]tree.Member, len(f.Receivers))
	for i := range f.Receivers {
		m := &f.Receivers[i]
		through, err := t.Through(m, visited)
		if err != nil {
			return nil, err
		}
		members[i].Through = through
		if l := groups.LinkOf(now, m.ID()); l != nil {
			members[i].Now = l.Box
			// A member to which no route leads stays behind its box.
			if len(through) == 0 && t.Groups.NextHops.Hop(m.IP).Interface == 0 {
				members[i].Through = []string{l.Box}
			}
		}
	}
	behind := map[groupfile.ID]string{}
	for i, box := range tree.Plan(f.Name, members, t.Groups.Load) {
		if box != "" {
			behind[f.Receivers[i].ID()] = box
		}
	}
	if len(behind) > 0 && f.Addressing == mft.ByVirtualQPN {
		return nil, yamldoc.Errorf(f.Lines["addressing"], "addressing is %v and some members are behind other boxes, where that "+
			"address does not lead to the box; use addressing: group-ip", f.Addressing)
	}
	if len(behind) > 0 && f.Table {
		return nil, yamldoc.Errorf(f.Lines["memory"], "memory is a table and some members are behind other boxes, which learn of memory only "+
			"by the group file; list the regions there (at most %d)", groupfile.MaxRegions)
	}
	if p := &f.Policy; len(behind) > 0 && p.Ack != feedback.AckAll && p.Switch == feedback.SwitchForce {
		return nil, yamldoc.Errorf(f.Lines["source-switch"], "source-switch is force, ack is a quorum and some members are behind other boxes, "+
			"which would leave receivers behind that the quorum counts; use source-switch: guard")
	}
	return behind, nil
}

// refuseFarSource refuses a group whose first source is behind another box.
func (t *Branches) refuseFarSource(f *groupfile.File) error {
	through, err := t.Through(&f.Source, nil)
	if err == nil && len(through) > 0 {
		err = yamldoc.Errorf(f.Source.Line, "the source %v is behind box %s; create the group on the box to which the source "+
			"is attached", f.Source.IP, through[0])
	}
	return err
}

// Through returns the neighbours by which a member is reached, without the boxes in visited. There
// is none if this box reaches the member by itself.
func (t *Branches) Through(m *groupfile.Member, visited []string) (boxes []string, err error) {
	switch {
	case m.RemoteIP.IsValid(): // the other end of a link
		return nil, nil
	case m.Via != "" && t.neighbourNamed(m.Via) == nil:
		return nil, yamldoc.Errorf(m.Line, "the member at %v has via %q, which is not a neighbour of this box; correct via, or add "+
			"the box to neighbours: in the config", m.IP, m.Via)
	case m.Via != "":
		boxes = []string{m.Via}
	default:
		if boxes = t.behind(m.IP); len(boxes) == 0 {
			boxes = t.gatewaysTo(m.IP)
		}
	}
	back := slices.DeleteFunc(slices.Clone(boxes), func(box string) bool { return !slices.Contains(visited, box) })
	boxes = slices.DeleteFunc(boxes, func(box string) bool { return slices.Contains(back, box) })
	if len(back) > 0 && len(boxes) == 0 {
		return nil, yamldoc.Errorf(m.Line, "the way to %v leads from box %s back to box %s (%s); correct the routes",
			m.IP, t.Box, back[0], strings.Join(append(slices.Clone(visited), t.Box, back[0]), ", "))
	}
	return boxes, nil
}

// behind returns the neighbours that the config says an address is behind: those with the longest
// network that contains it.
func (t *Branches) behind(addr netip.Addr) (boxes []string) {
	longest := 0
	for _, n := range t.Neighbours {
		for _, network := range n.Behind {
			if !network.Contains(addr) || network.Bits() < longest {
				continue
			}
			if network.Bits() > longest {
				longest, boxes = network.Bits(), nil
			}
			if !slices.Contains(boxes, n.Name) {
				boxes = append(boxes, n.Name)
			}
		}
	}
	return boxes
}

// gatewaysTo returns the neighbours that are next hops to an address.
func (t *Branches) gatewaysTo(addr netip.Addr) (boxes []string) {
	hop := t.Groups.NextHops.Hop(addr)
	for _, n := range t.Neighbours {
		if hop.Gateways.Has(n.Address) {
			boxes = append(boxes, n.Name)
		}
	}
	return boxes
}

// linkAddress returns this box's address towards a neighbour.
func (t *Branches) linkAddress(box string) (netip.Addr, error) {
	n := t.neighbourNamed(box)
	if n == nil {
		return netip.Addr{}, fmt.Errorf("box %s is not a neighbour of box %s; add it to neighbours: in the config there", box, t.Box)
	}
	if n.Local.IsValid() {
		return n.Local, nil
	}
	hop := t.Groups.NextHops.Hop(n.Address)
	if !hop.Source.IsValid() {
		return netip.Addr{}, fmt.Errorf("box %s has no address towards neighbour %s (%s); add a route to %v, or local: to the "+
			"neighbour in the config", t.Box, box, hop.Reason, n.Address)
	}
	return hop.Source, nil
}

// linksFor returns the links that a file needs, each with its members. A link to a neighbour that
// the group already has keeps its ends. begins: the group is new, and all of it begins with the
// source's first packet. The caller has locked the groups.
func (t *Branches) linksFor(f *groupfile.File, now []*groups.Link, visited []string, begins bool) (next []*groups.Link, err error) {
	behind, err := t.assign(f, now, visited)
	if err != nil {
		return nil, err
	}
	for _, m := range f.Receivers {
		box := behind[m.ID()]
		if box == "" {
			continue
		}
		l := groups.LinkTo(next, box)
		if l == nil {
			if begins {
				err = refuseHasty(f, t.Box)
			}
			if err == nil {
				l, err = t.linkFor(box, f, now)
			}
			if err != nil {
				return nil, err
			}
			next = append(next, l)
		}
		l.Members = append(l.Members, m.ID())
	}
	if passes(f, behind, now) {
		if err := passOn(f, next, now, begins); err != nil {
			return nil, err
		}
	}
	for _, l := range next {
		if l.Weight == 0 {
			l.Weight = len(l.Members)
		}
	}
	return next, nil
}

// refuseHasty refuses that a box carries a part of a group whose silent receivers are evicted so
// soon that the box behind could not be faster: see below. A group that runs already is not
// refused: an older release has made it, and it may have to follow its routes, or another box takes
// it over.
func refuseHasty(f *groupfile.File, box string) error {
	p := &f.Policy
	if !groups.IsHasty(p) {
		return nil
	}
	return yamldoc.Errorf(f.Lines["silent-after"], "silent-after is %v at box %s and evict is true, and a box behind it needs half of that, which is "+
		"%v at least, or one silent receiver would take all others there along; double silent-after", p.SilentAfter, box, feedback.MinSilentAfter)
}

// passes reports whether the boxes behind this one pass frames on. They do where a quorum counts
// each of their receivers, unless one of these may send: then its box has to merge. What the links
// of a group do already, new ones do too, and a box that passes frames on has none behind it that
// merges.
func passes(f *groupfile.File, behind map[groupfile.ID]string, now []*groups.Link) bool {
	switch {
	case f.IsRelayed():
		return true
	case len(now) > 0:
		return now[0].Passes()
	case f.Policy.Ack == feedback.AckAll:
		return false
	}
	return !slices.ContainsFunc(f.Receivers, func(m groupfile.Member) bool { return groups.IsBoth(m) && behind[m.ID()] != "" })
}

// passOn gives each member behind a link its QPN there: the one that it has, or a new one. Those of
// a new link share copies there if they take part since the source's first packet, which begins
// says, or the box above.
func passOn(f *groupfile.File, links, now []*groups.Link, begins bool) error {
	for _, l := range links {
		was := groups.LinkTo(now, l.Box)
		l.Relays = nil
		for _, id := range l.Members {
			m := &f.Receivers[f.Receiver(id)]
			if groups.IsBoth(*m) {
				return yamldoc.Errorf(m.Line, "the member at %v has role both and is behind box %s, which passes on what its receivers answer "+
					"because ack is a quorum; give it role: receiver, or remove the group and create it again", m.IP, l.Box)
			}
			next := groups.Relayed{ID: id, QPN: drawQPN(), Shares: m.RelayShares || was == nil && begins && !f.IsRelayed()}
			if was != nil {
				if at := slices.IndexFunc(was.Relays, func(r groups.Relayed) bool { return r.ID == id }); at >= 0 {
					next = was.Relays[at]
				}
			}
			l.Relays = append(l.Relays, next)
		}
	}
	return nil
}

// linkFor returns a copy of the present link to a box without members, or a new link.
func (t *Branches) linkFor(box string, f *groupfile.File, now []*groups.Link) (*groups.Link, error) {
	if was := groups.LinkTo(now, box); was != nil {
		next := *was
		next.Members = nil
		return &next, nil
	}
	local, err := t.linkAddress(box)
	if err != nil {
		return nil, err
	}
	remote := t.neighbourNamed(box).Address
	if remote.Is4() != f.IP.Is4() {
		return nil, yamldoc.Errorf(f.Lines["ip"], "ip is %v and members are behind neighbour %s, whose address is %v; the links of a group are "+
			"of its family, so write such an address in neighbours: of both boxes, or write a group of the other family", f.IP, box, remote)
	}
	return &groups.Link{
		Box: box, Local: newEnd(local, f.Source.FirstPSN),
		Remote: api.LinkEnd{IP: remote.String()}, // its QPN comes with the box's answer
	}, nil
}

// hasMoved reports whether a member of a running group may be behind another neighbour than before.
func (t *Branches) hasMoved(g *groups.Group) bool {
	if len(t.Neighbours) == 0 {
		return false
	}
	var visited []string
	if g.Branch != nil {
		visited = g.Branch.Visited
	}
	behind, err := t.assign(g.Wanted, g.Links, visited)
	if err != nil {
		return true // rethink tells why
	}
	for i := range g.Wanted.Receivers {
		id, box := g.Wanted.Receivers[i].ID(), ""
		if l := groups.LinkOf(g.Links, id); l != nil {
			box = l.Box
		}
		if behind[id] != box {
			return true
		}
	}
	return false
}

// NoteMove notes a group whose members may be behind other neighbours than before, so that Run
// plans its tree again. The caller has locked the groups.
func (t *Branches) NoteMove(g *groups.Group) {
	if t.hasMoved(g) {
		t.moved[g] = struct{}{}
	}
}
