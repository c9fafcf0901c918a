// Package afxdp makes a dataplane.Switch of real interfaces. It attaches the classifier, opens an
// AF_XDP socket for each queue of each port, and gives the sockets to the workers as ports. Each
// worker has one UMEM for all its sockets.
//
// A PortID belongs to an interface name and never changes, even if the interface is recreated or
// gets other queues. [Switch.Refresh] notices that and opens the port again.
//
// A port may be up and give rocast nothing: its driver takes the program and does not run it, or
// the kernel drops what the program redirects. Counters show both within one to two seconds of
// traffic (deaf.go), and the port is opened again in generic mode. rocast sends no probe of its own
// when a port opens: a NIC does not loop a frame to itself back, and the answer to an ARP request
// shows no more than any other frame does.
//
// The package decides nothing about frames. Read open.go first, then refresh.go, port.go
// (receiving) and send.go.
package afxdp
