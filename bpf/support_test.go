package bpf

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the test frames.
var (
	hostA   = netip.MustParseAddr("10.77.0.1")
	hostB   = netip.MustParseAddr("10.77.0.2")
	hostC   = netip.MustParseAddr("10.77.0.3")
	groupIP = netip.MustParseAddr("10.77.0.100")
	hostA6  = netip.MustParseAddr("fd77::1")
	hostB6  = netip.MustParseAddr("fd77::2")
	group6  = netip.MustParseAddr("fd77::100")
	switch6 = netip.MustParseAddr("fd77::200")
)

const (
	groupQPN = 0x000117
	udSend   = 0x64
	loopback = 1 // every namespace's ifindex of lo
)

// frame returns a RoCEv2 frame from src to dst with a payload. Its ICRC is not valid: the
// classifier does not read it.
func frame(src, dst netip.Addr, opcode roce.Opcode, qpn roce.QPN, payloadBytes int) []byte {
	ip := roce.IPUDP{Src: src, Dst: dst, HopLimit: 64, SrcPort: 0xc123}
	bth := roce.BTH{Opcode: opcode, PKey: 0xffff, DestQPN: qpn, AckReq: true, PSN: 0x000042}
	b := roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, 2}, roce.MAC{2, 0, 0, 0, 0, 1}, ip.EtherType())
	b = ip.Append(b, roce.BTHBytes+payloadBytes)
	b = bth.Append(b)
	return append(b, make([]byte, payloadBytes+4)...)
}

// tagged inserts VLAN tags between the MAC addresses and the EtherType, the outermost first.
func tagged(frame []byte, tpids ...uint16) []byte {
	b := append([]byte(nil), frame[:12]...)
	for i, tpid := range tpids {
		b = append(b, byte(tpid>>8), byte(tpid), 0, byte(i+5))
	}
	return append(b, frame[12:]...)
}

// set overwrites bytes of a frame.
func set(frame []byte, at int, values ...byte) []byte {
	copy(frame[at:], values)
	return frame
}

// load is Load. It skips the test if the process lacks the privilege.
func load(t testing.TB) *Classifier {
	t.Helper()
	c, err := Load()
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_BPF and CAP_NET_ADMIN")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// enterNamespace moves the test into a new network namespace. The namespace and its interfaces go
// away with the test's thread.
func enterNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		runtime.UnlockOSThread()
		t.Skip("needs CAP_SYS_ADMIN for a network namespace")
	} else if err != nil {
		t.Fatal(err)
	}
	setUp(t, "lo")
}

// addVeth creates the pair rc0, rc1 in the test's namespace and returns the index of rc0.
func addVeth(t testing.TB) int {
	t.Helper()
	// The kernel would report the multicast groups of IPv6, and the classifier count these frames.
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "rc0"}, PeerName: "rc1"})
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("needs the kernel's veth device")
	} else if err != nil {
		t.Fatalf("add veth pair: %v", err)
	}
	setUp(t, "rc1")
	ifindex := setUp(t, "rc0")
	testlab.Eventually(t, testlab.Patience, "the kernel has seen the carrier; it drops all frames before", func() bool {
		for _, name := range []string{"rc0", "rc1"} {
			if l, err := netlink.LinkByName(name); err != nil || l.Attrs().OperState != netlink.OperUp {
				return false
			}
		}
		return true
	}, nil)
	return ifindex
}

func setUp(t testing.TB, name string) int {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		t.Fatalf("set %s up: %v", name, err)
	}
	return l.Attrs().Index
}

// attached reports whether an interface runs an XDP program.
func attached(t testing.TB, ifindex int) bool {
	t.Helper()
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
}

func put(t testing.TB, c *Classifier, k Key, group uint32) {
	t.Helper()
	if err := c.PutGroup(k, group); err != nil {
		t.Fatal(err)
	}
}

func encoded(t testing.TB, k Key) programsRocastKey {
	t.Helper()
	key, err := k.encode()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func remove(t testing.TB, c *Classifier, k Key) {
	t.Helper()
	if err := c.DeleteGroup(k); err != nil {
		t.Fatal(err)
	}
}

// stayOnCPU keeps the test's thread, which is locked, on one CPU until it ends.
func stayOnCPU(t testing.TB) {
	t.Helper()
	var all, one unix.CPUSet
	err := unix.SchedGetaffinity(0, &all)
	for cpu := 0; err == nil; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
			err = unix.SchedSetaffinity(0, &one)
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// moved returns the counters that differ, by name.
func moved(before, after Counters) map[string]uint64 {
	m := map[string]uint64{}
	for v := range after {
		if n := after[v] - before[v]; n != 0 {
			m[Verdict(v).String()] = n
		}
	}
	return m
}

func counters(t testing.TB, c *Classifier) Counters {
	t.Helper()
	n, err := c.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
