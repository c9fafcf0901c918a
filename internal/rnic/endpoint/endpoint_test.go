package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

const (
	regionVA    = 0x7F0000000000
	regionRKey  = 0x42
	regionBytes = 8 << 20
)

var remote = rnic.Remote{VA: regionVA, RKey: regionRKey}

// host is an endpoint in a namespace of its own, with one queue pair and one region.
type host struct {
	*Endpoint
	ns     *netns.NS
	qp     *QP
	memory []byte
}

// twoHosts joins two hosts by a veth pair. change may set anything but QPNs and PSNs.
func twoHosts(t testing.TB, mtu int, change func(*rnic.Config)) (a, b *host) {
	t.Helper()
	nsA, nsB := netns.New(t), netns.New(t)
	linkA, linkB := netns.Veth(t, nsA, "p0", nsB, "p0", netns.VethOptions{MTU: mtu})
	a = newHost(t, linkA, "10.9.0.1", 0xA1, 0xFFFFFF, change)
	b = newHost(t, linkB, "10.9.0.2", 0xB1, 0x000010, change)
	connect(t, a.qp, Peer{IP: b.IP(), QPN: 0xB1, PSN: 0x000010})
	connect(t, b.qp, Peer{IP: a.IP(), QPN: 0xA1, PSN: 0xFFFFFF})
	return a, b
}

func newHost(t testing.TB, link netns.Link, ip string, qpn roce.QPN, psn roce.PSN, change func(*rnic.Config)) *host {
	t.Helper()
	if err := link.AddAddress(ip + "/24"); err != nil {
		t.Fatal(err)
	}
	h := &host{ns: link.NS, memory: make([]byte, regionBytes)}
	err := link.NS.Do(func() (err error) {
		h.Endpoint, err = Open(link.Name, netip.MustParseAddr(ip))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	region := rnic.Region{VA: regionVA, RKey: regionRKey, Access: rnic.RemoteWrite, Bytes: h.memory}
	if err := h.Register(region); err != nil {
		t.Fatal(err)
	}
	c := rnic.Defaults()
	c.QPN, c.SendPSN = qpn, psn
	if change != nil {
		change(&c)
	}
	if h.qp, err = h.NewQP(c); err != nil {
		t.Fatal(err)
	}
	return h
}

func connect(t testing.TB, q *QP, p Peer) {
	t.Helper()
	if err := q.Connect(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func (h *host) wait(t testing.TB) rnic.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := h.qp.Wait(ctx)
	if err != nil {
		counters := h.Counters()
		t.Fatal(err, counters.ByName())
	}
	return c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// Data goes the whole way between two namespaces, with the ARP of the kernel, in both directions at
// once.
func TestWriteSendAndImmediate(t *testing.T) {
	a, b := twoHosts(t, 1500, nil)
	data, receive := randomBytes(100_001), make([]byte, 5000)
	check(t, b.qp.PostRecv(10, receive))
	check(t, b.qp.PostRecv(11, nil))
	check(t, a.qp.PostWrite(1, data, remote))
	check(t, a.qp.PostSendImm(2, data[:5000], 0xBEEF))
	check(t, a.qp.PostWriteImm(3, data[:1], rnic.Remote{VA: regionVA + regionBytes - 1, RKey: regionRKey}, 7))
	check(t, b.qp.PostWrite(4, data[:3000], remote))

	for _, want := range []rnic.Completion{
		{WRID: 1, Op: rnic.Write, Bytes: 100_001}, {WRID: 2, Op: rnic.SendImm, Bytes: 5000},
		{WRID: 3, Op: rnic.WriteImm, Bytes: 1},
	} {
		if got := a.wait(t); got != want {
			t.Errorf("a completed %v, want %v", got, want)
		}
	}
	seen := map[rnic.Completion]bool{}
	for range 3 {
		seen[b.wait(t)] = true
	}
	for _, want := range []rnic.Completion{
		{WRID: 10, Op: rnic.Recv, HasImm: true, Imm: 0xBEEF, Bytes: 5000},
		{WRID: 11, Op: rnic.RecvWriteImm, HasImm: true, Imm: 7, Bytes: 1}, {WRID: 4, Op: rnic.Write, Bytes: 3000},
	} {
		if !seen[want] {
			t.Errorf("b did not complete %v, but %v", want, seen)
		}
	}
	b.Freeze(func() {
		if !bytes.Equal(b.memory[:len(data)], data) || b.memory[regionBytes-1] != data[0] {
			t.Error("b's memory is not what a wrote")
		}
		if !bytes.Equal(receive, data[:5000]) {
			t.Error("b's receive is not what a sent")
		}
	})
	a.Freeze(func() {
		if !bytes.Equal(a.memory[:3000], data[:3000]) {
			t.Error("a's memory is not what b wrote")
		}
	})
}

// The kernel of neither namespace says "port unreachable".
func TestKernelStaysSilent(t *testing.T) {
	a, b := twoHosts(t, 1500, nil)
	check(t, a.qp.PostWrite(1, randomBytes(200_000), remote))
	if c := a.wait(t); c.Status != rnic.Success {
		t.Fatal(c)
	}
	for _, h := range []*host{a, b} {
		snmp := ""
		check(t, h.ns.Do(func() error {
			text, err := os.ReadFile("/proc/thread-self/net/snmp")
			snmp = string(text)
			return err
		}))
		if n := snmpField(t, snmp, "Icmp", "OutMsgs"); n != "0" {
			t.Errorf("%s sent %s ICMP messages", h.IP(), n)
		}
	}
}

// snmpField reads /proc/net/snmp: a line of names, then a line of values.
func snmpField(t *testing.T, snmp, group, field string) string {
	t.Helper()
	var names []string
	for line := range strings.Lines(snmp) {
		fields := strings.Fields(line)
		if fields[0] != group+":" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == field {
				return fields[i]
			}
		}
	}
	t.Fatalf("no %s %s in %s", group, field, snmp)
	return ""
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		post func(*QP) error
		want rnic.Status
	}{
		"READ": {func(q *QP) error { return q.PostRead(1, 4096, remote) }, rnic.RemoteInvalidRequest},
		"key": {func(q *QP) error { return q.PostWrite(1, make([]byte, 8), rnic.Remote{VA: regionVA, RKey: 1}) },
			rnic.RemoteAccess},
		"range": {func(q *QP) error {
			return q.PostWrite(1, make([]byte, 9), rnic.Remote{VA: regionVA + regionBytes - 8, RKey: regionRKey})
		}, rnic.RemoteAccess},
		"no receive": {func(q *QP) error { return q.PostSend(1, nil) }, rnic.RNRRetryExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := twoHosts(t, 1500, func(c *rnic.Config) { c.RNRRetry, c.MinRNRTimer = 1, 1 })
			check(t, c.post(a.qp))
			check(t, a.qp.PostWrite(2, nil, remote))
			if got := a.wait(t); got.Status != c.want || got.WRID != 1 {
				t.Errorf("completed %v, want %v", got, c.want)
			}
			if got := a.wait(t); got.Status != rnic.WRFlushed {
				t.Errorf("completed %v", got)
			}
			if name != "no receive" && b.qp.State() != rnic.StateError {
				t.Errorf("responder is in %s", b.qp.State())
			}
		})
	}
}

// A peer exists but has no such queue pair: the timer runs in real time, and the frames are
// counted.
func TestRetryExceeded(t *testing.T) {
	a, b := twoHosts(t, 1500, func(c *rnic.Config) { c.Timeout, c.RetryCount = 8, 2 })
	c := rnic.Defaults()
	c.QPN, c.Timeout, c.RetryCount = 0xC1, 8, 2
	lost, err := a.NewQP(c)
	check(t, err)
	connect(t, lost, Peer{IP: b.IP(), QPN: 0xDEAD})
	check(t, lost.PostWrite(1, make([]byte, 8), remote))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := lost.Wait(ctx); err != nil || got.Status != rnic.RetryExceeded {
		t.Fatal(got, err)
	}
	check(t, a.qp.PostWrite(2, nil, remote)) // behind the first three on the wire
	a.wait(t)
	counters := b.Counters()
	for deadline := time.Now().Add(5 * time.Second); counters.Get(rnic.RejectQPN) < 3 && time.Now().Before(deadline); {
		runtime.Gosched() // the answer is sent before the frames of its batch are counted
		counters = b.Counters()
	}
	if n := counters.Get(rnic.RejectQPN); n != 3 {
		t.Errorf("b refused %d frames: %v", n, counters.ByName())
	}
}

func TestErrorsSaySo(t *testing.T) {
	a, _ := twoHosts(t, 1500, nil)
	c := rnic.Defaults()
	c.QPN, c.MTUBytes = 2, 2048
	if _, err := a.NewQP(c); err == nil || !strings.Contains(err.Error(), "does not fit p0") {
		t.Errorf("path MTU 2048 on an interface of 1500: %v", err)
	}
	c.QPN, c.MTUBytes = 0xA1, 1024
	if _, err := a.NewQP(c); err == nil {
		t.Error("one QPN twice")
	}
	c.QPN = 3
	q, err := a.NewQP(c)
	check(t, err)
	if err := q.Connect(t.Context(), Peer{IP: netip.MustParseAddr("192.0.2.1")}); err == nil {
		t.Error("connected to a peer without a route")
	}
	if err := a.ns.Do(func() error { _, err := Open("p0", a.IP()); return err }); err == nil {
		t.Error("one address twice")
	}
	check(t, a.Close())
	if _, err := q.Wait(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("wait after close: %v", err)
	}
}

// Path MTU 4096 needs frames longer than an interface of 1500 bytes carries.
func TestPathMTU4096(t *testing.T) {
	a, b := twoHosts(t, 4200, func(c *rnic.Config) { c.MTUBytes = 4096 })
	data := randomBytes(1_000_000)
	check(t, a.qp.PostWrite(1, data, remote))
	if c := a.wait(t); c.Status != rnic.Success {
		t.Fatal(c)
	}
	b.Freeze(func() {
		if !bytes.Equal(b.memory[:len(data)], data) {
			t.Error("data differs")
		}
	})
}

// 64 MiB, as 8 WRITEs of 8 MiB at path MTU 1024.
func BenchmarkWrite64MiB(b *testing.B) {
	from, to := twoHosts(b, 1500, nil)
	data := randomBytes(regionBytes)
	b.SetBytes(8 * regionBytes)
	b.ReportAllocs()
	for b.Loop() {
		for i := range uint64(8) {
			check(b, from.qp.PostWrite(i, data, remote))
		}
		for range 8 {
			if c := from.wait(b); c.Status != rnic.Success {
				b.Fatal(c)
			}
		}
	}
	received, lost := to.Drops()
	counters := from.qp.Counters()
	b.ReportMetric(float64(received+lost), "drops")
	b.ReportMetric(float64(counters.Get(rnic.FramesRetransmitted)), "retransmitted")
}

// A region that the owner forgets is closed to the peer at once.
func TestDeregister(t *testing.T) {
	a, b := twoHosts(t, 1500, nil)
	write := func() rnic.Completion {
		check(t, a.qp.PostWrite(1, []byte("text"), remote))
		return a.wait(t)
	}
	if c := write(); c.Status != rnic.Success {
		t.Fatal(c)
	}
	b.Deregister(regionRKey)
	clear(b.memory)
	if c := write(); c.Status != rnic.RemoteAccess || bytes.HasPrefix(b.memory, []byte("text")) {
		t.Errorf("%v, and the memory begins with %q", c, b.memory[:4])
	}
}

// The CPU time of an endpoint that has a thread to itself can be read apart from all others: it
// grows while the endpoint sends, and the thread does nothing else.
func TestOwnThread(t *testing.T) {
	a, _ := twoHosts(t, 1500, nil)
	id, err := a.OwnThread()
	check(t, err)
	ran := func() (ns int) {
		text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(id) + "/schedstat")
		check(t, err)
		_, err = fmt.Sscan(string(text), &ns)
		check(t, err)
		return ns
	}
	before := ran()
	check(t, a.qp.PostWrite(1, randomBytes(1<<20), remote))
	c, err := a.qp.Wait(t.Context())
	if err != nil || c.Status != rnic.Success {
		t.Fatal(c, err)
	}
	if after := ran(); after <= before {
		t.Errorf("sending 1 MiB took the endpoint's thread %d ns", after-before)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.OwnThread(); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed endpoint: %v", err)
	}
}

// A host takes what is sent to its own MAC, also when that has changed.
func TestAnotherMAC(t *testing.T) {
	a, b := twoHosts(t, 1500, func(c *rnic.Config) { c.Timeout, c.RetryCount = 8, 1 })
	mac := roce.MAC{2, 0, 0, 0, 0x77, 0x77}
	b.SetMAC(mac)
	if b.MAC() != mac {
		t.Errorf("it is %x", b.MAC())
	}
	check(t, a.qp.PostWrite(1, make([]byte, 8), remote))
	if got := a.wait(t); got.Status != rnic.RetryExceeded {
		t.Errorf("sent to the old MAC: %v", got.Status)
	}
	// b may get its time later than a gives up.
	testlab.Eventually(t, testlab.Patience, "b refuses", func() bool { c := b.Counters(); return c.Rejected() > 0 }, nil)
	if c := b.Counters(); c.Rejected() != c.Get(rnic.RejectDstMAC) {
		t.Errorf("b refused %v", c.ByName())
	}
}
