// Package afxdp makes a dataplane.Switch of real interfaces: it attaches the
// classifier, opens one AF_XDP socket for each queue of each port over one
// shared UMEM, and gives the worker ports to receive from and send to.
//
// It decides nothing about frames. Read first: open.go, then port.go.
package afxdp
