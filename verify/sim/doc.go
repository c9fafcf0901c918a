// Package sim runs whole transfers through the switch in simulated time: the forwarding core, the
// merging and the tables that run on the wire, endpoints that behave as rdma_rxe (internal/rnic),
// and links with bandwidth, delay and queues that lose, double, delay, reorder and damage frames
// and mark them as having met congestion. Receivers die, join and leave, hosts slow down, the
// switch crashes and comes back, another member becomes the source. Control stores each turn before
// it begins, and a switch that comes back begins with the one that was stored last (turn.go).
//
// One seed is one run: [Draw] makes the [Scenario] of a seed, or [DrawReceivers] one with many
// receivers, and [Runner.Run] plays the scenario. A run reads no clock and starts no goroutine,
// and the order of no map shows, so the same seed gives the same events; [Result].Hash proves that.
//
//	source ── link ──▶ switch ──▶ link ── receiver 1 .. n      data, as real frames with real ICRCs
//	       ◀── link ──        ◀── link ──                      answers
//
// The invariants ([Invariant]) are checked after every event. The oracle does not believe what
// frames say: for each data frame, and for each copy of it, the oracle knows which packet was sent,
// and it asks the receivers' queue pairs which packets they executed. Every run has to end within a
// bound of simulated time, with everything delivered or with the error that the policy and the
// faults of the scenario promise.
//
// The package never models merging or endpoints itself: what is wrong here is wrong on the wire.
//
// These words have one meaning each:
//
//	fault     something bad that happens to a frame, a host or the switch
//	program   the application on a host; it posts messages and receives
//	message   one work request of a source
//	packet    a piece of a message; the packets of a stream are numbered from 0
//	stream    all packets of one source
//	frame     one packet or answer on one link
//	merged    acknowledged to the source by a reply of the switch
//	place     the packet up to which a source has come, as the switch can know
//	numbers   of a group: its addresses, QPNs and first PSNs
//	target    where in the memory of a receiver a message goes
//
// [DrawTree] makes a scenario with several boxes: two or three levels, with every fault of a single
// frame on every link and crashes of every box (tree.go). There each box is checked against the
// hosts below it, and each link against the packets of the source. In half of the trees members at
// all boxes take turns (treeturn.go): boxes crash at each step of a turn, and begin again with what
// control has stored.
//
// Boxes below one box may be in a rack (rack.go): one copy of a packet is for several of them, and
// each maps it as dataplane/mapping.go does. Who shares decides ctl/edges. One box may have two
// racks below it, behind two ports. Boxes crash and confirm late or never, shared copies are lost
// in silence, and the file says copies: own. A box joins a running group with everybody below it,
// in a rack or not, or leaves it (treejoin.go).
//
// Single hosts join and leave in trees too. Receivers die or refuse a WRITE, and each box goes on
// without them as its policy says, or without a box below that has nobody left (treepart.go). The
// memory changes at each box at a time of its own. None of this happens where members take turns.
// Where members move to other boxes, a box may go on without one that is silent, and nobody dies.
//
// A host or a box that joins may have to wait until its programs have confirmed (treejoin.go).
// Until then no box sends it anything. From then on it is like any other one that joins.
//
// A rack is only where no members take turns: there the product shares nothing. Not simulated are a
// shared leg with hosts in a tree, and what control at a box does beside the questions: how boxes
// agree on a change (ctl/branches), joining addresses (ctl/above), and two groups at one address.
// test/branches runs daemons in racks. A box whose source is another box is simulated where members
// take turns (treeturn.go).
//
// [DrawCell] makes a scenario of a cell of the matrix (internal/matrix), so that every pair of what
// a group can be is simulated; only the moments, the network and the programs are drawn (cell.go).
//
// [Compare] shows what loss costs: groups with each policy, and beside them programs that pass the
// messages on without multicast (relay.go), on the same links.
//
// Read scenario.go for what a run consists of, world.go for the loop, box.go for how the core is
// called; then invariant.go, oracle.go and promise.go. Command rocsim runs seeds by the thousand.
package sim
