package edge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/roce"
)

var programDir string

func TestMain(m *testing.M) {
	code := m.Run()
	boxes.RemoveProgram()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// build builds rocast-edge, once, and returns its path.
var build = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp("", "rocast-program-"); err != nil {
		return "", err
	}
	return edges.Build(programDir)
})

const (
	vaShared, rkeyShared = 0x10000, 0x77
	memoryBytes          = 64 << 10
	each                 = 1024 // payload bytes of a packet
	port                 = 7472
)

// lab is hosts on a switch, of which the first ones have an edge, and a box.
//
//	hosts ── br0, which snoops, with the box's address
type lab struct {
	*bed.Bed
	t      *testing.T
	shared netip.Addr
	hosts  []*host
	box    *box
}

// host is a host with memory, and a queue pair that is connected to the group.
type host struct {
	*bed.Host
	edge   *edges.Edge
	qp     *endpoint.QP
	memory []byte
	first  roce.PSN // that the queue pair expects
}

func newLab(t *testing.T, ipv6 bool, hosts int) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	path, err := build()
	testlab.Must(t, err)
	l := &lab{t: t, shared: netip.MustParseAddr("239.77.0.1")}
	if ipv6 {
		l.shared = netip.MustParseAddr("ff15::4d:1")
	}
	l.Bed, err = bed.New(bed.Options{Hosts: hosts, IPv6: ipv6})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, l.Bed.Close()) })
	testlab.Must(t, edges.Snoop(l.Bed.Box, bed.Bridge))
	l.Box.MustRun(t, "ip addr add %v/%d dev %s nodad", l.GroupIP(), l.Network().Bits(), bed.Bridge)
	l.box = l.openBox()
	for i, h := range l.Hosts {
		one := &host{Host: h, memory: make([]byte, memoryBytes), first: roce.PSN(0xfffff0 + 1000*i).Add(0)}
		one.edge, err = edges.New(path, h.NS)
		testlab.Must(t, err)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the edge of %v:\n%s", h.IP, one.edge.Log())
			}
			testlab.Must(t, one.edge.Close())
		})
		testlab.Must(t, h.RNIC.Register(rnic.Region{VA: one.va(), RKey: one.rkey(), Access: rnic.RemoteWrite, Bytes: one.memory}))
		one.qp, err = h.RNIC.NewQP(bed.QP(one.qpn(), 0, each))
		testlab.Must(t, err)
		testlab.Must(t, one.qp.Connect(t.Context(), endpoint.Peer{IP: l.GroupIP(), QPN: 1, PSN: one.first}))
		l.hosts = append(l.hosts, one)
	}
	return l
}

func (h *host) last() uint64         { b := h.IP.AsSlice(); return uint64(b[len(b)-1]) }
func (h *host) va() uint64           { return h.last() << 40 }
func (h *host) rkey() uint32         { return 0x1000 + uint32(h.last()) }
func (h *host) qpn() roce.QPN        { return roce.QPN(0x100 + h.last()) }
func (h *host) has(data []byte) bool { return h.Has(h.memory[:len(data)], data) }

// mapping is the mapping of the leg with this QPN to the host, whose first packet has the PSN.
func (l *lab) mapping(h *host, leg roce.QPN, first roce.PSN) api.EdgeMapping {
	return api.EdgeMapping{
		Group: "story", From: l.GroupIP(), To: l.shared, LegQPN: uint32(leg), Host: h.IP, QPN: uint32(h.qpn()),
		AddPSN: uint32(h.first-first) & 0xffffff,
		Regions: []api.EdgeRegion{{
			VA: vaShared, Length: memoryBytes, RKey: rkeyShared, AddVA: api.Hex(h.va() - vaShared), ToRKey: api.Hex(h.rkey()),
		}},
	}
}

// box answers the questions of edges.
type box struct {
	mu      sync.Mutex
	answers map[netip.Addr]api.EdgeAnswer // by host
	asked   map[netip.Addr]api.EdgeQuestion
	address netip.AddrPort
}

func (l *lab) openBox() *box {
	l.t.Helper()
	b := &box{answers: map[netip.Addr]api.EdgeAnswer{}, asked: map[netip.Addr]api.EdgeQuestion{}, address: netip.AddrPortFrom(l.IP(), port)}
	var listener net.Listener
	testlab.Must(l.t, l.Box.Do(func() (err error) {
		listener, err = net.Listen("tcp", b.address.String())
		return err
	}))
	server := &http.Server{Handler: b}
	go func() { _ = server.Serve(listener) }()
	l.t.Cleanup(func() { _ = server.Close() })
	return b
}

func (b *box) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	var q api.EdgeQuestion
	if err == nil {
		err = json.NewDecoder(r.Body).Decode(&q)
	}
	if err != nil || r.URL.Path != api.EdgePath || r.Method != http.MethodPost || q.Protocol != api.EdgeProtocol {
		http.Error(w, fmt.Sprint(r.Method, r.URL, q, err), http.StatusBadRequest)
		return
	}
	for began := time.Now(); ; {
		b.mu.Lock()
		b.asked[from.Addr()] = q
		answer := b.answers[from.Addr()]
		b.mu.Unlock()
		if answer.Number != q.Have || time.Since(began) > time.Duration(q.Wait)*time.Millisecond {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// say gives a host its mappings, and waits until it has confirmed them and the switch forwards.
func (l *lab) say(h *host, number uint64, mappings ...api.EdgeMapping) {
	l.t.Helper()
	l.box.set(h.IP, api.EdgeAnswer{Number: number, Mappings: mappings})
	l.confirmed(h, number, len(mappings) > 0)
}

func (b *box) set(asker netip.Addr, answer api.EdgeAnswer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[asker] = answer
}

func (l *lab) confirmed(h *host, number uint64, joined bool) {
	l.t.Helper()
	l.loaded(h, h.IP, number, joined)
}

// loaded is confirmed for an edge that asks from another address than the host's.
func (l *lab) loaded(h *host, asker netip.Addr, number uint64, joined bool) {
	l.t.Helper()
	testlab.Eventually(l.t, testlab.Patience, fmt.Sprintf("%v confirms %d", h.IP, number), func() bool {
		l.box.mu.Lock()
		defer l.box.mu.Unlock()
		return l.box.asked[asker].Have == number
	}, nil)
	testlab.Eventually(l.t, testlab.Patience, fmt.Sprintf("the switch knows that %v has joined: %v", h.IP, joined), func() bool {
		return l.forwards(h) == joined
	}, func() string { return l.Box.MustRun(l.t, "bridge mdb show") })
}

// forwards reports whether the switch forwards the shared copies to a host.
func (l *lab) forwards(h *host) bool {
	for line := range strings.Lines(l.Box.MustRun(l.t, "bridge mdb show")) {
		if strings.Contains(line, "port "+h.Port.Name+" ") && strings.Contains(line, "grp "+l.shared.String()+" ") {
			return true
		}
	}
	return false
}

// write sends WRITEs of data to the leg, one a packet, as the box does.
func (l *lab) write(leg roce.QPN, first roce.PSN, data []byte) {
	l.t.Helper()
	bridge, err := l.Box.Netlink().LinkByName(bed.Bridge)
	testlab.Must(l.t, err)
	testlab.Must(l.t, l.Box.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := 0; i < len(data); i += each {
			frame, err := l.frame(bridge, leg, first.Add(int32(i/each)), uint64(i), data[i:i+each])
			if err == nil {
				err = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: bridge.Attrs().Index})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func (l *lab) frame(bridge netlink.Link, leg roce.QPN, psn roce.PSN, at uint64, data []byte) ([]byte, error) {
	return l.frameFrom(l.GroupIP(), bridge, leg, psn, at, data)
}

// frameFrom is frame with another source.
func (l *lab) frameFrom(from netip.Addr, bridge netlink.Link, leg roce.QPN, psn roce.PSN, at uint64, data []byte) ([]byte, error) {
	ip := roce.IPUDP{Src: from, Dst: l.shared, HopLimit: 1, SrcPort: 0xc123}
	bth := roce.BTH{Opcode: roce.OpWriteOnly, PKey: 0xffff, DestQPN: leg, AckReq: true, PSN: psn}
	reth := roce.RETH{VA: vaShared + at, RKey: rkeyShared, DMABytes: uint32(len(data))}
	b := l.shared.AsSlice()
	mac := roce.MAC{0x33, 0x33, b[len(b)-4], b[len(b)-3], b[len(b)-2], b[len(b)-1]}
	if l.shared.Is4() {
		mac = roce.MAC{1, 0, 0x5e, b[1] & 0x7f, b[2], b[3]}
	}
	f := roce.AppendEthernet(nil, mac, roce.MAC(bridge.Attrs().HardwareAddr), ip.EtherType())
	f = bth.Append(ip.Append(f, roce.BTHBytes+roce.RETHBytes+len(data)))
	return roce.AppendICRC(append(reth.Append(f), data...))
}

// receive waits until the hosts have data in their memory.
func (l *lab) receive(data []byte, hosts ...*host) {
	l.t.Helper()
	for _, h := range hosts {
		testlab.Eventually(l.t, testlab.Patience, fmt.Sprintf("%v has the data", h.IP), func() bool { return h.has(data) }, func() string {
			status, err := h.edge.Do("status")
			c := h.RNIC.Counters()
			return fmt.Sprintf("%s %v\n%v", status, err, c.ByName())
		})
	}
}

// One packet for all: every host with a mapping has the data, the others see nothing of it.
func TestSharedCopiesReachTheHostsThatHaveJoined(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %t", ipv6), func(t *testing.T) {
			l := newLab(t, ipv6, 4)
			first := roce.PSN(500)
			for _, h := range l.hosts[:3] {
				testlab.Must(t, h.edge.Start(l.box.address))
			}
			l.say(l.hosts[2], 3) // asked by an edge, and without a mapping
			for i, h := range l.hosts[:2] {
				l.say(h, uint64(10+i), l.mapping(h, 0xabc, first))
			}
			data := bed.Random(32<<10, 1)
			l.write(0xabc, first, data)
			l.receive(data, l.hosts[:2]...)
			// Whoever has no mapping has no frame either: the switch has forwarded none.
			for _, h := range l.hosts {
				if c := h.RNIC.Counters(); c.Rejected() != 0 {
					t.Errorf("%v refused frames: %v", h.IP, c.ByName())
				}
			}
			// A new generation: the old QPN is nobody's.
			second := first.Add(int32(len(data) / each))
			moved := l.mapping(l.hosts[0], 0xabd, second)
			moved.AddPSN = l.mapping(l.hosts[0], 0xabc, first).AddPSN
			l.say(l.hosts[0], 20, moved)
			more := bed.Random(32<<10, 2)
			l.write(0xabc, second, more)
			l.receive(more, l.hosts[1])
			if l.hosts[0].has(more) {
				t.Error("the host that has a new generation took packets of the old one")
			}
			l.write(0xabd, second, more)
			l.receive(more, l.hosts[0])
			// The end of the group.
			l.say(l.hosts[0], 30)
			l.box.mu.Lock()
			q := l.box.asked[l.hosts[0].IP]
			l.box.mu.Unlock()
			if want := uint64(2 * 32); q.Mapped != want || q.NoMapping != 32 || q.Refused != 0 || q.Attach != "xdp native frags" {
				t.Errorf("the box hears %+v, want %d mapped and 32 without a mapping", q, want)
			}
		})
	}
}

// A stranger's packets to the multicast address end in a counter, whatever of a leg's name they
// lack. The queue pair, which they would end or whose PSN they would move, does not hear of them.
func TestAStrangersPackets(t *testing.T) {
	l := newLab(t, false, 2)
	first := roce.PSN(500)
	for i, h := range l.hosts {
		testlab.Must(t, h.edge.Start(l.box.address))
		l.say(h, uint64(10+i), l.mapping(h, 0xabc, first))
	}
	bridge, err := l.Box.Netlink().LinkByName(bed.Bridge)
	testlab.Must(t, err)
	bad := bed.Random(each, 7)
	send := func(from netip.Addr, leg roce.QPN) {
		t.Helper()
		testlab.Must(t, l.Box.Do(func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			frame, err := l.frameFrom(from, bridge, leg, first, 0, bad)
			if err != nil {
				return err
			}
			return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: bridge.Attrs().Index})
		}))
	}
	send(l.IP(), 0xabc)        // another source
	send(l.GroupIP(), 0xabd)   // another QPN
	send(l.hosts[1].IP, 0xabd) // both
	data := bed.Random(8<<10, 1)
	l.write(0xabc, first, data)
	l.receive(data, l.hosts...)
	for _, h := range l.hosts {
		status, err := h.edge.Do("status")
		if want := "1 mappings  8 mapped  3 without mapping  0 refused\n"; err != nil || !strings.Contains(status, want) {
			t.Errorf("%v: %v, %q, want %q", h.IP, err, status, want)
		}
		if c := h.RNIC.Counters(); c.Rejected() != 0 {
			t.Errorf("%v refused frames: %v", h.IP, c.ByName())
		}
	}
}

// In each mode the soft NIC, which is behind XDP, or a socket behind tc gets the host's packet.
// An edge that is killed goes on mapping, and one that is started again takes over. Removed, it
// leaves the host as it was.
func TestAnEdgeThatEnds(t *testing.T) {
	l := newLab(t, false, 2)
	first := roce.PSN(500)
	interfaceOf := func(h *host) string {
		// Without the numbers that another XDP mode may change.
		return h.NS.MustRun(t, "ip -d link show dev eth0") + h.NS.MustRun(t, "tc qdisc show dev eth0")
	}
	var before []string
	for i, h := range l.hosts {
		before = append(before, interfaceOf(h))
		testlab.Must(t, h.edge.Start(l.box.address))
		l.say(h, uint64(10+i), l.mapping(h, 0xabc, first))
	}
	var at int
	write := func() {
		t.Helper()
		data := bed.Random(8<<10, byte(at))
		l.write(0xabc, first.Add(int32(at)), data)
		l.receive(data, l.hosts...)
		at += len(data) / each
	}
	write()
	h := l.hosts[0]
	testlab.Must(t, h.edge.Kill())
	status, err := h.edge.Do("status")
	if want := "eth0  xdp native frags  1 mappings  8 mapped  0 without mapping  0 refused\n"; err != nil || !strings.HasPrefix(status, want) {
		t.Errorf("without a process: %v, %q, want %q", err, status, want)
	}
	// The membership has ended with the process. Whoever has it by other means is still served.
	h.NS.MustRun(t, "ip addr add %v/32 dev eth0 autojoin", l.shared)
	testlab.Eventually(t, testlab.Patience, "the switch knows the other membership", func() bool { return l.forwards(h) }, nil)
	write()
	h.NS.MustRun(t, "ip addr del %v/32 dev eth0", l.shared)
	l.box.mu.Lock()
	delete(l.box.asked, h.IP)
	l.box.mu.Unlock()
	testlab.Must(t, h.edge.Start(l.box.address))
	l.confirmed(h, 10, true)
	write()
	for i, h := range l.hosts {
		testlab.Must(t, h.edge.Kill())
		said, err := h.edge.Do("remove")
		if want := "eth0 has no program of rocast-edge any more\n"; err != nil || said != want {
			t.Errorf("%v, %q", err, said)
		}
		if after := interfaceOf(h); after != before[i] {
			t.Errorf("%v was\n%s\nand is\n%s", h.IP, before[i], after)
		}
		if c := h.RNIC.Counters(); c.Rejected() != 0 {
			t.Errorf("%v refused frames: %v", h.IP, c.ByName())
		}
	}
	if log := h.edge.Log(); strings.Contains(log, "error") || strings.Contains(log, "WARN") {
		t.Errorf("the log:\n%s", log)
	}
}

// mostMemory is what the edge of a host may take of it.
const mostMemory = 15 << 10 // KiB

func TestAnEdgeIsSmall(t *testing.T) {
	l := newLab(t, false, 1)
	h := l.hosts[0]
	testlab.Must(t, h.edge.Start(l.box.address))
	for number := range uint64(50) {
		l.say(h, number+1, l.mapping(h, roce.QPN(number), 0))
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.edge.Process().Pid))
	testlab.Must(t, err)
	var kib int
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			_, err = fmt.Sscan(string(rest), &kib)
		}
	}
	if err != nil || kib == 0 || kib > mostMemory {
		t.Errorf("rocast-edge takes %d KiB, %v", kib, err)
	}
	t.Logf("%d KiB", kib)
}
