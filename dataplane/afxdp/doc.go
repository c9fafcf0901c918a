// Package afxdp makes a dataplane.Switch of real interfaces: it attaches the
// classifier, opens one AF_XDP socket for each queue of each port over one
// UMEM per worker, and gives the workers ports to receive from and send to.
//
// A port is a name. The interface of that name may go, come back as another
// one, or get more queues; [Switch.Refresh] sees that and opens the port again
// under the same PortID.
//
// It decides nothing about frames. Read first: open.go, then refresh.go, then
// port.go.
package afxdp
