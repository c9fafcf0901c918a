// Package feedback merges what the receivers of one group answer into the one stream of ACKs and
// NAKs that the source's NIC understands.
//
// [Group.Step] takes an event and returns the actions that its caller must perform. It does no I/O,
// reads no clock, starts no goroutine, logs nothing and allocates nothing. All PSNs and MSNs are in
// the source's space; the caller translates them for each receiver.
//
// Two things must hold, and the first matters more:
//
//   - Safety. No reply acknowledges a packet that a counted receiver lacks: the source's program
//     would take lost data for delivered.
//   - Progress. Every loss is repaired, or the source's QP ends with the error that the policy
//     promises.
//
// These words have one meaning each:
//
//	source  the requester that sends each packet once
//	path    one receiver, and what is known about it
//	copy    a packet of the source as it is sent to one path
//	reply   an ACK or NAK that is sent to the source
//	acked   acknowledged by one receiver
//	merged  acknowledged to the source by a reply
//	floor   the highest PSN that the ack policy takes for acknowledged
//	round   the packets that the source sends in rising order before it goes back
//	place   the PSN up to which the source has come in its present round
//	report  an action that tells the operator something about a receiver
//	repair  a retained packet that is sent to a path again, unseen by the source
//	gap     what lies between the highest packet forwarded and what the source has sent since
//
// The state keeps these in order:
//
//	merged.psn ≤ floor.psn      nothing is acknowledged that a counted receiver lacks
//	merged.psn ≤ place ≤ sent   nothing is acknowledged that the source has not sent in this round
//
// With repair the place is above sent while a gap stands (gap.go). Nothing follows it there,
// because merged.psn ≤ floor.psn ≤ sent. Another box has no place (Relay): merged.psn ≤ sent holds
// for it.
//
// The rules that comments cite by number are in docs/merging.md. That page explains them, draws the
// states of the source and of a path, and names the stories in testdata that show them.
//
// The state of a group is built of five types, each of which knows what the one before it has, and
// nothing of those behind it:
//
//	receivers  the paths, and how the policy counts them
//	stream     where they and the source stand: what was sent, the floor, which NAK is evidence
//	repair     what a path is sent again, when, and what is retained for that
//	replier    what the source is sent: ACKs, NAKs, its end, and what breaks its silence
//	Group      what each event does: packets, answers, members, turns, questions
//
// Read group.go for the events, data.go for what a packet of the source does, response.go for what
// a receiver's answer does, and reply.go for what the source is sent. Repair is in repair.go (what
// a path is sent again), retained.go (what there is to send) and legtimer.go (when).
package feedback
