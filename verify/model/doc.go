// Package model searches small worlds exhaustively. A world has a source, two or three receivers,
// the merging between them, and four packets. The search covers every order in which packets can be
// sent, lost, duplicated, delayed and answered. The merging is the step function that also runs on
// the wire, feedback.Group; feedback/clone.go copies and compares its states.
//
//	source ──▶ Group.Step ──▶ FIFO ──▶ receiver 1 ─┐
//	  ▲           │      ╲──▶ FIFO ──▶ receiver 2 ─┤ answers
//	  └── FIFO ◀──┘ ◀──────────────────────────────┘ (late ones wait aside)
//
// The source and the receivers behave as rdma_rxe, as docs/wire.md#requester and
// docs/wire.md#responder describe it. A budget limits the faults of a [World]: the number of lost
// packets, of duplicated answers, of delayed answers, of early timeouts and of switch crashes. All
// other events may happen at any time. Only the timeout of the source waits until nothing else can
// happen, because that timeout is the slowest event.
//
// In some worlds an engine stands in front of the merging, as bpf/fanout.h does (fanout.go): while
// the group is plain, the switch may hand it over at any time, and the engine carries packets that
// the merging hears of with the next event, or later than the event that ends the engine's turn.
//
// After every step the search checks (check.go):
//   - neither an ACK nor a NAK acknowledges a packet that a counted receiver lacks;
//   - the source hears nothing about a packet beyond its place, or about a packet that it never
//     sent;
//   - the MSN that the source hears matches the messages that the counted receivers have;
//   - the source's QP ends only with an error that a receiver sent, or that a refusal caused;
//   - when the source has finished, another member can become the source, with every receiver that
//     has everything or can still be repaired, and with no other (succession.go);
//   - by force, or where the source is another switch, it can become the source earlier, without
//     those who lack something, but with as many as it needs (takeover.go);
//   - when that member has sent some packets and the switch crashes, a restart with the turn that
//     control has stored lets the first source have its turn again, and the first source hears an
//     ACK of nothing that the receivers take for old (return.go).
//
// Every run must also end, with a result that the policy promises. The search checks two conditions
// for this. First, no state is reachable from itself, so no run continues forever after the budget
// is spent. Second, every state without a successor is a valid end. The search assumes no fairness,
// so it also shows that no schedule starves a receiver or the source.
//
// Three reductions keep the worlds small. None of them hides a state that the checks could
// distinguish:
//   - The two directions of a receiver's link are one queue. A receiver takes a packet at the
//     moment when its answer reaches the switch: no party can see the answer earlier, and until
//     then the receiver lacks as much as it can lack. For the same reason the source sends a packet
//     at the moment when the packet reaches the switch.
//   - A packet that gets no answer is taken together with the next packet that gets an answer.
//   - Receivers in equal states are interchangeable: two states that differ only by a permutation
//     of the receivers count as one state.
//
// The search remembers states as 63-bit fingerprints. After n states, the probability that the
// search has missed a state is about n*n/2^64, which is one in ten thousand for fifty million
// states.
//
// A violation is reported as its shortest trace, and as a story for feedback/testdata (tape.go).
//
// A world has no ports. By which port an answer may come is the forwarding core's to decide
// (mft.Group.Hears), and the merging never hears of it; in verify/sim hosts have several ports.
//
// Nor has a world a box that relays (mft.Relay), because such a box keeps no state and answers
// nothing. To the merging a receiver behind it is one at the end of a longer link, and what is lost
// while the box is away is lost on that link. So the world would have the same states as without
// it. That the box passes on exactly what comes is shown by verify/sim/far.go.
//
// The package never models the merging itself. Read world.go for the parts of a world, moves.go for
// the possible moves, and search.go for the search. worlds.go lists the worlds. Command rocmodel
// searches the larger worlds.
package model
