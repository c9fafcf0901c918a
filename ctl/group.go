package ctl

import (
	"slices"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// group is a desired group with its runtime state.
type group struct {
	name string
	// wanted has all members that this box is asked for, and file this box's own part: a link in
	// place of the members behind a neighbour. Without links they are the same. nil: the stored
	// file cannot be read.
	wanted, file *groupfile.File
	links        []*link
	branch       *branch // nil: the group was created on this box
	epoch        uint64  // see api.Branch
	claim        int64   // when this box claimed the group, if boxes share their groups; see api.Branch
	treeProblem  string  // why the links could not follow the routes, or ""
	untold       bool    // this box has taken the group over with its address, and etcd does not know yet
	untoldInLog  bool    // etcd was told in vain, and the log says so
	addressGone  bool    // the box was without the group's address meanwhile: another one may have carried the group
	kept         bool    // the group is stored in the state directory
	restored     bool    // see mft.Group.Restored
	switches     bool    // another member is, or wants to be, the source: no other box may take the group over
	marked       bool    // etcd knows that
	marking      bool    // etcd is being told
	unsure       bool    // a turn may be stored that has not begun
	problem      string  // why the group is not published; "" if it is published

	// table is the memory beside the file, if the file says so (memory: table), and tableEnd how
	// many bytes of it are stored.
	table    *regions.Table
	tableEnd int64

	id        mft.GroupID
	published *mft.Group // nil: the group is not in the Switch
	plan      plan.Plan  // the plan from which published was built
	held      map[address.Place]bool

	pace   *pace
	past   chronicle.Chronicle
	source groupfile.ID // the current source, if that member is also a receiver
}

func newGroup(file *groupfile.File, kept bool) *group {
	g := &group{name: file.Name, wanted: file, file: file, kept: kept, pace: &pace{}}
	if file.Source.Role == groupfile.Both {
		g.source = file.Source.ID()
	}
	if file.Table {
		g.table = new(regions.Table)
	}
	return g
}

// policy is how the data path merges the group, or would.
func (g *group) policy() feedback.Policy {
	if g.published == nil {
		return g.file.Policy
	}
	return g.published.Policy
}

// legs returns how each member is reached now. For a group that failed, it returns failed legs.
func (g *group) legs() *plan.Plan {
	if g.published == nil {
		failed := plan.Failed(g.file)
		return &failed
	}
	return &g.plan
}

// ended returns the record of a member that no longer takes part, or nil if the member takes part.
// A source has no record.
func (g *group) ended(m *groupfile.Member) *chronicle.Record {
	if m.Role == groupfile.Source {
		return nil
	}
	return g.past.Ended(m.ID())
}

// waitsFor says whether a member that takes part cannot be reached, or has not confirmed, and why.
func (g *group) waitsFor(l *plan.Leg) (waits bool, reason string) {
	switch {
	case g.ended(l.Member) != nil:
		return false, ""
	case l.Waits():
		return true, l.Reason
	case l.Member.Confirm && !g.past.IsConfirmed(l.Member.ID()):
		return true, "its program has not confirmed that its QP is ready (rocast member ready)"
	}
	return false, ""
}

// allMembers returns all members that this box is asked for, and the ends of its links.
func (g *group) allMembers() []groupfile.Member {
	members := g.wanted.Members()
	for _, l := range g.links {
		members = append(slices.Clip(members), l.member(g.wanted))
	}
	return members
}

// waiting counts the members that take part but cannot be reached, here or behind this box.
func (g *group) waiting() (n int) {
	for l := range g.plan.Members() {
		if waits, _ := g.waitsFor(l); waits {
			n++
		}
	}
	for _, l := range g.links {
		n += len(l.absent)
	}
	return n
}
