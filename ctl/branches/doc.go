// Package branches is the parts of groups that other boxes carry.
//
// A box asks a neighbour to carry a group to the members behind that neighbour. In the box's group,
// a link to the neighbour takes the place of these members ([Branches.Stand], [Branches.Change] in
// change.go). To the neighbour, its part of the group is a branch that an upper box asks for
// ([Branches.PutBranch] in branch.go). The neighbour may ask its own neighbours in the same way.
//
//	assign.go    which members are behind which neighbour
//	register.go  the requests to neighbours, boxes.go how long they may take
//	lease.go     renews links, and ends branches that no upper box renews
//	grave.go     what is remembered of a branch that has ended
//	move.go      members whose routes have changed
//	tell.go      what a neighbour must hear at once
//	tree.go      the tree of a group over all boxes
//
// While a box waits for answers, only the group's name is locked. So what was decided before the
// requests is checked again after the answers.
package branches
