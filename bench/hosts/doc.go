// Package hosts is both ends of a measurement: a source that sends like an RC requester, with a
// window and go-back-N, and receivers that take packets in order and answer the packets that ask
// for an ACK. They have no API for RDMA programs, but on the wire each of them is a queue pair. So
// a forwarder can merge their answers, and a lost packet costs as much as it costs a real source.
//
//	source      requester.go: what to send; template.go: its bytes; AF_XDP sends it
//	receiver    responder.c: counts and drops in XDP; what must be answered goes up to loop.go
//
// The source and the receivers run on one thread, bound to one CPU. The thread sleeps while the
// window is closed.
//
// Every forwarder gets the receivers' answers as frames. One that merges answers sends the source
// the merged ones. The others bring every answer to the source, which knows each receiver's
// numbers and opens its window when all receivers have a packet. In both cases the slowest receiver
// bounds the source, and every ACK is compared with the packets that the receivers have at that
// moment.
//
// Start reading at Hosts.
package hosts

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3" -type flow -type seen responder responder.c
