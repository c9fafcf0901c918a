// Package desired keeps the groups that several boxes are to carry, in etcd.
//
// All boxes of a fabric see the same groups. The box where a group's source is attached claims the
// group and is its root: it sets the group up, here and on the boxes behind it. The claim ends with
// the box's lease, so that another box can take the group over.
//
//	PREFIX/groups/NAME   the group file, as the user wrote it (R_Keys included)
//	PREFIX/begun/NAME    exists once a box has claimed the group: its QPs may have advanced
//	PREFIX/members/NAME  the state of the members, for a box that takes the group over (package shared)
//	PREFIX/roots/NAME    the box that has claimed the group; ends with that box's lease
//	PREFIX/reports/NAME  what that box says of the group; ends with its lease
//
// Every change is one transaction. [Desired.Run] keeps a copy of all of it in memory and says which
// groups have changed; [Desired.Entry] reads that copy. If etcd does not answer, the copy stays as
// it is, so running groups run on, and changes are refused.
//
// Read first: desired.go, then follow.go.
package desired
