// Package groups has the groups of this box, and what readers see of them.
//
// [Version] is a group as readers see it: its file, its links to neighbours, what happened to its
// receivers, the plan, and what is published of it. It is a value: a reader may keep it as long as
// it likes, because a change shows the next version and leaves this one alone. [Group] is the group
// as changes have it.
//
// [Set] has the groups. To lock it begins a change, and to unlock it shows readers what has changed
// (set.go, seen.go). [Names] lets one change of a group happen at a time, also while other boxes
// are asked.
//
//	Add        a new group: stored, begun, shown           add.go
//	Replan     other ways to its members                   publish.go
//	Regroup    the next version: stored, then published    change.go
//	Republish  the next version, begun as after a restart  change.go
//	Forget     removed from the disk, shown, ended         add.go
//	Restore    the stored groups, after a restart          restore.go
//	Observe    what the data path shows of receivers       observe.go
//
// What begins a group stands in publish.go, what stores it in keep.go, and what refuses it because
// of other groups in refuse.go and index.go.
//
// A group may span several boxes. [Link] is a box below that carries it to the members there, and
// [Branch] the box above that asks for this part. [Membership] says since when a receiver takes
// part, in PSNs of this box's source, and [Later] says the same in PSNs of a link.
//
// The package does not know the requests that change a group, nor other boxes.
package groups
