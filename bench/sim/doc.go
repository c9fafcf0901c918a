// Package sim runs whole transfers through the switch in simulated time: the forwarding core, merging and tables that run on the
// wire, endpoints that behave as rdma_rxe (bench/rnic), and links with bandwidth, delay and queues that lose, double, delay,
// reorder and damage frames. Receivers die, hosts slow down, the switch crashes and comes back.
//
// One seed is one run: [Draw] makes the [Scenario] from it and [Runner.Run] plays that. A run reads no clock, starts no goroutine and
// iterates no map, so the same seed gives the same events, which [Result].Hash proves.
//
//	source ── link ──▶ switch ──▶ link ── receiver 1 .. n      data, as real frames with real ICRCs
//	       ◀── link ──        ◀── link ──                      what they answer
//
// After every event it is checked that ([Invariant]):
//   - nothing was acknowledged to the source that a counted receiver lacks, whatever the receivers' ACKs say: the oracle asks their
//     queue pairs;
//   - no ACK or NAK went beyond the source's place;
//   - what a receiver executed is in its memory as it was written at that PSN, and in the end nothing else is;
//   - a damaged frame moved nothing, and an undamaged one was refused by nobody;
//   - every frame is delivered, lost for a reason with a name, or on its way.
//
// Every run has to end, within a bound of simulated time, with everything delivered or with the error that the policy and the faults
// of the scenario promise.
//
// What it never does: model merging or endpoints itself. A rule that is wrong here is wrong on the wire.
//
// Read scenario.go for what a run consists of, world.go for the loop, box.go for how the core is called, oracle.go and end.go for
// the invariants. Command rocsim runs seeds by the thousand.
package sim
