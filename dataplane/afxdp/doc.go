// Package afxdp makes a dataplane.Switch of real interfaces. It attaches the classifier, opens an
// AF_XDP socket for each queue of each port, and gives the sockets to the workers as ports. Each
// worker has one UMEM for all its sockets.
//
// A PortID belongs to an interface name and never changes, even if the interface is recreated or
// gets other queues. [Switch.Refresh] notices that and opens the port again.
//
// The package decides nothing about frames. Read open.go first, then refresh.go, port.go
// (receiving) and send.go.
package afxdp
