// Package sim runs whole transfers through the switch in simulated time: the forwarding core, merging and tables that run on the
// wire, endpoints that behave as rdma_rxe (internal/rnic), and links with bandwidth, delay and queues that lose, double, delay,
// reorder and damage frames. Receivers die, come and go, hosts slow down, the switch crashes and comes back, another member becomes
// the source.
//
// One seed is one run: [Draw] makes the [Scenario] from it, or [DrawReceivers] one of many receivers, and [Runner.Run] plays that. A
// run reads no clock, starts no goroutine and iterates no map, so the same seed gives the same events, which [Result].Hash proves.
//
//	source ── link ──▶ switch ──▶ link ── receiver 1 .. n      data, as real frames with real ICRCs
//	       ◀── link ──        ◀── link ──                      what they answer
//
// The invariants ([Invariant]) are checked after every event. The oracle does not believe what frames say: it knows of each data
// frame, and of the copies made of it, whose packet it was when it was sent, and asks the receivers' queue pairs which they
// executed. Every run has to end, within a bound of simulated time, with everything delivered or with the error that the policy
// and the faults of the scenario promise.
//
// What it never does: model merging or endpoints itself. A rule that is wrong here is wrong on the wire.
//
// Read scenario.go for what a run consists of, world.go for the loop, box.go for how the core is called; then invariant.go, oracle.go
// and end.go. Command rocsim runs seeds by the thousand.
package sim
