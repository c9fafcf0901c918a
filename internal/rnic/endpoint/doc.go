// Package endpoint runs soft RDMA queue pairs (internal/rnic) on a real interface: a host with an RDMA NIC, for tests
// and demos that need one in a network namespace.
//
// Frames go through an AF_PACKET socket, so the interface may be anything, also the end of a veth pair whose other
// end has an XDP program. ARP is the kernel's: the interface carries the endpoint's IP, and Connect finds a peer's
// MAC in the neighbour table. RoCE traffic also reaches that kernel, which would answer "port unreachable"; a UDP
// socket that takes and drops everything on port 4791 keeps it quiet.
//
// What it never does: enter a namespace. Open works in the one its thread is in; afterwards any thread may use the
// endpoint. With internal/testlab/netns:
//
//	var e *endpoint.Endpoint
//	err := ns.Do(func() (err error) { e, err = endpoint.Open("p0", netip.MustParseAddr("10.0.0.1")); return err })
//
// Read Endpoint and its run first: one goroutine owns the socket, and a mutex stands between it and those who post
// work.
package endpoint
