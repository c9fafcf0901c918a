package bpf

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isHeld reports whether the error means that another XDP program is attached. EEXIST means a
// program in the other mode, or on a device above this one.
func isHeld(err error) bool {
	return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST)
}

// describeHolder describes the XDP program that is attached to the interface, and how to remove it.
// Looking up programs and links needs CAP_SYS_ADMIN; without it the description is shorter.
func describeHolder(name string, ifindex int) string {
	id, ok := attachedProgram(ifindex)
	if !ok {
		return "an XDP program is attached to it or to a device above it; find it with: bpftool net"
	}
	holder := fmt.Sprintf("XDP program %s(id %d) is attached to it", programName(id), id)
	linkID, err := linkOf(ifindex, id)
	switch {
	case err != nil:
		return fmt.Sprintf("%s; find its owner with: bpftool link show, bpftool prog show id %d", holder, id)
	case linkID == 0:
		return fmt.Sprintf("%s without a bpf_link; remove it with: ip link set dev %s xdp off (or xdpgeneric off)",
			holder, name)
	}
	return fmt.Sprintf("%s by bpf_link %d; stop the process that holds it, or run: bpftool link detach id %d",
		holder, linkID, linkID)
}

// CheckFree returns an error if an XDP program is attached to an interface that is not rocast's.
// Without CAP_SYS_ADMIN it cannot tell whose program it is, and returns nil.
func CheckFree(name string, ifindex int) error {
	id, attached := attachedProgram(ifindex)
	if !attached {
		return nil
	}
	if held := programName(id); held == "" || strings.Contains(held, classifierName) {
		return nil
	}
	return fmt.Errorf("open port %s: %s", name, describeHolder(name, ifindex))
}

// classifierName is what the names of both programs that classify begin with.
const classifierName = "rocast_classify"

func attachedProgram(ifindex int) (ebpf.ProgramID, bool) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil || l.Attrs().Xdp.ProgId == 0 {
		return 0, false
	}
	return ebpf.ProgramID(l.Attrs().Xdp.ProgId), true
}

// programName returns the program's quoted name and a space, or "" if the name cannot be found out.
func programName(id ebpf.ProgramID) string {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%q ", info.Name)
}

// linkOf returns the bpf_link that attaches prog to the interface, or 0 if there is none. While
// another process makes a link, the link has an ID but cannot be opened yet (the kernel's
// bpf_link_by_id: EAGAIN), which ends the search. So linkOf searches again, but not for ever: on a
// busy machine the other process may wait for the lock of the network stack for some 100 ms.
func linkOf(ifindex int, prog ebpf.ProgramID) (id link.ID, err error) {
	for range 5000 {
		if id, err = searchLink(ifindex, prog); !errors.Is(err, unix.EAGAIN) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return id, err
}

// searchLink compares the program too, because another namespace may have an interface with the
// same index.
func searchLink(ifindex int, prog ebpf.ProgramID) (link.ID, error) {
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || info.Program != prog {
			continue
		}
		if xdp := info.XDP(); xdp != nil && int(xdp.Ifindex) == ifindex {
			return it.ID, nil
		}
	}
	return 0, it.Err()
}
