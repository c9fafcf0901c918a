package edge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What is pinned in the folder besides the maps: a link, or the program of a filter.
const (
	linkPrefix    = "link-"
	filterPin     = "filter"
	ownFilterPin  = "filter-and-qdisc" // the qdisc was made for it
	filterHandle  = 1
	filterOrder   = 4791 // of the filters at an interface, the priority
	filterProgram = edgeProgRocastEdgeTc
)

func pinName(m Mode) string { return linkPrefix + strings.ReplaceAll(string(m), " ", "-") }

// pinnedHook finds what is pinned in a folder; nil: nothing is.
func pinnedHook(folder string) (hook, error) {
	for _, mode := range Modes {
		path := filepath.Join(folder, pinName(mode))
		l, err := link.LoadPinnedLink(path, nil)
		switch {
		case err == nil:
			return &linked{l, mode}, nil
		case !errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("take over %s: %w", path, explain(err))
		}
	}
	for _, pin := range []string{filterPin, ownFilterPin} {
		program, err := ebpf.LoadPinnedProgram(filepath.Join(folder, pin), nil)
		switch {
		case err == nil:
			return findFilter(filepath.Base(folder), program, pin == ownFilterPin)
		case !errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("take over %s: %w", filepath.Join(folder, pin), explain(err))
		}
	}
	return nil, nil
}

// linked is a hook with a pinned link: XDP and tcx.
type linked struct {
	link link.Link
	is   Mode
}

func (l *linked) mode() Mode                   { return l.is }
func (l *linked) update(p *ebpf.Program) error { return l.link.Update(p) }
func (l *linked) close() error                 { return l.link.Close() }

// detach works while another process has the link open too.
func (l *linked) detach() error {
	err := l.link.Detach()
	if errors.Is(err, unix.ENOLINK) || errors.Is(err, unix.ENODEV) { // the interface has gone
		err = nil
	}
	return errors.Join(err, l.link.Unpin(), l.link.Close())
}

func (l *linked) at(ifindex int) (bool, error) {
	info, err := l.link.Info()
	if err != nil {
		return false, err
	}
	if xdp := info.XDP(); xdp != nil {
		return int(xdp.Ifindex) == ifindex, nil
	}
	tcx := info.TCX()
	return tcx != nil && int(tcx.Ifindex) == ifindex, nil
}

// filter is a hook at the clsact qdisc. No link holds the program: the interface does.
type filter struct {
	ifindex  int
	program  *ebpf.Program // the first one, which is pinned to say whose the filter is
	ownQdisc bool
}

func (f *filter) mode() Mode   { return Clsact }
func (f *filter) close() error { return f.program.Close() }

// attachFilter makes the filter, and the qdisc if the interface has none.
func attachFilter(ifindex int, program *ebpf.Program, folder string) (hook, error) {
	qdisc := clsact(ifindex)
	f, pin := &filter{ifindex: ifindex}, filterPin
	switch err := netlink.QdiscAdd(qdisc); {
	case err == nil:
		f.ownQdisc, pin = true, ownFilterPin
	case !errors.Is(err, unix.EEXIST):
		return nil, fmt.Errorf("make the clsact qdisc: %w", err)
	}
	var err error
	if f.program, err = program.Clone(); err == nil {
		err = f.program.Pin(filepath.Join(folder, pin))
	}
	if err == nil {
		err = f.update(program)
	}
	if err != nil {
		if f.program != nil {
			err = errors.Join(err, f.detach())
		}
		return nil, err
	}
	return f, nil
}

// findFilter is the hook of a program that was pinned for an interface. The interface may have
// gone.
func findFilter(name string, program *ebpf.Program, ownQdisc bool) (hook, error) {
	f := &filter{program: program, ownQdisc: ownQdisc}
	dev, err := netlink.LinkByName(name)
	if err == nil {
		f.ifindex = dev.Attrs().Index
	} else if !errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, errors.Join(err, program.Close())
	}
	return f, nil
}

func (f *filter) at(ifindex int) (bool, error) {
	if f.ifindex != ifindex {
		return false, nil
	}
	list, err := netlink.FilterList(device(ifindex), netlink.HANDLE_MIN_INGRESS)
	return slices.ContainsFunc(list, isOurs), err
}

func isOurs(f netlink.Filter) bool {
	b, ok := f.(*netlink.BpfFilter)
	return ok && b.Name == filterProgram && b.Priority == filterOrder
}

func (f *filter) update(p *ebpf.Program) error {
	err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: f.ifindex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: filterHandle, Priority: filterOrder, Protocol: unix.ETH_P_ALL,
		},
		Fd: p.FD(), Name: filterProgram, DirectAction: true,
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("make the filter: the kernel has no module cls_bpf: %w", err)
	case err != nil:
		return fmt.Errorf("make the filter: %w", err)
	}
	return nil
}

// detach removes the filter, and the qdisc that was made for it if nobody else uses that now.
func (f *filter) detach() error {
	err := errors.Join(f.program.Unpin(), f.program.Close())
	var others int
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		list, listErr := netlink.FilterList(device(f.ifindex), parent)
		if listErr != nil { // the interface has gone, or the qdisc
			return err
		}
		for _, one := range list {
			if parent == netlink.HANDLE_MIN_INGRESS && isOurs(one) {
				err = errors.Join(err, netlink.FilterDel(one))
			} else {
				others++
			}
		}
	}
	if f.ownQdisc && others == 0 {
		removal := netlink.QdiscDel(clsact(f.ifindex))
		// Where the interface was made anew it has no qdisc, and it may have gone.
		if !slices.ContainsFunc([]error{unix.ENOENT, unix.EINVAL, unix.ENODEV}, func(e error) bool { return errors.Is(removal, e) }) {
			err = errors.Join(err, removal)
		}
	}
	return err
}

func clsact(ifindex int) netlink.Qdisc {
	return &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}, QdiscType: "clsact"}
}

func device(ifindex int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
}

// Detach removes the program of an interface and all that is pinned for it. It works while another
// process uses the program, and also if the interface has gone. Where nothing is it does nothing.
func Detach(name, pins string) error {
	folder := filepath.Join(pins, name)
	found, err := pinnedHook(folder)
	if err == nil && found != nil {
		err = found.detach()
	}
	if err = errors.Join(err, os.RemoveAll(folder)); err != nil {
		return fmt.Errorf("detach the program of %s: %w", name, err)
	}
	_ = os.Remove(pins) // fails while other interfaces have a folder there
	return nil
}

// Pinned are the interfaces for which a program is pinned.
func Pinned(pins string) (names []string, err error) {
	folders, err := os.ReadDir(pins)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, f := range folders {
		names = append(names, f.Name())
	}
	return names, err
}

// State is what a program that is pinned does.
type State struct {
	Mode     Mode
	Attached bool
	Mappings []Mapping
	Counters Counters
}

// Look reads the state of the program of an interface, and changes nothing. While another process
// attaches the program or removes it, what is not there is missing in the state.
func Look(name, pins string) (s State, err error) {
	if s, err = look(name, pins); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("look at the program of %s: %w", name, err)
	}
	return s, nil
}

func look(name, pins string) (s State, err error) {
	folder := filepath.Join(pins, name)
	found, err := pinnedHook(folder)
	if err != nil {
		return s, err
	}
	if found != nil {
		defer found.close()
		s.Mode = found.mode()
		if dev, err := netlink.LinkByName(name); err == nil {
			s.Attached, _ = found.at(dev.Attrs().Index)
		}
	}
	readOnly := &ebpf.LoadPinOptions{ReadOnly: true}
	mappings, err := ebpf.LoadPinnedMap(filepath.Join(folder, edgeMapMappings), readOnly)
	if err != nil {
		return s, err
	}
	defer mappings.Close()
	for m, err := range mappingsOf(mappings) {
		if err != nil {
			return s, err
		}
		s.Mappings = append(s.Mappings, m)
	}
	fates, err := ebpf.LoadPinnedMap(filepath.Join(folder, edgeMapFates), readOnly)
	if err != nil {
		return s, err
	}
	defer fates.Close()
	s.Counters, err = countersOf(fates)
	return s, err
}
