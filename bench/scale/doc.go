// Package scale simulates reliable multicast at the size of the papers: fat trees of 1,024 and
// 16,384 hosts with a box at every switch, groups of hundreds of receivers, unicast flows beside
// them, and programs that do without multicast.
//
// What decides is the code that runs on the wire:
//
//   - merging, repair and the filter of congestion notifications: package feedback, one group state
//     in each box of a group's tree;
//   - which box is asked for which receivers: package ctl/tree, at each box by itself;
//   - requesters: internal/rnic with its window, its timers, go-back-N and DCQCN;
//   - which packets a queue marks: dataplane.Egress.
//
// What is simplified, compared with verify/sim, which runs whole frames through the whole core:
//
//   - Between a requester and an answer to it a packet is a record and no frame. Copies are not
//     edited: all queue pairs of a group have equal numbers. Nothing is damaged or overtaken.
//   - A box handles a packet in no time, and no engine carries packets past its core. Memory for
//     repair has no bound but the window of the policy.
//   - A receiver is a responder of 30 lines (responder.go), which a test compares with a queue pair
//     of internal/rnic, answer by answer. Payload is not written anywhere.
//   - Time is counted in picoseconds. A switch stores a packet and then forwards it.
//
// sim_test.go plays the same small trees here and in verify/sim and compares what the source sees
// and when.
//
// A run reads no clock, starts no goroutine and iterates no map: the same seed gives the same
// events ([Net.Hash]). The invariants hold after every event that can break them (check.go): no
// box acknowledges what a receiver below it lacks, no packet appears or vanishes on a link, and a
// requester is told of no packet that it has not sent.
//
// Read topology.go for the network, net.go for the loop, group.go for boxes and receivers, conn.go
// for requesters, relay.go for programs that pass messages on. Command rocscale runs the
// experiments.
package scale
