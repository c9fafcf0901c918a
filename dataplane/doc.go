// Package dataplane receives frames, decides about them, and sends copies and merged answers.
//
// [Core] is the decision: a function of table, frame, port and time that fills a list of outputs.
// An output is an edit of the received frame ([Copy]) or a small frame of our own ([Reply]), never
// a buffer; the caller applies it. The AF_XDP worker and the simulator both call Core, so the code
// that is tested in simulation is the code that runs on the wire.
//
// [Worker] is the loop around Core: one locked thread that receives a batch, decides, replicates in
// place port after port, and gives the buffers back. [Switch] is what control uses: it publishes
// tables to the workers by one pointer swap and asks them for snapshots between two batches.
//
// Per packet there is no allocation, lock, log, map write, clock read or system call. The package
// knows no netlink, no file and no API. Ports are an interface ([Port]): dataplane/afxdp has the
// real ones, dataplane/porttest in-memory twins.
//
// # Who owns what
//
//   - A worker thread owns its UMEM, its rings and the merging state of its groups. Control
//     touches none of it: [Switch.Do] passes a function to the worker, which runs it between two
//     batches.
//   - With several workers, each has its own queues of every port. A group belongs to the worker
//     that receives its first packet, if groups are shared evenly that way (owners.go). A frame
//     that another worker receives is handed off through a bounded ring (handoff.go).
//   - A PortID belongs to the name of an interface and never changes. Another interface gets it
//     only when no group uses its port. Ports come and go while workers run; a worker makes room
//     for a port between two batches.
//   - Control makes the system calls that open and close sockets. A worker fills the ring of a
//     new socket, and begins or stops to use sockets between two batches. A worker without
//     sockets for a port receives nothing there, and counts what it sends there as lost.
//   - While a frame is processed, the worker owns its buffers. A port may keep them only when the
//     frame is sent for the last time (Frame.Kept). A retained packet keeps the buffers in which
//     it was received; the core owns them then. The last copy that was written into them does no
//     harm, because every copy is computed from what was received.
//   - A new group is in the table before the classifier knows it, and a removed one leaves the
//     classifier before it leaves the table. A frame of a group that was removed meanwhile names
//     a generation that no longer exists, and counts as group-gone.
//
// # Fan-out in the kernel
//
// While nothing has to be decided for a group, the kernel sends its packets to all receivers by
// itself.
//
//	NIC -> classifier --armed, the next PSN, the expected headers--> copies -> ports
//	          \--anything else: the group is disarmed--> AF_XDP socket -> Core, which arms it again
//
// How the two work together:
//
//   - A group is plain (feedback/carried.go) when a new packet causes one copy for each active
//     path and nothing else. After 16 such packets the core makes a block (mft/block.go): what
//     the packet looks like, and the edit for each path. It writes the block into memory that the
//     kernel shares, and arms the group. The number doubles up to 4096 each time the kernel had
//     to give the group back soon. Where a receiver has acknowledged nothing that the kernel
//     sent, a driver may drop what XDP redirects: the number becomes 4096, then 65536, then 2^20.
//   - The kernel (bpf/fanout.h) takes a packet only if one compare-and-swap of the group's word
//     moves the PSN by one. A resent packet, a READ, another P_Key: the group is disarmed, counted
//     as fan-out-disarmed, and the packet goes to the core. What is not from the group's source
//     goes to the core too, and the kernel keeps the group.
//   - XDP broadcasts no frame of several buffers, but redirects one. So a group with path MTU 4096
//     is armed only where one copy of each packet leaves, to one receiver or by one shared leg,
//     and only by a port whose driver says that it sends such frames. Of any other group a frame
//     of several buffers goes to the core.
//   - The core gets one Carried event for the carried packets before every other event of the
//     group. It has the effect of one Data event for each packet: feedback/carried_test.go
//     compares the two, and fanout_test.go compares every byte that both engines send. Data of
//     the source that reaches the core ends the engine's turn first; otherwise a packet might
//     count twice.
//   - A NAK, a receiver that leaves, a source switch or another next hop: the core takes the
//     group back, acts, and arms it again with another block. Copies of the old block that are on
//     their way carry its epoch and are dropped. The kernel compares the epoch last, which relies
//     on the order in which x86 reads memory; on another CPU and with PREEMPT_RT the kernel
//     carries nothing.
//   - Plain ACKs are merged by the kernel (bpf/answers.h, feedback/answered.go). It checks an ACK
//     as the core would, with its ICRC. When the lowest place rises, the frame of that ACK
//     becomes the ACK to the source, with the lowest PSN and the lowest MSN; other ACKs are
//     dropped. The core ends the merging before each event of the group, so it knows at least as
//     much as the source, and opens it again afterwards. A path never gets beyond what was
//     carried. After a packet that disarmed the group nothing is merged: the source may be on its
//     way back (rule 1).
//   - ACKs stay with the core with a quorum, with credits: merge, where receivers differ in MigReq,
//     and where the kernel cannot send by the source's port. rocast group show says so.
//   - A fan (dataplane/afxdp/fanout.go) is the set of ports by which copies leave. It has only
//     ports in native mode whose driver takes a probe frame (bpf/probe.go). Each port has a fan
//     of its own for merged ACKs, because the kernel runs the program of the first frame of a
//     bulk on all frames that leave by a device.
//   - Copies of kernel and core leave by different queues of a port, so they may overtake each
//     other where one engine follows the other. For a receiver that is a loss. With a quorum a
//     NAK for such a packet proves nothing.
//   - The kernel does not see the queue of a port, so a group with a receiver behind a port that
//     marks congestion stays with AF_XDP.
//   - With repair: local the kernel copies each packet that it carries into shared memory before
//     it changes it. An entry names the PSN and the block of its packet. The core takes a packet
//     from there when a receiver asks for it, and checks its ICRC. The limit of the kernel's turn
//     follows the lowest receiver, so nothing is overwritten that a receiver may still need. A
//     group has one part of 64 packets at first, and up to its window when its source has more on
//     its way (dataplane/afxdp/kernelmemory.go). With path MTU 4096 a packet takes two entries.
//     Where memory is short, a group that has been idle gives way.
//   - With repair the ACK that measures a round trip, and one that answers a repair, come to the
//     core (AcksDecide). While the kernel merges, the core looks every 4 ms whether a receiver
//     has lost the end of what was carried, and every 16 ms while a source sends more than 128
//     packets a millisecond. Without repair it looks once a second.
//   - The kernel takes out the VLAN tags of a packet when it has counted the packet, and writes
//     those of the path, with the packet's priority.
//   - A start does not wait for the engine: ports open with the classifier alone, groups are
//     restored and workers forward, and then the programs take over at each port by an update of
//     its link. A crash removes the programs; frames go to the kernel.
//
// engine: afxdp in rocastd.yaml switches the engine off, and in a group file it excludes that
// group. The simulator, the model and the tests in namespaces run with it and without it: half of
// the simulator's runs use its twin (dataplane/porttest/fanout.go).
//
// # Shared legs
//
// One copy of a new packet may leave for several receivers, to a multicast address, and the edges
// at their hosts map it (mft.Share, edges.go).
//
//   - New packets are shared among two paths or more that are due them, and so is the repair of
//     what all have lost (sharedrepair.go). Other repairs, what the source resends, and what is for
//     a path without a working edge go by the path's own leg. So nobody depends on an edge, and the
//     merging does not know of edges: it knows which paths get shared copies (feedback/sharing.go).
//   - Which edges work shows in the answers. Three copies in a row that a receiver missed and other
//     edges brought: it gets copies of its own (note edge-lost) and is tried again after 1, 2 .. 64
//     s. An edge that is back shows before that, unless the kernel merges the ACKs: its receiver
//     acknowledges packets twice.
//   - When a member gets no data any more, its edge would go on mapping. So nothing leaves by the
//     leg from then on, until control gives it another generation, which that edge does not know.
//   - Who shares is chosen anew whenever the engine is armed. What changes it, such as an edge that
//     is lost, takes the group back (enginecopies.go).
//
// # Captures
//
// Frames that go from port to port never meet the kernel's packet sockets, so tcpdump does not see
// them. A capture gives each worker a tap (tap.go): a ring of records that the worker fills and
// the reader empties, without a lock. A frame is recorded when it was decided about, before a copy
// is written into it; a copy or reply when its port was given it. A received frame and all that is
// sent because of it have one number. A full ring counts what is lost; the worker never waits.
// While a capture runs, the kernel engine is given none of its groups. Without a capture a frame
// costs one branch.
//
// A trace of a frame that is injected (trace.go) uses a copy of the group's state, on a worker of
// its own whose ports send nothing.
//
// Read first: core.go, then copy.go, then worker.go. Where groups go to the engine and come back is
// handover.go; what the core knows of the engine is engine.go, and of each group in it fanstate.go.
package dataplane
