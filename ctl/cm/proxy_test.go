package cm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// boxSide is what the proxy works with: groups that exist, and an IP that the test has added.
type boxSide struct {
	mu     sync.Mutex
	groups []string
	slow   chan struct{} // if it is set, groups are created when it is closed
	refuse error         // to create and to remove
	taken  error         // of the group IP
	unfit  netip.Addr    // host that no packet reaches
	events []api.Event
	saw    string // of each group
	left   []netip.Addr

	released  atomic.Int32
	held      atomic.Int32 // ways to hosts
	announced atomic.Int32
}

func (b *boxSide) Create(_ context.Context, g *groupfile.File) error {
	b.mu.Lock()
	slow := b.slow
	b.mu.Unlock()
	if slow != nil {
		<-slow
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse == nil {
		b.groups = append(b.groups, g.Name)
	}
	return b.refuse
}

func (b *boxSide) Remove(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse == nil {
		b.groups = slices.DeleteFunc(b.groups, func(g string) bool { return g == name })
	}
	return b.refuse
}

func (b *boxSide) Leave(_ context.Context, _ string, receiver netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = append(b.left, receiver)
	return b.refuse
}

func (b *boxSide) Saw(string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.saw
}

func (b *boxSide) Sent(names []string) (sources, receivers uint64) {
	return 5 * uint64(len(names)), 0
}

// AddEvent is called with the lock of the service held.
func (b *boxSide) AddEvent(e api.Event) { b.events = append(b.events, e) }

func (b *boxSide) Hold(host netip.Addr, _ int) error {
	b.held.Add(1)
	if host == b.unfit {
		return errors.New("too long")
	}
	return nil
}

func (b *boxSide) Release(netip.Addr) { b.held.Add(-1) }

// refuses makes the box refuse to create and to remove groups.
func (b *boxSide) refuses(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = why
}

func (b *boxSide) has() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.groups)
}

func (b *boxSide) Announce(netip.Addr) { b.announced.Add(1) }

func (b *boxSide) Own(netip.Addr, []netip.Addr) ([]netip.Prefix, func(), error) {
	if b.taken != nil {
		return nil, nil, b.taken
	}
	return []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24")}, func() { b.released.Add(1) }, nil
}

// lab is a box in a namespace, and three hosts in another one, which have a socket each.
type lab struct {
	t     *testing.T
	box   *boxSide
	proxy *Proxy
	up    func() error
	host  *netns.NS
	group netip.Addr
	logs  *observer.ObservedLogs
	a     *socket
	r     []*socket
}

func newLab(t *testing.T) *lab {
	return newLabAt(t, groupIP, "10.77.0.254/24", []netip.Addr{hostIPs["a"], hostIPs["b"], hostIPs["c"]})
}

// newLabAt is newLab with other addresses. The first host is the source.
func newLabAt(t *testing.T, group netip.Addr, boxIP string, hosts []netip.Addr) *lab {
	l := &lab{t: t, box: new(boxSide), group: group}
	box, host := netns.New(t), netns.New(t)
	l.host = host
	for _, n := range []*netns.NS{box, host} {
		if group.Is6() {
			if err := n.Sysctl("net.ipv6.conf.default.disable_ipv6", "0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	netns.Veth(t, box, "eth1", host, "eth0", netns.VethOptions{})
	subnet := netip.MustParsePrefix(boxIP)
	for _, cidr := range []string{boxIP, netip.PrefixFrom(group, group.BitLen()).String()} {
		addAddress(t, box, "eth1", cidr)
	}
	var sockets []*socket
	for _, ip := range hosts {
		addAddress(t, host, "eth0", netip.PrefixFrom(ip, subnet.Bits()).String())
		err := host.Do(func() error {
			s, err := openSocket(ip)
			sockets = append(sockets, s)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sockets[len(sockets)-1].close)
	}
	l.a, l.r = sockets[0], sockets[1:]
	core, logs := observer.New(zap.InfoLevel)
	l.logs = logs
	l.proxy = New(Options{Groups: l.box, Addresses: l.box, Log: zap.New(core), Talk: inBand, AddEvent: l.box.AddEvent})
	l.proxy.limits.goodbye = 100 * time.Millisecond
	t.Cleanup(l.proxy.Close)
	c := testConfig()
	c.GroupIP, c.Receivers, c.Allow = group, hosts[1:], []netip.Prefix{subnet.Masked()}
	l.up = func() error { return box.Do(func() error { return l.proxy.Up(c) }) }
	if err := l.up(); err != nil {
		t.Fatal(err)
	}
	return l
}

// addAddress adds an address that is ready at once, without duplicate address detection.
func addAddress(t *testing.T, n *netns.NS, device, cidr string) {
	t.Helper()
	if _, err := n.Exec("ip", "address", "add", cidr, "dev", device, "nodad"); err != nil {
		t.Fatal(err)
	}
}

// expect waits for a message of the group.
func expect[M wire.Message](l *lab, s *socket) (message M) {
	l.t.Helper()
	s.raw.SetReadDeadline(time.Now().Add(testlab.Patience))
	for {
		event, err, lost := s.receive()
		heard, isMAD := event.(Heard)
		if err != nil || lost != nil || !isMAD || heard.From != l.group {
			l.t.Fatalf("%v at %v: %+v, %v, %v", message.Attribute(), s.ip, event, err, lost)
		}
		if m, ok := heard.MAD.Message.(M); ok {
			return m
		}
		if a := heard.MAD.Message.Attribute(); a != wire.AttrMRA && a != wire.AttrREQ { // on a slow machine both may come again
			l.t.Fatalf("%v at %v instead of %v", a, s.ip, message.Attribute())
		}
	}
}

func (l *lab) send(s *socket, m wire.Message) {
	l.t.Helper()
	if err := s.send(l.group, &wire.MAD{Message: m}); err != nil {
		l.t.Fatal(err)
	}
}

// ask sends a REQ of the source, and the answers of the receivers.
func (l *lab) ask() (receivers []*wire.REQ) {
	l.t.Helper()
	l.send(l.a, testREQ(hostIPs["a"], 10, 1, 0x10, 1000))
	for i, r := range l.r {
		req := expect[*wire.REQ](l, r)
		l.send(r, &wire.REP{Pair: wire.Pair{Local: uint32(20 + i), Remote: req.LocalCommID}, QPN: 0x20, StartingPSN: roce.PSN(2000 + i), RNRRetry: 7})
		receivers = append(receivers, req)
	}
	return receivers
}

// connect connects the source and the receivers.
func (l *lab) connect() (source *wire.REP, receivers []*wire.REQ) {
	l.t.Helper()
	receivers = l.ask()
	source = expect[*wire.REP](l, l.a)
	l.send(l.a, &wire.RTU{Pair: swap(source.Pair)})
	for _, r := range l.r {
		expect[*wire.RTU](l, r)
	}
	return source, receivers
}

// disconnect ends the connection of the source. The receivers hear of it.
func (l *lab) disconnect(rep *wire.REP) {
	l.t.Helper()
	l.send(l.a, &wire.DREQ{Pair: swap(rep.Pair), RemoteQPN: rep.QPN})
	expect[*wire.DREP](l, l.a)
	for _, r := range l.r {
		expect[*wire.RTU](l, r) // once more: the first may be lost
		dreq := expect[*wire.DREQ](l, r)
		l.send(r, &wire.DREP{Pair: swap(dreq.Pair)})
	}
}

// logged checks the lines of the log.
func (l *lab) logged(want ...string) {
	l.t.Helper()
	lines := func() (got []string) {
		for _, line := range l.logs.All() {
			got = append(got, line.Message)
		}
		return got
	}
	testlab.Eventually(l.t, testlab.Patience, fmt.Sprintf("a log of %q", want), func() bool { return slices.Equal(lines(), want) },
		func() string { return fmt.Sprintf("%q", lines()) })
}

func (l *lab) connections() []Connection { return l.proxy.List()[0].Connections }

// A connection over real sockets: the kernel carries the messages, their ICRCs fit, and no ICMP
// error tells a host that nobody listens.
func TestOverSockets(t *testing.T) {
	l := newLab(t)
	var stranger *net.UDPConn
	err := l.host.Do(func() (err error) {
		stranger, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(groupIP, roce.UDPPort)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	bth := roce.BTH{Opcode: roce.OpUDSendOnly, DestQPN: wire.QPN}
	for _, datagram := range [][]byte{[]byte("hello"), bth.Append(nil)} {
		if _, err := stranger.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
	rep, _ := l.connect()
	if l.box.has() != 1 || rep.StartingPSN != 2000 {
		t.Errorf("groups %v, REP %+v", l.box.groups, rep)
	}
	testlab.Eventually(t, testlab.Patience, "established", func() bool { return l.connections()[0].State == Established }, nil)
	if c := l.connections()[0]; c.Source != hostIPs["a"] || c.Receivers != 2 || c.Group == "" || c.Ended != (time.Time{}) {
		t.Errorf("%+v", c)
	}
	l.disconnect(rep)
	testlab.Eventually(t, testlab.Patience, "over", func() bool { return l.connections()[0].State == Over && l.box.has() == 0 }, nil)
	if c := l.connections()[0]; c.Group != "" || c.Receivers != 0 || c.Ended.Before(c.Began) {
		t.Errorf("%+v", c)
	}
	l.logged("RDMA-CM connection established", "RDMA-CM connection ended")
	stranger.SetReadDeadline(time.Now())
	if _, err := stranger.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stranger hears %v", err)
	}
	if counts := l.proxy.List()[0].Counts; counts != (Counts{NotMAD: 1}) {
		t.Errorf("counted %v", counts.Named())
	}
}

// A frame whose ICRC does not fit changes nothing. The same bytes to another port are not RoCE.
func TestAWrongICRCIsCounted(t *testing.T) {
	l := newLab(t)
	ip := roce.IPUDP{Src: l.a.ip, Dst: groupIP, HopLimit: 9, ID: 7, SrcPort: srcPort}
	mad := wire.MAD{Message: testREQ(hostIPs["a"], 10, 1, 0x10, 1000)}
	packet := append(mad.Append(ip.Append(nil, wire.TransportBytes), 1), 1, 2, 3, 4)
	elsewhere := bytes.Clone(packet)
	binary.BigEndian.PutUint16(elsewhere[20+2:], roce.UDPPort-1)
	for _, b := range [][]byte{elsewhere, packet} {
		if _, err := l.a.raw.WriteToIP(b, &net.IPAddr{IP: groupIP.AsSlice()}); err != nil {
			t.Fatal(err)
		}
	}
	testlab.Eventually(t, testlab.Patience, "counted", func() bool { return l.proxy.List()[0].Counts == (Counts{WrongICRC: 1}) }, nil)
	if len(l.connections()) != 0 {
		t.Errorf("%+v", l.connections())
	}
}

// Down and Lost tell every host, and Down waits for their answers, but not for ever.
func TestDownDisconnects(t *testing.T) {
	l := newLab(t)
	l.connect()
	l.proxy.Lost(l.connections()[0].Group)
	expect[*wire.DREQ](l, l.a)
	testlab.Eventually(t, testlab.Patience, "ending", func() bool { return l.connections()[0].State == Ending }, nil)
	if err := l.proxy.Down(hostIPs["b"]); err == nil {
		t.Error("took down what is not up")
	}
	began := time.Now()
	if err := l.proxy.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	const givenUp = 8 * time.Second // hosts that do not answer
	if took := time.Since(began); took < l.proxy.limits.goodbye || took >= givenUp/2 || len(l.proxy.List()) != 0 {
		t.Errorf("took %v for hosts that do not answer", took)
	}
	if n := l.box.held.Load(); n != 0 {
		t.Errorf("%d ways are held of connections that are over", n)
	}
	if err := l.up(); err != nil {
		t.Errorf("up again: %v", err)
	}
	if err := l.proxy.Down(groupIP); err != nil {
		t.Error(err)
	}
	if err := l.proxy.Down(groupIP); err == nil || l.box.released.Load() != 2 {
		t.Errorf("took it down once more; its IP was released %d times", l.box.released.Load())
	}
}

// Without a group the source hears why.
func TestAGroupThatCannotBeMade(t *testing.T) {
	l := newLab(t)
	l.box.refuses(errors.New("no room"))
	l.ask()
	if rej := expect[*wire.REJ](l, l.a); rej.Reason != wire.NoResources {
		t.Errorf("%+v", rej)
	}
	l.logged("RDMA-CM connection refused")
	if c := l.connections()[0]; !c.IsRefused || c.Reason != "no room" {
		t.Errorf("%+v", c)
	}
}

// Where a quorum goes on without a receiver, the log says why.
func TestTheLogNamesAReceiverThatIsLeftOut(t *testing.T) {
	l := newLab(t)
	s := l.proxy.services.All()[0]
	s.mu.Lock()
	l.box.unfit, s.machine.config.Policy.Ack = l.r[1].ip, 1
	s.mu.Unlock()
	l.r = l.r[:1]
	l.connect()
	l.logged("RDMA-CM connection established")
	if got := fmt.Sprint(l.logs.All()[0].ContextMap()["without"]); got != "[too long]" {
		t.Errorf("without %s", got)
	}
}

// At an IPv6 address the kernel keeps the IP headers for itself.
func TestOverIPv6(t *testing.T) {
	var hosts []netip.Addr
	for _, text := range []string{"fd77::1", "fd77::2", "fd77::3"} {
		hosts = append(hosts, netip.MustParseAddr(text))
	}
	l := newLabAt(t, netip.MustParseAddr("fd77::100"), "fd77::254/64", hosts)
	req := testREQ(hosts[0], 10, 1, 0x10, 1000)
	req.Primary.RemoteGID = wire.GIDOf(l.group)
	header := wire.IPHeader{Src: hosts[0], Dst: l.group, SrcPort: 50000}
	header.Put(&req.PrivateData)
	l.send(l.a, req)
	for i, r := range l.r {
		asked := expect[*wire.REQ](l, r)
		if !header.Decode(&asked.PrivateData) || header.Src != l.group || header.Dst != hosts[i+1] || asked.Primary.LocalGID != wire.GIDOf(l.group) {
			t.Errorf("receiver %d is asked %+v", i, header)
		}
		l.send(r, &wire.REP{Pair: wire.Pair{Local: uint32(20 + i), Remote: asked.LocalCommID}, QPN: 0x20, StartingPSN: roce.PSN(2000 + i), RNRRetry: 7})
	}
	rep := expect[*wire.REP](l, l.a)
	l.send(l.a, &wire.RTU{Pair: swap(rep.Pair)})
	for _, r := range l.r {
		expect[*wire.RTU](l, r)
	}
	if c := l.connections()[0]; c.Source != hosts[0] || c.Receivers != 2 {
		t.Errorf("%+v", c)
	}
	if counts := l.proxy.List()[0].Counts; counts != (Counts{}) {
		t.Errorf("counted %v", counts.Named())
	}
}

// A group IP that the box cannot have is not served.
func TestAGroupIPThatIsTaken(t *testing.T) {
	p := New(Options{Addresses: &boxSide{taken: errors.New("it is taken")}, Log: zap.NewNop()})
	if err := p.Up(testConfig("b")); err == nil || !strings.Contains(err.Error(), "it is taken") || len(p.List()) != 0 {
		t.Errorf("%v, up: %+v", err, p.List())
	}
}

// Where the kernel gives no sockets, the group IP does not stay on the box. Here it is no address
// of the host.
func TestAGroupIPWithoutSockets(t *testing.T) {
	box := new(boxSide)
	p := New(Options{Addresses: box, Log: zap.NewNop()})
	if err := p.Up(testConfig("b")); err == nil || box.released.Load() != 1 {
		t.Errorf("%v, released %d times", err, box.released.Load())
	}
}

// The clock of the service runs: what is not answered is sent again. Before each time the hosts
// are told who has the group IP, because an answer may have gone to another box.
func TestARequestIsRepeated(t *testing.T) {
	l := newLab(t)
	if n := l.box.announced.Load(); n > 0 {
		t.Errorf("announced %d times before a request", n)
	}
	l.send(l.a, testREQ(hostIPs["a"], 10, 1, 0x10, 1000))
	first := expect[*wire.REQ](l, l.r[0])
	once := l.box.announced.Load()
	second := expect[*wire.REQ](l, l.r[0])
	if *first != *second {
		t.Errorf("%+v, and again %+v", first, second)
	}
	if twice := l.box.announced.Load(); once == 0 || twice <= once {
		t.Errorf("announced %d times before the request came, and %d before it came again", once, twice)
	}
}

// The box's CA GUID is one that no manufacturer has given (EUI-64, the bit for local ones).
func TestTheGUIDIsLocal(t *testing.T) {
	for range 100 {
		if guid := randomSeed().guid; guid>>56&2 == 0 {
			t.Fatalf("%#x", guid)
		}
	}
}

// What goes out on a control connection: SENDs ask for an ACK, and only ACKs have an AETH. The
// other end reads the same packet.
func TestTransmit(t *testing.T) {
	l := newLab(t)
	from, to := l.r[0], l.r[1]
	for _, p := range []Packet{
		{Opcode: roce.OpSendOnly, QPN: 0x123456, PSN: 0x654321, Payload: []byte("12345")},
		{Opcode: roce.OpAck, QPN: 0x123456, PSN: 0x654321, AETH: roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: 7}},
		{Opcode: roce.OpWriteOnly, QPN: 0x123456, PSN: 0x654321, Payload: make([]byte, 4096)},
	} {
		sent := p
		if err := from.transmit(to.ip, &sent); err != nil {
			t.Fatal(err)
		}
		to.raw.SetReadDeadline(time.Now().Add(testlab.Patience))
		var b [maxPacket]byte
		n, _, _, _, err := to.raw.ReadMsgIP(b[:], nil)
		if err != nil {
			t.Fatal(err)
		}
		const transport, icrc = 20 + 8, 4
		bth := roce.BTH{Opcode: p.Opcode, PKey: roce.DefaultPKey, DestQPN: p.QPN, PSN: p.PSN}
		var want []byte
		switch p.Opcode {
		case roce.OpAck:
			want = p.AETH.Append(bth.Append(nil))
		case roce.OpWriteOnly:
			bth.AckReq = true
			want = append((&roce.RETH{DMABytes: 4096}).Append(bth.Append(nil)), p.Payload...)
			p.Payload = nil // the box has no use for it
		default:
			bth.AckReq, bth.PadCount = true, 3
			want = append(bth.Append(nil), "12345\x00\x00\x00"...)
		}
		if got := b[transport : n-icrc]; !bytes.Equal(got, want) {
			t.Errorf("%v: %x, want %x", p.Opcode, got, want)
		}
		if err := from.transmit(to.ip, &sent); err != nil {
			t.Fatal(err)
		}
		event, err, lost := to.receive()
		p.QPN = 0 // it is the event's
		if want := (Received{From: from.ip, Packet: p, QPN: 0x123456}); err != nil || lost != nil || !reflect.DeepEqual(event, want) {
			t.Errorf("%+v, %v, %v; want %+v", event, err, lost, want)
		}
	}
}
