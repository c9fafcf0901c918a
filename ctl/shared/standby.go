package shared

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// A desired group with addressing: switch-ip goes with its address. Another program, for example
// keepalived, moves the address between boxes together with a MAC of its own. The box that has the
// address carries the group, and the others stand by.
//
// The address decides at once, and etcd is told afterwards: etcd may need seconds until it has a
// leader again if one of its members has died with the box, and a lease ends after seconds only.

// takeOverWaits is how long a take-over waits for the kernel to resolve the members.
const takeOverWaits = 100 * time.Millisecond

// AddressesChanged hears that addresses of the box have come or gone; nil: any may have.
func (s *Shared) AddressesChanged(changes []address.Change) {
	for _, a := range changes {
		if a.Gone {
			s.markAddressGone(func(g *groups.Group) bool { return g.Wanted.IP == a.IP })
		}
	}
	if changes == nil {
		s.markAddressGone(func(*groups.Group) bool { return true })
	}
	s.work.addressesChanged(changes)
}

// markAddressGone notes which groups begin again as after a restart, even if their address has come
// back by the time that they are looked at.
func (s *Shared) markAddressGone(isConcerned func(*groups.Group) bool) {
	s.Groups.Lock()
	defer s.Groups.Unlock()
	for _, g := range s.Groups.All() {
		if g.Wanted != nil && g.Wanted.Addressing == mft.BySwitchIP && g.Kept && g.Branch == nil && isConcerned(g) {
			s.of(g).addressGone = true
		}
	}
}

// addressState reports whether etcd does not know yet that this box carries a group, and whether
// the group's address was gone meanwhile.
func (s *Shared) addressState(name string) (untold, gone bool) {
	s.Groups.Lock()
	defer s.Groups.Unlock()
	g := s.Groups.Named(name)
	if g == nil {
		return false, false
	}
	c := s.of(g)
	return c.untold, c.addressGone
}

// standStill notes that a group of this box has its address on another box or nowhere, and that no
// other box can carry it; or that the address is here again.
func (s *Shared) standStill(g *groups.Group, away bool) {
	if g == nil {
		return
	}
	s.Groups.Lock()
	defer s.Groups.Unlock()
	was := g.Away
	s.of(g).addressGone, g.Away = away, ""
	if away {
		g.Away = fmt.Sprintf("the box does not have its address %v, and no other box can carry it, because its source has switched; "+
			"give the address back to this box, or remove the group and create it again with fresh QPs and PSNs", g.Wanted.IP)
	}
	if g.Away == was {
		return
	}
	s.Groups.Changed(g)
	if away {
		s.Groups.AddEvent(api.Event{Kind: api.GroupDegraded, Group: g.Name, Cause: g.Away})
	} else {
		s.Restored(g, "the box has its address again")
	}
}

// addMoved adds the groups that go with an address that has come or gone.
func (s *Shared) addMoved(ctx context.Context, p pending) {
	if len(p.addresses) == 0 && !p.anyAddress && !p.first {
		return
	}
	for _, name := range s.Desired.Names() {
		e, _ := s.Desired.Entry(name)
		if !e.Wanted() {
			continue
		}
		file, err := s.parseDesired(ctx, name, e)
		if err == nil && file.Addressing == mft.BySwitchIP && (p.anyAddress || p.first || p.addresses[file.IP]) {
			p.names[name] = true
		}
	}
}

// away reports whether a desired group goes with an address that this box does not have.
func (s *Shared) away(f *groupfile.File) (bool, error) {
	if f.Addressing != mft.BySwitchIP {
		return false, nil
	}
	local, err := s.IsLocal(f.IP)
	return !local && err == nil, err
}

// RefuseTree refuses members behind other boxes for a group that goes with its address: a box that
// gets the address would have to be asked for them within the time that the take-over may take.
func RefuseTree(g *groups.Group, links []*groups.Link) error {
	f := g.Wanted
	if len(links) == 0 || !g.Kept || g.Branch != nil || f.Addressing != mft.BySwitchIP {
		return nil
	}
	return yamldoc.Errorf(f.Lines["addressing"], "addressing is %v, so with store: etcd the group goes with its address from box to box, and "+
		"some members are behind other boxes; use addressing: group-ip", f.Addressing)
}

// reportsLater reports whether this box has only just taken a group over. Then etcd is told when
// the other groups that go with the address have been taken over too: it may need seconds to
// answer.
func (s *Shared) reportsLater(name string) bool {
	s.Groups.Lock()
	g := s.Groups.Named(name)
	just := g != nil && !s.of(g).untold
	if just {
		s.of(g).untold = true
	}
	s.Groups.Unlock()
	if just {
		s.work.look(name, true)
	}
	return just
}

// reportTakenOver makes this box the root of a group that it carries because it has the group's
// address. While etcd does not answer, the group runs on.
func (s *Shared) reportTakenOver(ctx context.Context, name string, e desired.Entry) (told bool) {
	taken, err := s.Desired.TakeOver(ctx, name, e)
	s.Groups.Lock()
	defer s.Groups.Unlock()
	if g := s.Groups.Named(name); g != nil {
		c := s.of(g)
		if err != nil && !c.untoldInLog {
			s.Log.Warn("this box carries a group whose address it has, and could not tell the other boxes; rocastd tries again",
				zap.String("group", name), zap.Error(err))
		}
		c.untold, c.untoldInLog = !taken, err != nil
	}
	if taken {
		s.MembersChanged(name) // what happened before etcd knew
		s.Log.Info("this box has taken a group over with the group's address", zap.String("group", name))
	}
	return taken
}
