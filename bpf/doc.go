// Package bpf is the programs in the kernel, their loader, the meaning of their maps, and the
// probes for what they need of the kernel. One object has all programs (programs.c), in parts:
//
//	classifier.h  finds the frames of the groups on an interface, writes 16 bytes of XDP metadata
//	              in front of each (group, kind, header offsets), and redirects it to the AF_XDP
//	              socket of its queue
//	fanout.h      fan-out: it sends the plain packets of armed groups to all receivers instead
//	copies.h      makes each copy what its receiver expects, in front of its port
//	answers.h     merges the plain ACKs of the receivers of an armed group
//
// The classifier changes no byte of a frame and knows nothing of members, paths or merging. A frame
// that is not a group's goes to the kernel unchanged, and so does a group's frame that cannot be
// redirected. The only frames that are dropped are RoCEv2 frames from an address that the box
// speaks for ([MatchSrc]), and ACKs that the kernel has merged; the kernel drops frames where a
// socket's ring is full. The classifier reads addresses, ports, opcode and QPN, not lengths or the
// ICRC: the dataplane checks whether a group's frame is valid. Fan-out and the merging decide
// nothing: they leave every frame to user space that is not exactly what user space expects.
// dataplane/doc.go says how the two work together.
//
// One [Classifier] holds the group entries and the counters of all ports. [Classifier.OpenPort]
// attaches to one interface by a bpf_link, so a daemon that dies leaves no program behind. Ports
// open with the classifier alone (rocast_classify_alone). [Classifier.LoadFanOut] loads the rest:
// rocast_classify, and rocast_fan_out for the copies. [Classifier.Engage] replaces the program of
// each port.
//
// The classifier alone is a program of its own, although a constant could exclude fan-out from
// rocast_classify. Without CAP_PERFMON the verifier follows a branch that a constant excludes all
// the same, because a CPU may do so by speculation, and refuses fan-out there: a daemon without
// that capability would have no classifier either (seen with 6.18). Where the verifier refuses the
// merging of answers alone, a constant leaves that out (merges_answers).
//
// The order of changes matters:
//
//	appear     table published -> PutGroup; OpenPort, sockets bound -> SetSocket
//	disappear  DeleteGroup -> table published; Port.Close -> sockets closed
//	change     PutGroup of new entries -> table published -> DeleteGroup of old ones
//
// In the first two cases, group frames go to the kernel between the two steps. A frame that is
// already in a ring may name a group that has been removed: the dataplane looks the number up and
// counts the frame.
//
// Three capabilities are needed, and a fourth at the start. Load and OpenPort need CAP_BPF and
// CAP_NET_ADMIN, and with the verifier of 6.1, which is stricter without it, CAP_PERFMON.
// LoadFanOut and [ProbeTransmit] need all three. To name the program that holds an interface, and
// to make a namespace for a probe ([Features]), takes CAP_SYS_ADMIN; without it the error is
// shorter. Tests check this.
//
// The classifier sees a VLAN tag only if it is in the frame. A NIC, or the peer of a veth, may move
// the tag out of the frame (ethtool features rx-vlan-offload and, on the peer, tx-vlan-offload).
// Turn these off on tagged ports: the dataplane refuses frames whose tags are not those of their
// sender.
//
// Read classifier.h first: one screen of parsing and one of lookup. programs_bpfel.go and .o are
// generated from programs.c (go generate, clang 14) and committed, so that building rocast needs no
// clang. The generated files do not depend on the machine or the directory.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3" -type rocast_verdict -type rocast_match -type rocast_port -type rocast_fan_event -type rocast_slot -type rocast_path -type rocast_crc programs programs.c
