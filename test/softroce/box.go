package softroce

import (
	"context"
	"fmt"
	"io"
)

const (
	bridgeName = "rcbr0"
	boxAddr    = "10.77.0.254"
	boxAddr6   = "fd77::254"
)

// Box is what the guests stand around: a Namespace, a BoxGuest, or a System. It has one port for
// each guest.
type Box interface {
	// build makes the ports and joins them with a bridge that has the addresses of the box. It
	// returns the other ends of the ports, of guest 1 first. The caller closes them, also after an
	// error.
	build(ctx context.Context, guests, mtu int) ([]io.ReadWriteCloser, error)
	setMTU(ctx context.Context, guests, mtu int) error
	close() error
}

// PortName is the interface of the box that is wired to guest number n.
func PortName(n int) string { return fmt.Sprintf("rcp%d", n) }
