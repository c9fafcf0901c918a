package address

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/rtnl"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// withRoomFor calls f while the process can open n more files only.
func withRoomFor(t *testing.T, n int, f func()) {
	t.Helper()
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	var files []int
	for range n + 1 {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		files = append(files, fd)
	}
	for _, fd := range files {
		unix.Close(fd)
	}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(files[n]), Max: was.Max}))
	f()
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
}

// Whatever Open cannot open, it says so and leaves nothing open.
func TestOpenLeavesNothingOpenWhenItFails(t *testing.T) {
	box, dir := netns.New(t), t.TempDir()
	must(t, openIn(t, box, dir).Close())
	before := testlab.OpenFiles(t)
	for room, want := range []string{"open a netlink socket", "open a netlink socket", "subscribe to netlink", "boot_id", "packet socket", ""} {
		var o *Owner
		var err error
		must(t, box.Do(func() error {
			withRoomFor(t, room, func() { o, err = Open(dir) })
			return nil
		}))
		if (err == nil) != (want == "") || (o == nil) != (err != nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("room for %d files: %v, want %q", room, err, want)
		}
		if o != nil {
			must(t, o.Close())
		}
		if opened := before.Since(t); len(opened) > 0 {
			t.Errorf("room for %d files: %q stay open", room, opened)
		}
	}
	must(t, box.Do(func() error {
		withRoomFor(t, 0, func() {
			if err := CheckMarks(); !errors.Is(err, unix.EMFILE) {
				t.Errorf("marks: %v", err)
			}
		})
		return nil
	}))
	if err := box.Do(CheckMarks); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if opened := before.Since(t); len(opened) > 0 {
		t.Errorf("after CheckMarks %q stay open", opened)
	}
}

// If the kernel cannot be asked, no question has an answer.
func TestAKernelThatCannotBeAsked(t *testing.T) {
	conn, err := rtnl.Open()
	must(t, err)
	k := &netlinkKernel{conn}
	k.Close()
	_, err = k.interfacesOf(group)
	errs := map[string]error{"places": err, "add": k.add(onEth1), "remove": k.remove(onEth1)}
	_, errs["subnets"] = k.subnets(1)
	_, errs["marked"] = k.marked()
	for call, err := range errs {
		if err == nil {
			t.Errorf("%s: no error", call)
		}
	}
	clear(errs)
	withRoomFor(t, 0, func() {
		_, errs["macs"] = k.macs()
		_, errs["marked"] = k.marked()
		_, errs["name"] = k.name(1)
		_, errs["index"] = k.index("lo")
		_, errs["ask"] = k.ask(onEth1)
		_, errs["socket"] = packetSocket(&unix.SockaddrLinklayer{Ifindex: 1})
	})
	if err := errs["socket"]; err == nil || err.Error() != "open a packet socket: too many open files" {
		t.Errorf("socket: %v", err)
	}
	for call, err := range errs {
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s without room for a socket: %v", call, err)
		}
	}
}

func TestAnInterfaceWithoutHostsCannotBeAsked(t *testing.T) {
	box := netns.New(t)
	must(t, box.Do(func() error {
		conn, err := rtnl.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		k := &netlinkKernel{conn}
		before := testlab.OpenFiles(t)
		if _, err := packetSocket(&unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ARP), Ifindex: 99}); !errors.Is(err, unix.ENODEV) {
			t.Errorf("a socket on no interface: %v", err)
		}
		if _, err := k.ask(IfAddr{IfIndex: 99, IP: group}); err == nil || errors.Is(err, errNobody) {
			t.Errorf("no interface: %v", err)
		}
		if opened := before.Since(t); len(opened) > 0 {
			t.Errorf("%q stay open", opened)
		}
		if index, err := k.index("eth7"); index != 0 || err != nil {
			t.Errorf("index of no interface: %d, %v", index, err)
		}
		return nil
	}))
}

// The frames go to those who can have the address: all hosts, or the IP's solicited-node group.
func TestWhomAQuestionGoesTo(t *testing.T) {
	for ip, want := range map[string]struct {
		protocol uint16
		to       string
	}{
		"10.77.0.100":     {unix.ETH_P_ARP, "ffffffffffff"},
		"fd00::1234:5678": {unix.ETH_P_IPV6, "3333ff345678"},
	} {
		q := newPackets(IfAddr{IfIndex: 7, IP: netip.MustParseAddr(ip)}, [6]byte{2, 9})
		if got := hex.EncodeToString(q.to.Addr[:q.to.Halen]); got != want.to || q.to.Ifindex != 7 || q.to.Protocol != networkOrder(want.protocol) {
			t.Errorf("%s: to %s, %+v", ip, got, q.to)
		}
	}
}

// A busy interface must not fill the socket with other packets.
func TestTheSocketTakesAdvertisementsOnly(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	must(t, unix.SetsockoptSockFprog(ends[1], unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, onlyAdvertisements()))
	advertisement := solicitation(netip.MustParseAddr("fd00::1"))
	advertisement[ipv6Bytes] = neighbourAdvertisement
	udp := slices.Clone(advertisement)
	udp[6] = 17
	long := append(slices.Clone(advertisement), make([]byte, 1400)...)
	for name, c := range map[string]struct {
		packet []byte
		passes bool
	}{
		"an advertisement": {advertisement, true}, "a long one": {long, true}, "UDP": {udp, false},
		"a solicitation": {solicitation(netip.MustParseAddr("fd00::1")), false}, "a short packet": {advertisement[:ipv6Bytes], false},
	} {
		_ = unix.Sendto(ends[0], c.packet, 0, nil) // says that the filter dropped it
		heard := make([]byte, 2000)
		n, _, err := unix.Recvfrom(ends[1], heard, 0)
		if c.passes && (err != nil || n != len(c.packet)) || !c.passes && !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

func TestAnIPv6QuestionHearsAdvertisementsOnly(t *testing.T) {
	box, port, host := onIPv6(t)
	var q *packets
	must(t, box.Do(func() error {
		conn, err := rtnl.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		asked, err := (&netlinkKernel{conn}).ask(IfAddr{IfIndex: port.Index, IP: netip.MustParseAddr("fd00::50")})
		if err == nil {
			q = asked.(*packets)
		}
		return err
	}))
	defer q.close()
	if output, err := host.Exec("ping", "-c1", "-W5", "fd00::fe"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	raw, err := q.socket.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		packet := make([]byte, 2000)
		for n, _, err := unix.Recvfrom(int(fd), packet, 0); err == nil; n, _, err = unix.Recvfrom(int(fd), packet, 0) {
			if n < ipv6Bytes+icmpBytes || packet[6] != icmpv6 || packet[ipv6Bytes] != neighbourAdvertisement {
				t.Errorf("heard %x", packet[:n])
			}
		}
	}))
}

// Only what another host says about the IP is an answer.
func TestOtherPacketsAreNoAnswer(t *testing.T) {
	box, host := netns.New(t), netns.New(t)
	port, far := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
	claims := func(from netns.Link, ip netip.Addr) *packets {
		q := newPackets(IfAddr{from.Index, ip}, [6]byte(from.MAC))
		copy(q.request[arpSender:], ip.AsSlice()) // an announcement
		must(t, from.NS.Do(func() (err error) { q.socket, err = packetSocket(q.to); return err }))
		t.Cleanup(q.close)
		return q
	}
	q, again := claims(port, group), claims(port, group)
	must(t, again.put()) // the box's own, on its way out
	must(t, claims(far, netip.MustParseAddr("10.77.0.9")).put())
	must(t, claims(far, group).put())
	if mac, err := q.answer(time.Now().Add(10 * time.Second)); err != nil || mac != [6]byte(far.MAC) {
		t.Errorf("%x, %v", mac, err)
	}
	raw, err := q.socket.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		if n, _, err := unix.Recvfrom(int(fd), make([]byte, 100), 0); err == nil {
			t.Errorf("an earlier packet was the answer: %d bytes are left", n)
		}
	}))
}

// A question whose socket does not work is not taken for one that nobody answers in time.
func TestAQuestionWithoutASocket(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "") // no deadline can be set for it
	must(t, err)
	q := &packets{socket: file, to: &unix.SockaddrLinklayer{}}
	if err := q.put(); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("put: %v", err)
	}
	if _, err := q.answer(time.Now().Add(time.Second)); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("answer: %v", err)
	}
	q.close()
	if err := q.put(); err == nil || errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("put after close: %v", err)
	}
}
