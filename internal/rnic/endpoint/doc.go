// Package endpoint runs soft RDMA queue pairs (internal/rnic) on a real interface: a host with an
// RDMA NIC, for tests and demos that need one in a network namespace.
//
// Frames go through an AF_PACKET socket, so the interface may be of any kind, also the end of a
// veth pair whose other end has an XDP program. The kernel answers ARP: the interface carries the
// IP of the endpoint, and Connect finds the MAC of a peer in the neighbour table. RoCE traffic also
// reaches the kernel, which would answer "port unreachable"; a UDP socket on port 4791 that drops
// everything prevents that.
//
// The package never enters a namespace. Open works in the namespace of its thread; afterwards any
// thread may use the endpoint. With internal/testlab/netns:
//
//	var e *endpoint.Endpoint
//	err := ns.Do(func() (err error) { e, err = endpoint.Open("p0", netip.MustParseAddr("10.0.0.1")); return err })
//
// Read Endpoint and its run first: one goroutine owns the socket, and a mutex guards the queue
// pairs against the goroutines that post work.
package endpoint
