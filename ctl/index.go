package ctl

import (
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/roce"
)

// index finds groups by their members. A QP has one peer, so it belongs to at most one group.
type index struct {
	byQP map[netip.Addr]map[roce.QPN]*group
	// failed are the stored groups that will be retried. Another group may use the same QPs; that
	// may be the reason why the group failed.
	failed map[*group]struct{}
}

func newIndex() index {
	return index{byQP: map[netip.Addr]map[roce.QPN]*group{}, failed: map[*group]struct{}{}}
}

// refuseSharedQP refuses a file if one of its QPs belongs to a group other than except.
func (x *index) refuseSharedQP(f *groupfile.File, except *group) error {
	for _, m := range f.Members() {
		if g := x.byQP[m.IP][m.QPN]; g != nil && g != except {
			return yamldoc.Errorf(m.Line, "QP %d of %v is already in group %s, and a queue pair has only one peer; "+
				"write another qpn, or remove group %s",
				m.QPN, m.IP, g.name, g.name)
		}
	}
	return nil
}

func (x *index) add(g *group) {
	for _, m := range g.file.Members() {
		if x.byQP[m.IP] == nil {
			x.byQP[m.IP] = map[roce.QPN]*group{}
		}
		x.byQP[m.IP][m.QPN] = g
	}
}

func (x *index) addFailed(g *group) { x.failed[g] = struct{}{} }

func (x *index) hasFailed(g *group) bool {
	_, has := x.failed[g]
	return has
}

// remove reports whether the index contained the group.
func (x *index) remove(g *group) (had bool) {
	if x.hasFailed(g) {
		delete(x.failed, g)
		return true
	}
	for _, m := range g.file.Members() {
		if x.byQP[m.IP][m.QPN] != g {
			continue
		}
		had = true
		if delete(x.byQP[m.IP], m.QPN); len(x.byQP[m.IP]) == 0 {
			delete(x.byQP, m.IP)
		}
	}
	return had
}

// reachedBy returns the groups that have a member at one of the addresses.
func (x *index) reachedBy(addrs []netip.Addr) map[*group]struct{} {
	found := map[*group]struct{}{}
	for _, addr := range addrs {
		for _, g := range x.byQP[addr] {
			found[g] = struct{}{}
		}
	}
	for g := range x.failed {
		if slices.ContainsFunc(g.file.Members(), func(m groupfile.Member) bool { return slices.Contains(addrs, m.IP) }) {
			found[g] = struct{}{}
		}
	}
	return found
}
