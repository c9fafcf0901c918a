// Package hosts is both ends of a measurement: a source that sends as an RC requester does, with a
// window and go-back-N, and receivers that take packets in order and answer those that ask. Neither
// looks like a NIC to a program, but on the wire they are a queue pair each, so a forwarder that
// merges answers has what it needs, and a lost packet costs what it costs a real source.
//
//	source      requester.go: what to send; template.go: its bytes; AF_XDP sends it
//	receiver    responder.c: counts and drops in XDP; what must be answered goes up to loop.go
//
// All of it runs on one thread, bound to one CPU, which takes naps while the window is closed.
//
// Answers take one of two ways. A forwarder that merges them gets them as frames, and the source
// hears what it makes of them; every ACK that the source hears is compared with what the receivers
// have at that moment. Other forwarders would do nothing sensible with answers, so the source is
// told by the receivers directly and opens its window when all of them have a packet. Both kinds of
// source are bound to the slowest receiver.
//
// Start reading at Hosts.
package hosts

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3" -type flow -type seen responder responder.c
