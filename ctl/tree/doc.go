// Package tree plans which neighbour each member of a group is asked for.
//
// Several boxes form a tree for a group. Each box plans only its own part: the kernel's routes say
// by which neighbours a member is reached, and [Plan] chooses one of them. A neighbour is then
// asked for all members that were given to it, and plans in the same way.
//
//	members ── routes ──▶ next-hop sets ── Plan ──▶ own paths
//	                                           └──▶ one link for each neighbour, with the members behind it
//
// Three rules of the papers decide. A packet is replicated as late as possible: members with equal
// next-hop sets are never parted, and a set counts as a whole (MC-RDMA, algorithm 1 and section V,
// ECMP support). A member follows the members that already have a neighbour in its set (Gleam,
// appendix A, algorithm 4). Of the neighbours that are equally good the one with the fewest groups
// is taken (Gleam, the same algorithm).
//
// If every box routes by shortest paths, no two neighbours of a new group meet again at a box
// behind them. Assume that members x and y, which
// were given to neighbours B and F, both have their ways through box M. A shortest path to M by B
// and one by F both exist, so both sets contain B and F; but the neighbour that is chosen first is
// given all members that it can reach. A group that changes may lose this property, because members
// stay where they are: the box where the ways meet then refuses the second one.
//
// The package does no I/O. Read first: plan.go.
package tree
