// Package model searches small worlds exhaustively: a source, two or three receivers and the merging between them, four
// packets, and every order in which packets can be sent, lost, doubled, delayed and answered. The merging is the step
// function that runs on the wire, feedback.Group itself, copied and compared through feedback/clone.go.
//
//	source ──▶ Group.Step ──▶ FIFO ──▶ receiver 1 ─┐
//	  ▲           │      ╲──▶ FIFO ──▶ receiver 2 ─┤ answers
//	  └── FIFO ◀──┘ ◀──────────────────────────────┘ (late ones wait aside)
//
// The source and the receivers are rdma_rxe as docs/wire.md#requester and docs/wire.md#responder have it. What a [World]
// may suffer is a budget: so many packets lost, answers doubled, answers delayed, timeouts that come too early, crashes of
// the switch. Everything else that can happen may happen at any time, except the source's timeout, which is the slowest of
// all.
//
// After every step (check.go):
//   - the source was told nothing that a counted receiver lacks, by an ACK or by what a NAK implies;
//   - it heard nothing beyond its place nor beyond what it ever sent;
//   - the MSN it heard belongs to what the counted receivers have;
//   - what ends its QP is what a receiver, or a refusal, said.
//
// And every run ends, in what the policy promises. That is checked as: no state is its own successor's successor, so
// nothing goes round for ever once the budget is spent, and every state without a successor is an end. No fairness is
// assumed, so no schedule is found that starves anybody.
//
// Three reductions keep the worlds small. None hides a state that the checks could tell apart:
//   - Way and way back are one queue. A receiver takes a packet at the moment its answer reaches the switch: nobody
//     sees it earlier, and what it lacks until then is the most it can lack. The source sends at the moment the packet
//     reaches the switch, for the same reason.
//   - Packets that are taken without an answer are taken together with the next one that has an answer.
//   - Receivers in equal states are interchangeable: worlds that differ by a permutation are one.
//
// States are remembered as 63-bit fingerprints; a search that saw n states has overlooked one with a probability of about
// n*n/2^64, one in ten thousand for fifty million.
//
// A violation is told as its shortest trace and as a story for feedback/testdata (tape.go).
//
// What it never does: model the merging. Read world.go for what a world consists of, moves.go for what can happen,
// search.go for the search; worlds.go lists the worlds. Command rocmodel runs the bigger ones.
package model
