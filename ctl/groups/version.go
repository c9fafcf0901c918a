package groups

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Version is all that readers see of a group. A version that was shown does not change: a change
// shows the next one.
type Version struct {
	Name string
	// Wanted has all members that this box is asked for, and File this box's own part: a link in
	// place of the members behind a neighbour. Without links they are the same. nil: the stored
	// file cannot be read.
	Wanted, File *groupfile.File
	Links        []*Link
	Branch       *Branch // nil: the group was created on this box
	TreeProblem  string  // why the links could not follow the routes, or ""
	Away         string  // why no packet of the source comes to this box, or ""
	Kept         bool    // the group is stored in the state directory
	Restored     bool    // see mft.Group.Restored
	Problem      string  // why the group is not published; "" if it is published

	// Table is the memory beside the file, if the file says so (memory: table).
	Table *regions.Table

	ID        mft.GroupID
	Published *mft.Group // nil: the group is not in the Switch
	Plan      plan.Plan  // the plan from which Published was built

	Past   chronicle.Chronicle // what happened to the receivers
	Source groupfile.ID        // the current source, if that member is also a receiver
	Found  Findings            // what is seen of its progress
	// Sharing says which receivers share a leg, and why others do not.
	Sharing edges.Sharing
}

// OfService reports whether the group is one of rocast cm or perftest, at whichever box. It has no
// group file that anybody could change.
func (v *Version) OfService() bool {
	if v.Branch != nil {
		return v.Branch.Service
	}
	return !v.Kept
}

// IsSource reports whether a member is the source at present.
func (v *Version) IsSource(m *groupfile.Member) bool {
	return m.ID() == v.Source || v.Source == (groupfile.ID{}) && m.Role == groupfile.Source
}

// EdgeOf returns the edge at the host of a receiver, or nil if none has asked.
func (v *Version) EdgeOf(id groupfile.ID) *edges.Edge { return v.Sharing.Receivers[mft.QP(id)].Edge }

// NameOf returns the IP of a member, or the box at the other end of a link.
func (v *Version) NameOf(m *groupfile.Member) string {
	if box := v.BoxBehind(m.ID()); box != "" {
		return "box " + box
	}
	return v.Own(m).IP.String()
}

// Own returns a member of this box's part as its own box has it: a box that passes its frames on
// stands between.
func (v *Version) Own(m *groupfile.Member) *groupfile.Member {
	if l, id := v.relayed(m.ID()); l != nil {
		return &v.Wanted.Receivers[v.Wanted.Receiver(id)]
	}
	return m
}

// RelayedBy returns the box that passes on the frames of a member of this box's part, or "".
func (v *Version) RelayedBy(id groupfile.ID) string {
	if l, _ := v.relayed(id); l != nil {
		return l.Box
	}
	return ""
}

// relayed returns the link and the own ID of a member of this box's part that is relayed, or no
// link.
func (v *Version) relayed(id groupfile.ID) (*Link, groupfile.ID) {
	for _, l := range v.Links {
		for _, r := range l.Relays {
			if r.QPN == id.RemoteQPN && l.EndOf(v.Wanted, r.ID) == id && v.Wanted.Receiver(r.ID) >= 0 {
				return l, r.ID
			}
		}
	}
	return nil, id
}

// BoxBehind returns the box at the other end of a link, or "" for a member that is a host.
func (v *Version) BoxBehind(id groupfile.ID) string {
	for _, l := range v.Links {
		if !l.Passes() && l.EndOf(v.Wanted, id) == id {
			return l.Box
		}
	}
	return ""
}

// Leg returns how a member of this box's part is reached, or nil if it is no member.
func (v *Version) Leg(id groupfile.ID) *plan.Leg {
	for l := range v.Plan.Members() {
		if l.Member.ID() == id {
			return l
		}
	}
	return nil
}

// MemberAt returns the leg of a member of this box's part that has an address. If several members
// have it, the source comes first, and then the QP with this peer. nil: no member has the address.
func (v *Version) MemberAt(ip netip.Addr, peer roce.QPN) (at *plan.Leg) {
	for l := range v.Plan.Members() {
		switch {
		case l.Member.IP != ip:
		case v.IsSource(l.Member):
			return l
		case at == nil || l.Member.RemoteQPN == peer:
			at = l
		}
	}
	return at
}

// LinkEnded returns the record of a link that no longer takes part, or nil.
func (v *Version) LinkEnded(l *Link) *chronicle.Record {
	if l.Passes() {
		return nil
	}
	m := l.Member(v.Wanted)
	return v.Ended(&m)
}

// OutBehind says why nobody behind a link gets data any more, and how they can join again; "": the
// link takes part.
func (v *Version) OutBehind(l *Link) string {
	end := v.LinkEnded(l)
	if end == nil {
		return ""
	}
	return fmt.Sprintf("box %s takes no part in the group any more (%s), so nobody there gets data; %s", l.Box, end.Standing, v.JoinAgainBehind(
		"update the group without the members behind that box, and then with them and the psn that their QPs expect"))
}

// IsHasty reports whether a box that carries a part of a group with this policy would not find a
// silent receiver before the box above evicts the whole link.
func IsHasty(p *feedback.Policy) bool {
	return p.Evict && p.Ack == feedback.AckAll && p.SilentAfter < 2*feedback.MinSilentAfter
}

// JoinAgainBehind says how members behind a link that takes no part any more can join again. update
// says how an update of the group does it, where one can.
func (v *Version) JoinAgainBehind(update string) string {
	switch p := &v.Wanted.Policy; {
	case v.OfService():
		return "to join again, let the programs connect again"
	case IsHasty(p): // an update that adds the first receivers behind a box is refused
		return fmt.Sprintf("evict is true and silent-after is %v, with which no update brings anybody back there; remove the group and create it again with "+
			"a longer silent-after", p.SilentAfter)
	}
	return update
}

// Advice says why a member of this box's part no longer takes part, and how it can join again.
func (v *Version) Advice(end *chronicle.Record, id groupfile.ID) string {
	if v.BoxBehind(id) != "" && IsHasty(&v.Wanted.Policy) {
		return end.Why() + "; " + v.JoinAgainBehind("")
	}
	return end.Advice(v.OfService())
}

// ShareLink reports whether members are all behind one link. Then they have acknowledged the same
// packets, as far as this box knows.
func (v *Version) ShareLink(members []groupfile.ID) bool {
	first := LinkOf(v.Links, members[0])
	for _, id := range members[1:] {
		if first == nil || LinkOf(v.Links, id) != first {
			return false
		}
	}
	return true
}

// SetLinks makes a group's own part of the tree: each member that is behind a link is replaced by
// the link, or by itself as the neighbour passes it on.
func (v *Version) SetLinks(links []*Link) {
	v.Links, v.File = links, v.Wanted
	if len(links) == 0 {
		return
	}
	file := *v.Wanted
	file.Receivers = nil
	for _, m := range v.Wanted.Receivers {
		if LinkOf(links, m.ID()) == nil {
			file.Receivers = append(file.Receivers, m)
		}
	}
	for _, l := range links {
		file.Receivers = append(file.Receivers, l.ends(v.Wanted)...)
	}
	v.File = &file
}

// Share returns a copy of the version that does not change when v changes.
func (v *Version) Share() *Version {
	next := *v
	next.Links = slices.Clone(v.Links)
	for i, l := range next.Links {
		next.Links[i] = new(*l)
	}
	if v.Branch != nil {
		next.Branch = new(*v.Branch)
	}
	next.Past = v.Past.Share()
	return &next
}

// Policy returns how the data path merges the group, or would merge it if the group were published.
func (v *Version) Policy() feedback.Policy {
	if v.Published == nil {
		return v.File.Policy
	}
	return v.Published.Policy
}

// Legs returns how each member is reached now. For a group that failed, it returns failed legs.
func (v *Version) Legs() *plan.Plan {
	if v.Published == nil {
		failed := plan.Failed(v.File)
		return &failed
	}
	return &v.Plan
}

// Ended returns the record of a member that no longer takes part, or nil if the member takes part.
// A source has no record.
func (v *Version) Ended(m *groupfile.Member) *chronicle.Record {
	if m.Role == groupfile.Source {
		return nil
	}
	return v.Past.Ended(m.ID())
}

// WaitsFor reports whether a member that takes part cannot be reached, or has not confirmed, and
// why.
func (v *Version) WaitsFor(l *plan.Leg) (waits bool, reason string) {
	switch {
	case v.Ended(l.Member) != nil:
		return false, ""
	case l.Waits():
		return true, l.Reason
	case v.isUnconfirmed(l.Member):
		return true, "its program has not confirmed that its QP is ready (rocast member ready)"
	}
	return false, ""
}

// Unconfirmed returns the receivers whose programs have not said that their QPs are ready.
func (v *Version) Unconfirmed() (ids []groupfile.ID) {
	for i := range v.Wanted.Receivers {
		if m := &v.Wanted.Receivers[i]; v.isUnconfirmed(m) {
			ids = append(ids, m.ID())
		}
	}
	return ids
}

// isUnconfirmed reports whether a member's program has not said that its QP is ready.
func (v *Version) isUnconfirmed(m *groupfile.Member) bool {
	return m.Confirm && !v.Past.IsConfirmed(m.ID())
}

// waitsToJoin reports whether a receiver that joins is to get no data yet, because its program has
// not said that its QP is ready. A QP that is not ready drops the data, and the group would wait
// for it, or evict it. Behind a new link all members join with the link's first packet, so the link
// waits for all of them.
func (v *Version) waitsToJoin(id groupfile.ID) bool {
	if i := v.Wanted.Receiver(id); i >= 0 {
		return v.isUnconfirmed(&v.Wanted.Receivers[i])
	}
	if l, own := v.relayed(id); l != nil {
		i := v.Wanted.Receiver(own)
		return v.isUnconfirmed(&v.Wanted.Receivers[i]) && !l.hasConfirmed(own)
	}
	for _, l := range v.Links {
		if m := l.Member(v.Wanted); m.ID() == id && !l.Passes() {
			return slices.ContainsFunc(l.Members, func(behind groupfile.ID) bool {
				i := v.Wanted.Receiver(behind)
				return i >= 0 && v.isUnconfirmed(&v.Wanted.Receivers[i]) && !l.hasConfirmed(behind)
			})
		}
	}
	return false
}

// someoneMayJoin reports whether a receiver may join now that was to get no data yet.
func (v *Version) someoneMayJoin() bool {
	return v.Published != nil && slices.ContainsFunc(v.Published.Parts, func(p mft.Part) bool {
		return p.Part == feedback.PartWaiting && !v.waitsToJoin(groupfile.ID(p.QP))
	})
}

// allMembers returns all members that this box is asked for, and the ends of its links.
func (v *Version) allMembers() []groupfile.Member {
	n := 0
	for _, l := range v.Links {
		n += len(l.ends(v.Wanted))
	}
	ends := v.File.Receivers[len(v.File.Receivers)-n:] // as SetLinks has made them
	return append(slices.Clip(v.Wanted.Members()), ends...)
}

// Waiting counts the members that take part but cannot be reached, here or behind this box.
func (v *Version) Waiting() (n int) {
	for l := range v.Plan.Members() {
		if waits, _ := v.WaitsFor(l); waits {
			n++
		}
	}
	for _, l := range v.Links {
		n += len(l.Absent)
	}
	return n
}
