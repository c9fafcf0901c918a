// Package bpf is the classifier: an XDP program that finds the frames of the groups on an interface, writes 16 bytes of XDP
// metadata in front of each (group, kind, header offsets), and redirects it to the AF_XDP socket of its queue. The package
// also has the program's loader, the meaning of its maps, and the probes for what the program needs of the kernel.
//
// The classifier changes no byte of a frame and knows nothing of members, paths or merging. A frame that is not a group's
// goes to the kernel unchanged, and so does a group's frame that cannot be redirected. The only frames it drops are RoCEv2
// frames from an address that the box speaks for ([MatchSrc]); the kernel drops frames where a socket's ring is full. The
// classifier reads addresses, ports, opcode and QPN, not lengths or the ICRC: the dataplane checks whether a group's frame
// is valid.
//
// One [Classifier] holds the group entries and the counters of all ports; [Classifier.OpenPort] attaches to one interface
// by bpf_link, so that a daemon that dies leaves no program behind. The order in which things come and go matters:
//
//	appear     table published -> PutGroup; OpenPort, sockets bound -> SetSocket
//	disappear  DeleteGroup -> table published; Port.Close -> sockets closed
//	change     PutGroup of new entries -> table published -> DeleteGroup of old ones
//
// Between the steps of the first two, group frames go to the kernel. A frame already in a ring may still name a group that is gone: the
// dataplane looks the number up and counts it.
//
// Load and OpenPort need CAP_BPF and CAP_NET_ADMIN, nothing else; a test holds them to that.
//
// A VLAN tag is seen only if it is in the frame. NICs and veth peers that take it out (ethtool features rx-vlan-offload, on
// the peer tx-vlan-offload) make the frame look untagged here, and its copies would leave untagged: turn them off on tagged ports.
//
// Read classifier.c first: it is one screen of parsing and one of lookup. classifier_bpfel.go and .o are generated from it
// (go generate, clang 14; nothing of the machine or the directory gets into them) and committed, so that building rocast
// needs no clang.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3" -type rocast_verdict -type rocast_match classifier classifier.c
