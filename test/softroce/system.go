package softroce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/rocast/rocast/test/softroce/image"
)

// System is a box that is a whole Debian: systemd starts it, dpkg installs into it, and it reboots.
// Its ports are eth1 to ethN and have no configuration; eth0 is a NIC without a cable.
type System struct {
	*computer
	Kernel string // its release

	image image.Image
	accel string
}

// systemMemoryMiB is enough for systemd and rocastd. One CPU is not enough for an operator:
// rocastd has a higher priority than the operator's commands, and under emulation the traffic of
// one group takes a whole CPU.
const (
	systemMemoryMiB = 1024
	systemCPUs      = 2
)

func newSystem(ctx context.Context, release, accel string) (*System, error) {
	i, err := image.BuildSystem(ctx, release)
	return &System{computer: &computer{name: "the box"}, image: i, accel: accel}, err
}

func (b *System) build(ctx context.Context, guests, _ int) (ports []io.ReadWriteCloser, err error) {
	h := hardware{memoryMiB: systemMemoryMiB, cpus: systemCPUs}
	for n := range guests {
		h.nics = append(h.nics, nic{virtioNet, net.HardwareAddr{0x52, 0x54, 0x00, 0x77, 0x01, byte(n + 1)}})
	}
	m, err := b.powerOn(func() (*machine, error) { return powerOn(b.image, b.accel, h) })
	if err != nil {
		return nil, err
	}
	ports = slices.Clone(m.nics)
	return ports, b.booted(ctx, m)
}

// booted returns when everything that starts at a boot has started. A service that failed is an
// error.
func (b *System) booted(ctx context.Context, m *machine) error {
	hello, err := m.hello(ctx)
	if err != nil {
		return fmt.Errorf("boot the box: %w", err)
	}
	b.Kernel = hello.Kernel
	if state, err := b.Run(ctx, "systemctl", "is-system-running", "--wait"); err != nil {
		failed, _ := b.Run(ctx, "systemctl", "--failed", "--no-pager")
		return fmt.Errorf("the box booted and is %q: %w\n%s", state, err, failed)
	}
	return nil
}

// Reboot returns when the box has rebooted. The cables stay.
func (b *System) Reboot(ctx context.Context) error {
	m := b.machine()
	if m == nil {
		return b.off()
	}
	// The agent may end before it has said how the command ended.
	if _, err := b.Start("systemctl", "reboot"); err != nil {
		return err
	}
	return b.booted(ctx, m)
}

func (b *System) setMTU(context.Context, int, int) error {
	return errors.New("the ports of a system are configured as a user does it")
}

func (b *System) close() error {
	b.PowerOff()
	return nil
}
