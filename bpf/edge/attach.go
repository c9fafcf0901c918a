package edge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Mode is where in an interface's receive path the program runs, and how it is attached.
type Mode string

// The modes in the order in which they are tried. Native mode costs least. tc leaves the interface
// and its other programs alone, and generic mode works everywhere.
const (
	NativeFrags Mode = "xdp native frags" // frames may take several buffers
	Native      Mode = "xdp native"
	TCX         Mode = "tcx" // kernel >= 6.6
	Clsact      Mode = "tc clsact"
	Generic     Mode = "xdp generic"
)

// Modes are all modes in the order in which they are tried.
var Modes = []Mode{NativeFrags, Native, TCX, Clsact, Generic}

// hook is where a program is attached.
type hook interface {
	mode() Mode
	// at reports whether the program is attached to this interface.
	at(ifindex int) (bool, error)
	update(*ebpf.Program) error
	// close ends the use of the hook, where the program stays.
	close() error
	// detach removes the program.
	detach() error
}

// programs are those for each mode.
var programs = map[Mode]string{
	NativeFrags: edgeProgRocastEdgeFrags, Native: edgeProgRocastEdge, Generic: edgeProgRocastEdge,
	TCX: edgeProgRocastEdgeTc, Clsact: edgeProgRocastEdgeTc,
}

// Mode is the mode in which the program is attached.
func (p *Program) Mode() Mode { return p.hook.mode() }

// Attach attaches the program to an interface of the calling thread's network namespace, in the
// first of these modes that works, and pins it in a folder of pins that has the interface's name.
// If a program is pinned there and still attached, it is replaced, and its mappings stay. The error
// does not name the interface.
func Attach(name, pins string, modes []Mode) (*Program, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(pins, name)
	if err := makeFolder(folder); err != nil {
		return nil, err
	}
	p, err := open(folder)
	if err != nil {
		return nil, err
	}
	if err := p.attach(dev.Attrs().Index, modes); err != nil {
		return nil, errors.Join(err, p.Close(), Detach(name, pins))
	}
	return p, nil
}

func makeFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make the folder of what is pinned, in the BPF file system that systemd mounts at /sys/fs/bpf: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", folder, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		return errors.Join(os.Remove(folder),
			fmt.Errorf("%s is not in a BPF file system, where programs outlive their process; mount one with: mount -t bpf bpf /sys/fs/bpf", folder))
	}
	return nil
}

func (p *Program) attach(ifindex int, modes []Mode) error {
	if err := p.takeOver(ifindex, modes); err != nil || p.hook != nil {
		return err
	}
	var refusals []error
	for _, mode := range modes {
		err := p.attachAs(ifindex, mode)
		if err == nil {
			return nil
		}
		refusals = append(refusals, fmt.Errorf("%s: %w", mode, err))
	}
	return fmt.Errorf("no way to attach the program works: %w", errors.Join(refusals...))
}

// takeOver replaces the program of a hook that is pinned. A hook that no longer is attached to
// the interface, or that is of another mode than these, is removed.
func (p *Program) takeOver(ifindex int, modes []Mode) error {
	found, err := pinnedHook(p.pinned)
	if err != nil || found == nil {
		return err
	}
	if attached, err := found.at(ifindex); err == nil && attached && slices.Contains(modes, found.mode()) {
		program, err := p.load(programs[found.mode()])
		if err == nil {
			err = found.update(program)
			program.Close()
		}
		if err == nil {
			p.hook = found
			return nil
		}
	}
	return found.detach()
}

func (p *Program) attachAs(ifindex int, mode Mode) error {
	program, err := p.load(programs[mode])
	if err != nil {
		return err
	}
	defer program.Close()
	if mode == Clsact {
		p.hook, err = attachFilter(ifindex, program, p.pinned)
		if err != nil {
			p.hook = nil
		}
		return err
	}
	var l link.Link
	switch mode {
	case TCX:
		l, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: ebpf.AttachTCXIngress})
	case Generic:
		l, err = link.AttachXDP(link.XDPOptions{Interface: ifindex, Program: program, Flags: link.XDPGenericMode})
	default:
		l, err = link.AttachXDP(link.XDPOptions{Interface: ifindex, Program: program, Flags: link.XDPDriverMode})
	}
	if err != nil {
		return explain(err)
	}
	if err := l.Pin(filepath.Join(p.pinned, pinName(mode))); err != nil {
		return errors.Join(fmt.Errorf("pin the link: %w", err), l.Close())
	}
	p.hook = &linked{l, mode}
	return nil
}
