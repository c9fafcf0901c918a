// Package turns tests that data survives a crash of rocastd behind a change of the source: the box
// is killed as soon as the writes of a turn have completed, and what comes next must be at all
// members.
//
// In a tree each box is killed around a turn that goes from a member of one box to that of another.
//
// ROCAST_CRASHES says how often the box is killed: `ROCAST_CRASHES=200 go test ./test/turns -v`.
package turns
