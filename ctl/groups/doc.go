// Package groups is what control has of a group.
//
// [Version] is a group as readers see it: its file, its links to neighbours, what happened to its
// receivers, the plan, and what is published of it. It is a value: a reader may keep it as long as
// it likes, because a change shows the next version and leaves this one alone.
//
// A group may span several boxes. [Link] is a box below that carries it to the members there, and
// [Branch] the box above that asks for this part. [Place] says since when a receiver takes part, in
// PSNs of this box's source, and [Later] says the same in PSNs of a link.
//
// The package does not know the requests that change a group.
package groups
