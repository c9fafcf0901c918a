// Package branches is the parts of groups that other boxes carry.
//
// A box gives the members behind a neighbour to it: a link of the group to the neighbour takes
// their place ([Branches.Stand], [Branches.Change] in change.go). To the neighbour this is a branch
// that an upper box asks for ([Branches.PutBranch] in branch.go); it may give members on in the
// same way.
//
//	assign.go    which members are behind which neighbour
//	register.go  the requests to neighbours, boxes.go how long they may take
//	lease.go     renews links, and ends branches that no upper box renews
//	grave.go     what is remembered of a branch that has ended
//	move.go      members whose routes have changed
//	tell.go      what a neighbour must hear at once
//	tree.go      the tree of a group over all boxes
//
// Requests go out without a lock but that of the group's name. What was decided before is looked at
// again behind the answers.
package branches
