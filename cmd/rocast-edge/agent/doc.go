// Package agent is the edge of a receiver's host. It attaches the program that maps shared copies
// (bpf/edge) to the interfaces with the host's IPs, joins the multicast addresses, and asks
// the boxes which mappings the host is to have.
//
// A box answers for the IP from which it is asked, or for the host whose edge its config says asks
// from there. The agent takes no mapping to another one.
// The next question names the answer that is loaded, and so confirms it. A mapping never changes:
// what would change it has another QPN. So nothing has to happen at the same moment at a box and at
// a host, and an edge that is late drops what it does not know yet.
//
// In front of a NIC that takes RoCE by itself the agent runs on another machine, in the wire: a
// bridge there joins two ports. The program maps at the one towards the boxes, and the bridge
// carries the packet to the host (wire.go).
//
// Nothing else in a network depends on an agent that runs. When it ends, the program and its
// mappings stay, and only the membership of the multicast addresses ends until the next start. A
// box that is away may come back: its mappings stay for [Kept].
//
// Read first: agent.go, one round of a partner.
package agent
