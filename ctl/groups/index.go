package groups

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// index finds groups by their members, and by the keys of their frames. A QP has one peer, so it
// belongs to at most one group, and a frame does too.
type index struct {
	byQP  map[netip.Addr]map[roce.QPN]*Group
	byKey map[mft.Key]*Group
	// coming are groups that are being stored: their QPs and keys are taken, and nothing else is
	// set up.
	coming map[*Group]struct{}
	// failed are the stored groups that will be retried. Another group may use the same QPs and
	// keys; that may be the reason why the group failed.
	failed map[*Group]struct{}
	// trees are the groups with links or an upper box, and linked is the number of groups that have
	// a link to a neighbour.
	trees  map[*Group]struct{}
	linked map[string]int
}

func newIndex() index {
	return index{byQP: map[netip.Addr]map[roce.QPN]*Group{}, byKey: map[mft.Key]*Group{}, coming: map[*Group]struct{}{}, failed: map[*Group]struct{}{}, trees: map[*Group]struct{}{}, linked: map[string]int{}}
}

// RefuseTaken refuses a file with a QP or a key that belongs to a group other than except. own is
// this box's part of the group, with links in place of members: its keys are looked at; nil: those
// of the file.
//
// Callers ask before they store anything, or take anything out of the data path. A restart begins
// stored groups in the order of their names, so it might begin the group that was refused instead
// of the one that ran.
func (x *index) RefuseTaken(f, own *groupfile.File, except *Group) error {
	for _, m := range f.Members() {
		if g := x.byQP[m.IP][m.QPN]; g != nil && g != except {
			return yamldoc.Errorf(m.Line, "QP %d of %v is already in group %s, and a queue pair has only one peer; "+
				"write another qpn, or remove group %s",
				m.QPN, m.IP, g.Name, g.Name)
		}
	}
	if own == nil {
		own = f
	}
	for _, k := range plan.Keys(own) {
		if g := x.byKey[k]; g != nil && g != except {
			return yamldoc.Errorf(f.Lines["qpn"], "group %s: %v is taken by group %s; write another qpn (or remoteQPN of a member), or another ip",
				f.Name, k, g.Name)
		}
	}
	return nil
}

func (x *index) add(g *Group) {
	x.addTree(g)
	x.take(g)
}

// reserve lets no other group have the QPs and keys of a group that is about to begin, until
// release.
func (x *index) reserve(g *Group) error {
	if err := x.RefuseTaken(g.Wanted, g.File, nil); err != nil {
		return err
	}
	x.coming[g] = struct{}{}
	x.take(g)
	return nil
}

func (x *index) release(g *Group) {
	delete(x.coming, g)
	x.giveBack(g)
}

// take gives a group its QPs and keys.
func (x *index) take(g *Group) {
	for _, k := range plan.Keys(g.File) {
		x.byKey[k] = g
	}
	for _, m := range g.allMembers() {
		if x.byQP[m.IP] == nil {
			x.byQP[m.IP] = map[roce.QPN]*Group{}
		}
		x.byQP[m.IP][m.QPN] = g
	}
}

func (x *index) addFailed(g *Group) {
	x.addTree(g)
	x.failed[g] = struct{}{}
}

func (x *index) addTree(g *Group) {
	if g.Branch != nil || len(g.Links) > 0 {
		x.trees[g] = struct{}{}
	}
	for _, l := range g.Links {
		x.linked[l.Box]++
	}
}

func (x *index) removeTree(g *Group) {
	delete(x.trees, g)
	for _, l := range g.Links {
		if x.linked[l.Box]--; x.linked[l.Box] == 0 {
			delete(x.linked, l.Box)
		}
	}
}

func (x *index) hasFailed(g *Group) bool {
	_, has := x.failed[g]
	return has
}

// remove reports whether the index contained the group.
func (x *index) remove(g *Group) (had bool) {
	if x.hasFailed(g) {
		x.removeTree(g)
		delete(x.failed, g)
		return true
	}
	if had = x.giveBack(g); had {
		x.removeTree(g)
	}
	return had
}

// giveBack is the reverse of take. It reports whether the group had QPs.
func (x *index) giveBack(g *Group) (had bool) {
	for _, k := range plan.Keys(g.File) {
		if x.byKey[k] == g {
			delete(x.byKey, k)
		}
	}
	for _, m := range g.allMembers() {
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

// ReachedBy returns the groups that have a member at one of the addresses.
func (x *index) ReachedBy(addrs []netip.Addr) map[*Group]struct{} {
	found := map[*Group]struct{}{}
	for _, addr := range addrs {
		for _, g := range x.byQP[addr] {
			if _, coming := x.coming[g]; !coming {
				found[g] = struct{}{}
			}
		}
	}
	for g := range x.failed {
		if slices.ContainsFunc(g.allMembers(), func(m groupfile.Member) bool { return slices.Contains(addrs, m.IP) }) {
			found[g] = struct{}{}
		}
	}
	return found
}

// InTrees returns the groups with links or an upper box.
func (x *index) InTrees() iter.Seq[*Group] { return maps.Keys(x.trees) }

// Load returns the number of groups that have a link to a neighbour.
func (x *index) Load(box string) int { return x.linked[box] }
