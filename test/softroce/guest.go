package softroce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"

	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/wire"
)

// ErrOff says that a guest is powered off.
var ErrOff = errors.New("powered off")

// Guest is one host of the lab. Its methods may be called from any goroutine.
type Guest struct {
	Number int // from 1
	Addr   netip.Addr
	Addr6  netip.Addr
	MAC    net.HardwareAddr
	Wire   *wire.Wire // to PortName(Number)
	Kernel string     // its release, known after the boot

	lab *Lab
	mu  sync.Mutex
	on  *machine
}

func newGuest(l *Lab, n int, w *wire.Wire) *Guest {
	return &Guest{
		Number: n,
		Addr:   netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}),
		Addr6:  netip.MustParseAddr(fmt.Sprintf("fd77::%d", n)),
		MAC:    net.HardwareAddr{0x52, 0x54, 0x00, 0x77, 0x00, byte(n)},
		Wire:   w,
		lab:    l,
	}
}

// Boot powers the guest on and returns when its RDMA device can be used.
func (g *Guest) Boot(ctx context.Context) error {
	if err := g.boot(ctx); err != nil {
		return fmt.Errorf("boot guest %d on %s: %w", g.Number, g.lab.image.Series, err)
	}
	return nil
}

func (g *Guest) boot(ctx context.Context) error {
	if g.machine() != nil {
		return errors.New("it is on")
	}
	m, err := powerOn(g.lab.image, g.lab.accel, g.MAC)
	if err != nil {
		return err
	}
	g.setMachine(m)
	g.Wire.Plug(m.data)
	hello, err := m.hello(ctx)
	if err == nil {
		g.Kernel = hello.Kernel
		err = g.configure(ctx)
	}
	if err != nil {
		g.PowerOff()
	}
	return err
}

// configure gives the guest its addresses and its RDMA device. It waits until both addresses have a
// GID: a kernel worker adds the GIDs later.
func (g *Guest) configure(ctx context.Context) error {
	script := fmt.Sprintf(`set -e
ip link set lo up
ip link set eth0 mtu %d up
ip address add %s/24 dev eth0
ip address add %s/64 dev eth0 nodad
ip route add default via %s
rdma link add rxe0 type rxe netdev eth0
gids=/sys/class/infiniband/rxe0/ports/1/gids
until grep -q %s $gids/* && grep -q %s $gids/*; do sleep 0.02; done
`, g.lab.mtu, g.Addr, g.Addr6, boxAddr, gidText(g.Addr), gidText(g.Addr6))
	_, err := g.Run(ctx, "dash", "-c", script)
	return err
}

// gidText is the GID of an address as sysfs prints it.
func gidText(addr netip.Addr) string {
	raw := addr.As16()
	groups := make([]string, 0, len(raw)/2)
	for i := 0; i < len(raw); i += 2 {
		groups = append(groups, fmt.Sprintf("%02x%02x", raw[i], raw[i+1]))
	}
	return strings.Join(groups, ":")
}

// PowerOff cuts the power: peers get no goodbye, and every process of the guest is lost. The guest
// may already be off.
func (g *Guest) PowerOff() {
	g.mu.Lock()
	m := g.on
	g.on = nil
	g.mu.Unlock()
	if m != nil {
		m.powerOff()
	}
}

// Pause stops the guest between two instructions. Its NIC accepts no more frames, and the guest
// does not notice.
func (g *Guest) Pause() error { return g.signal(syscall.SIGSTOP) }

// Resume continues a paused guest.
func (g *Guest) Resume() error { return g.signal(syscall.SIGCONT) }

func (g *Guest) signal(s syscall.Signal) error {
	m := g.machine()
	if m == nil {
		return g.off()
	}
	return m.cmd.Process.Signal(s)
}

// Start starts a command.
func (g *Guest) Start(args ...string) (*control.Process, error) {
	m := g.machine()
	if m == nil {
		return nil, g.off()
	}
	return m.control.Start(control.Command{Args: args})
}

// Run runs a command to its end and returns its stdout. If the exit status is not zero, the error
// has the stderr of the command.
func (g *Guest) Run(ctx context.Context, args ...string) (string, error) {
	p, err := g.Start(args...)
	if err != nil {
		return "", err
	}
	exit, err := p.Wait(ctx)
	if err == nil && !exit.OK() {
		err = errors.New(exit.String())
	}
	if err != nil {
		err = fmt.Errorf("guest %d: %s: %w\n%s", g.Number, args[0], err, p.Stderr)
	}
	return p.Stdout.String(), err
}

// GIDIndex is the index of an address in the GID table, for perftest's option -x.
func (g *Guest) GIDIndex(ctx context.Context, addr netip.Addr) (string, error) {
	const dir = "/sys/class/infiniband/rxe0/ports/1/gids"
	// Most files of the table are empty and cannot be read. That is not an error of the search.
	out, err := g.Run(ctx, "dash", "-c", "grep -l "+gidText(addr)+" "+dir+"/* 2>/dev/null")
	if err != nil {
		return "", fmt.Errorf("guest %d has no GID for %s", g.Number, addr)
	}
	return strings.TrimPrefix(strings.TrimSpace(out), dir+"/"), nil
}

// Console is the end of what the kernel of the guest printed, for the report of a failed story.
func (g *Guest) Console() string {
	if m := g.machine(); m != nil {
		return m.console.String()
	}
	return ""
}

func (g *Guest) machine() *machine {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.on
}

func (g *Guest) setMachine(m *machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = m
}

func (g *Guest) off() error { return fmt.Errorf("guest %d: %w", g.Number, ErrOff) }
