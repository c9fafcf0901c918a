package softroce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/rocast/rocast/test/softroce/image"
	"github.com/rocast/rocast/test/softroce/wire"
)

const (
	// The interface MTUs with which rxe has path MTU 1024 and 4096. rxe uses the largest InfiniBand
	// MTU that is at least 80 bytes below the MTU of the interface. With MTU4096 a QP can have any
	// smaller path MTU too.
	MTU1024 = 1500
	MTU4096 = 4200
)

// NewestKernel is the series of the newest kernel that setup.sh has found.
const NewestKernel = "newest"

// maxGuests bounds the addresses. Memory allows much fewer guests.
const maxGuests = 100

// Config says what a lab consists of.
type Config struct {
	Kernel string // kernel series of the guests, "6.1" or "6.12"
	Hosts  string // the release of Debian of their user space, "13"; "": that of this machine
	Guests int
	MTU    int // MTU1024 or MTU4096

	MemoryMiB int  // of each guest; 0: guestMemoryMiB
	MPI       bool // whether the guests have Open MPI and MPICH
	Packages  bool // whether they have rocast-cp, librocast.so, and Python with the package rocast

	// Here: the guests are namespaces of this machine, with its kernel and its user space.
	Here bool

	// BoxNICs are the NICs of a box that is a guest with the same kernel, one for each guest. nil:
	// the box is a namespace of this machine.
	BoxNICs []nicModel
	// BondMode joins two of the NICs by a bond in this mode: that of guest 1 and one more, which is
	// the last of BoxNICs. With 802.3ad guest 1 has a bond too, and each lower device of the one is
	// wired to one of the other; else guest 1 has one NIC behind a switch. "": there is no bond.
	BondMode string
	// Tags say in which VLAN each guest is, if the box is a guest. nil: no frame has a tag.
	Tags []Tag

	// System is the release of Debian of a box that is a whole Debian with systemd, "bookworm". "":
	// the box is one of the others.
	System string
}

// Lab is a box with guests around it. All guests are booted.
type Lab struct {
	Box    Box
	Guests []*Guest // Guests[0] is guest number 1
	Accel  string   // what the guests run on, and why

	image     image.Image
	accel     string
	mtu       int
	memoryMiB int
	tags      []Tag
	lacp      bool // guest 1 has a bond
	here      bool // the guests are namespaces
}

// device is the name of a guest's RDMA device. The names of one kernel differ.
func (l *Lab) device(guest int) string {
	if l.here {
		return fmt.Sprintf("rcrxe%d_%d", os.Getpid(), guest)
	}
	return "rxe0"
}

// Open builds the image and boots the guests. A bridge in the box joins their ports. An error that
// wraps image.ErrNotPrepared says that setup.sh has to run first.
func Open(ctx context.Context, c Config) (*Lab, error) {
	if c.Guests < 1 && c.BoxNICs == nil || c.Guests > maxGuests {
		return nil, fmt.Errorf("a lab has 1 to %d guests, not %d", maxGuests, c.Guests)
	}
	l := &Lab{mtu: c.MTU, memoryMiB: max(c.MemoryMiB, guestMemoryMiB), tags: c.Tags, lacp: c.BondMode == lacpMode, here: c.Here}
	var err error
	if c.Here {
		l.Accel = "namespaces of this machine"
	} else if err = l.prepare(ctx, image.Parts{Kernel: c.Kernel, Hosts: c.Hosts, MPI: c.MPI, Packages: c.Packages}); err != nil {
		return nil, err
	}
	if l.Box, err = newBox(ctx, c, l); err != nil {
		return nil, err
	}
	if err := l.fill(ctx, c.Guests); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// prepare builds the image of the guests, and finds out what they run on.
func (l *Lab) prepare(ctx context.Context, p image.Parts) (err error) {
	if l.image, err = image.Build(ctx, p); err != nil {
		return err
	}
	var why string
	l.accel, why = accelerator(ctx, l.image)
	l.Accel = l.accel + ": " + why
	return nil
}

// OpenGuest boots one guest and nothing around it. The guest is the box of the lab, and has no NIC:
// whoever needs a network makes namespaces in it.
func OpenGuest(ctx context.Context, kernel string) (*Lab, error) {
	return Open(ctx, oneGuest(kernel))
}

func oneGuest(kernel string) Config {
	return Config{Kernel: kernel, MTU: MTU1024, BoxNICs: []nicModel{}}
}

func newBox(ctx context.Context, c Config, l *Lab) (Box, error) {
	switch {
	case c.System != "":
		return newSystem(ctx, c.System, l.accel)
	case c.BoxNICs != nil:
		return newBoxGuest(l.image, l.accel, c), nil
	default:
		return openNamespace()
	}
}

func (l *Lab) fill(ctx context.Context, guests int) error {
	ports, err := l.Box.build(ctx, guests, l.mtu)
	var second io.ReadWriteCloser
	if l.lacp && len(ports) > guests {
		second, ports = ports[guests], ports[:guests]
	}
	for i, port := range ports {
		l.Guests = append(l.Guests, newGuest(l, i+1, wire.New(port)))
	}
	if second != nil {
		l.Guests[0].Second = wire.New(second)
	}
	if err != nil {
		return err
	}
	return l.bootAll(ctx)
}

func (l *Lab) bootAll(ctx context.Context) error {
	errs := make([]error, len(l.Guests))
	var booting sync.WaitGroup
	for i, g := range l.Guests {
		booting.Go(func() { errs[i] = g.Boot(ctx) })
	}
	booting.Wait()
	return errors.Join(errs...)
}

// Revive boots the guests that are off. A guest that has died is booted too, because otherwise
// whatever follows would fail as well; the error names it and says why it died.
func (l *Lab) Revive(ctx context.Context) error {
	var errs []error
	for _, g := range l.Guests {
		if died := g.died(); died != nil {
			errs = append(errs, died)
			g.PowerOff()
		}
		if g.machine() == nil {
			errs = append(errs, g.Boot(ctx))
		}
	}
	return errors.Join(errs...)
}

// Close powers all guests off and removes the lab.
func (l *Lab) Close() error {
	var errs []error
	for _, g := range l.Guests {
		g.PowerOff()
		for _, w := range g.wires() {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(append(errs, l.Box.close())...)
}

// SetMTU changes the MTU of the interfaces of the box and of all running guests. With it the path
// MTU of rxe changes.
func (l *Lab) SetMTU(ctx context.Context, mtu int) error {
	if err := l.Box.setMTU(ctx, len(l.Guests), mtu); err != nil {
		return err
	}
	l.mtu = mtu
	for _, g := range l.Guests {
		if _, err := g.Run(ctx, "ip", "link", "set", "eth0", "mtu", fmt.Sprint(mtu)); err != nil {
			return err
		}
	}
	return nil
}
