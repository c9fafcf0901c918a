package ctl

import (
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/goodput"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// version is all that readers see of a group. A version that was shown does not change: a change
// shows the next one (changes.go).
type version struct {
	name string
	// wanted has all members that this box is asked for, and file this box's own part: a link in
	// place of the members behind a neighbour. Without links they are the same. nil: the stored
	// file cannot be read.
	wanted, file *groupfile.File
	links        []*link
	branch       *branch // nil: the group was created on this box
	treeProblem  string  // why the links could not follow the routes, or ""
	kept         bool    // the group is stored in the state directory
	restored     bool    // see mft.Group.Restored
	problem      string  // why the group is not published; "" if it is published

	// table is the memory beside the file, if the file says so (memory: table).
	table *regions.Table

	id        mft.GroupID
	published *mft.Group // nil: the group is not in the Switch
	plan      plan.Plan  // the plan from which published was built

	past   chronicle.Chronicle
	source groupfile.ID // the current source, if that member is also a receiver
	found  findings
}

// findings is what the last look at a running group found of its progress. Its maps are replaced,
// and never changed.
type findings struct {
	degraded bool
	goodput  *api.Goodput          // nil: not known yet
	seen     string                // what is seen of the group while it is degraded
	last     string                // who is furthest behind then
	atFloor  map[groupfile.ID]bool // for whom the source's packets wait
	stalled  map[groupfile.ID]bool
	mending  map[groupfile.ID]mending
	refusals refusals
	says     map[sender]string // what the trouble is of members that do not get on because their frames are refused
	history  goodput.History   // where the source was, in packets of dataplane.Traffic.Sent
	in       mft.GroupID       // of which history is
}

// share returns a copy of the version that does not change when v does.
func (v *version) share() *version {
	next := *v
	next.links = slices.Clone(v.links)
	for i, l := range next.links {
		next.links[i] = new(*l)
	}
	if v.branch != nil {
		next.branch = new(*v.branch)
	}
	next.past = v.past.Share()
	return &next
}

// policy is how the data path merges the group, or would.
func (v *version) policy() feedback.Policy {
	if v.published == nil {
		return v.file.Policy
	}
	return v.published.Policy
}

// legs returns how each member is reached now. For a group that failed, it returns failed legs.
func (v *version) legs() *plan.Plan {
	if v.published == nil {
		failed := plan.Failed(v.file)
		return &failed
	}
	return &v.plan
}

// ended returns the record of a member that no longer takes part, or nil if the member takes part.
// A source has no record.
func (v *version) ended(m *groupfile.Member) *chronicle.Record {
	if m.Role == groupfile.Source {
		return nil
	}
	return v.past.Ended(m.ID())
}

// waitsFor reports whether a member that takes part cannot be reached, or has not confirmed, and
// why.
func (v *version) waitsFor(l *plan.Leg) (waits bool, reason string) {
	switch {
	case v.ended(l.Member) != nil:
		return false, ""
	case l.Waits():
		return true, l.Reason
	case l.Member.Confirm && !v.past.IsConfirmed(l.Member.ID()):
		return true, "its program has not confirmed that its QP is ready (rocast member ready)"
	}
	return false, ""
}

// unconfirmed returns the receivers whose programs have not said that their QPs are ready.
func (v *version) unconfirmed() (ids []groupfile.ID) {
	for i := range v.wanted.Receivers {
		if m := &v.wanted.Receivers[i]; m.Confirm && !v.past.IsConfirmed(m.ID()) {
			ids = append(ids, m.ID())
		}
	}
	return ids
}

// allMembers returns all members that this box is asked for, and the ends of its links.
func (v *version) allMembers() []groupfile.Member {
	members := v.wanted.Members()
	for _, l := range v.links {
		members = append(slices.Clip(members), l.member(v.wanted))
	}
	return members
}

// waiting counts the members that take part but cannot be reached, here or behind this box.
func (v *version) waiting() (n int) {
	for l := range v.plan.Members() {
		if waits, _ := v.waitsFor(l); waits {
			n++
		}
	}
	for _, l := range v.links {
		n += len(l.absent)
	}
	return n
}
