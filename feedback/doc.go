// Package feedback merges what the receivers of one group answer into the one
// stream of ACKs and NAKs that the source's NIC understands.
//
// [Group.Step] is the whole of it: an event in, actions out. It neither sends
// nor sleeps, reads no clock, starts no goroutine, logs nothing and allocates
// nothing; the caller performs the actions. All PSNs and MSNs are in the
// source's space.
//
// What must never happen is that the source hears of a PSN that a counted
// receiver lacks: its program would take lost data for delivered. What must
// always happen is that every loss is repaired or ends in the error the policy
// promises. testdata/ tells both as stories; docs/merging.md explains them.
//
//	source  ──data──▶  pos ≤ sent          paths: acked, msn, pending
//	        ◀─ACK/NAK─  merged ≤ min(floor, pos)     floor = what the ack policy counts
//
// Read first: group.go for the state, data.go for what a packet of the source
// does, response.go for what a receiver's answer does, tell.go for what the
// source hears.
package feedback
