package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func openPort(t testing.TB, c *Classifier, ifindex int, mode AttachMode) *Port {
	t.Helper()
	p, err := c.OpenPort(ifindex, 0, mode)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// In each mode, a group's frame reaches the socket unchanged with its metadata in front, another
// frame reaches the kernel, and after Close the group's frame does too.
func TestFramesOnVeth(t *testing.T) {
	for _, mode := range []AttachMode{ModeNative, ModeGeneric} {
		t.Run(mode.String(), func(t *testing.T) { testFramesOnVeth(t, mode) })
	}
}

func testFramesOnVeth(t *testing.T, mode AttachMode) {
	c := load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	peer, err := net.InterfaceByName("rc1")
	must(t, "find rc1", err)
	wire, kernel := tap(t, peer.Index), tap(t, ifindex)
	put(t, c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, 7)
	p := openPort(t, c, ifindex, mode)
	if p.Mode() != mode || p.NativeRefused() != nil {
		t.Errorf("mode %s, refused %v; want %s", p.Mode(), p.NativeRefused(), mode)
	}
	early := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 50)
	send(t, wire, early)
	expectKernelGets(t, kernel, early)
	if p.Redirected() {
		t.Error("a frame of a queue without a socket counts as redirected")
	}
	sock := openSocket(t, ifindex)
	must(t, "set socket", p.SetSocket(0, sock.fd))

	ours := tagged(frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 100), 0x8100)
	before := counters(t, c)
	if p.Redirected() {
		t.Error("a frame was redirected before one came")
	}
	send(t, wire, ours)
	meta, got := sock.receive(t)
	if diff := cmp.Diff(ours, got); diff != "" {
		t.Errorf("the frame changed (-sent +received):\n%s", diff)
	}
	want := Meta{Group: 7, Kind: KindData, VLANs: 1, L3Off: 18, BTHOff: 46}
	if m, ok := DecodeMeta(meta); !ok || m != want {
		t.Errorf("metadata %x is %+v, want %+v", meta, m, want)
	}
	if n := counters(t, c)[RedirectData] - before[RedirectData]; n != 1 {
		t.Errorf("%s moved by %d, want 1", RedirectData, n)
	}

	if !p.Redirected() || p.Redirected() {
		t.Error("a redirected frame is not told, or is told twice")
	}
	nobodys := frame(hostA, hostA, roce.OpSendOnly, groupQPN, 100)
	send(t, wire, nobodys)
	expectKernelGets(t, kernel, nobodys)
	if p.Redirected() {
		t.Error("a frame for the kernel counts as redirected")
	}
	send(t, wire, ours)
	sock.receive(t) // nobody asks about it before the port is closed

	must(t, "close port", p.Close())
	if attached(t, ifindex) {
		t.Error("after Close the interface still runs an XDP program")
	}
	untagged := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 100)
	send(t, wire, untagged)
	expectKernelGets(t, kernel, untagged)
	if p = openPort(t, c, ifindex, mode); p.Redirected() {
		t.Error("a port begins with what was redirected before")
	}
	must(t, "close port", p.Close())
}

// expectKernelGets waits for a frame on a tap. It ignores frames that the kernel sends by itself
// (neighbour discovery).
func expectKernelGets(t *testing.T, tap int, want []byte) {
	t.Helper()
	b := make([]byte, 2048)
	for {
		awaitInput(t, tap)
		n, from, err := unix.Recvfrom(tap, b, 0)
		must(t, "receive", err)
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING || string(b[:min(n, 12)]) != string(want[:12]) {
			continue
		}
		if diff := cmp.Diff(want, b[:n]); diff != "" {
			t.Errorf("the kernel got another frame (-want +got):\n%s", diff)
		}
		return
	}
}

// The loopback is a device whose driver has no native XDP.
func TestGenericIsTheFallback(t *testing.T) {
	c := load(t)
	enterNamespace(t)

	_, err := c.OpenPort(loopback, 0, ModeNative)
	if !errors.Is(err, unix.EOPNOTSUPP) || !strings.HasPrefix(err.Error(), "attach in native mode: the driver has no native XDP; mode: copy and mode: generic work without it: ") {
		t.Errorf("native mode on a device without: %v", err)
	}
	p := openPort(t, c, loopback, ModeAuto)
	if p.Mode() != ModeGeneric || !errors.Is(p.NativeRefused(), unix.EOPNOTSUPP) {
		t.Errorf("mode %s, native refused with %v; want generic, EOPNOTSUPP", p.Mode(), p.NativeRefused())
	}
	must(t, "close port", p.Close())
	if attached(t, loopback) {
		t.Error("after Close the interface still runs an XDP program")
	}
}

// At this MTU veth takes only a program that declares itself aware of multi-buffer frames.
func TestAutoPrefersNative(t *testing.T) {
	const jumboBytes = 9000
	c := load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	for _, name := range []string{"rc0", "rc1"} {
		l, err := netlink.LinkByName(name)
		must(t, "find "+name, err)
		must(t, "set MTU", netlink.LinkSetMTU(l, jumboBytes))
	}
	p := openPort(t, c, ifindex, ModeAuto)
	defer p.Close()
	if p.Mode() != ModeNative || p.NativeRefused() != nil {
		t.Errorf("mode %s, refused %v; want native", p.Mode(), p.NativeRefused())
	}
}

// A program that is already attached stays, in whatever mode and by whatever means, and the error
// says which program it is and how to remove it.
func TestInterfaceAlreadyHeld(t *testing.T) {
	c := load(t)
	enterNamespace(t)
	ifindex := addVeth(t)

	first := openPort(t, c, ifindex, ModeNative)
	for _, mode := range []AttachMode{ModeAuto, ModeNative, ModeGeneric} {
		_, err := c.OpenPort(ifindex, 0, mode)
		if err == nil || !strings.Contains(err.Error(), `XDP program "rocast_classify_alone"`) || !strings.Contains(err.Error(), "bpftool link detach id") {
			t.Errorf("%s mode over a bpf_link: %v", mode, err)
		}
	}
	must(t, "close port", first.Close())

	prog, err := newProbe(0, asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	must(t, "load program", err)
	defer prog.Close()
	l, err := netlink.LinkByIndex(ifindex)
	must(t, "find rc0", err)
	must(t, "attach by netlink", netlink.LinkSetXdpFd(l, prog.FD()))
	_, err = c.OpenPort(ifindex, 0, ModeAuto)
	if err == nil || !strings.Contains(err.Error(), `XDP program "rocast_probe"`) || !strings.Contains(err.Error(), "ip link set dev rc0 xdp off") {
		t.Errorf("over a netlink attachment: %v", err)
	}
}

// While another process makes links, that no link holds an interface is found out all the same.
func TestLinksAreSearchedWhileOthersAreMade(t *testing.T) {
	c := load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	p := openPort(t, c, ifindex, ModeNative)
	defer p.Close()
	const noProgram = 1<<32 - 1
	var made atomic.Bool
	errs := make(chan error, 1)
	go func() {
		var wrong error
		for !made.Load() {
			if id, err := linkOf(ifindex, noProgram); id != 0 || err != nil {
				wrong = fmt.Errorf("link %d, %w", id, err)
			}
		}
		errs <- wrong
	}()
	for range 40 {
		must(t, "detach", p.link.Close())
		testlab.Eventually(t, testlab.Patience, "the search has let go of the link", func() bool {
			err := p.attach(ifindex, ModeNative)
			if err != nil && !isHeld(err) {
				t.Fatal(err)
			}
			return err == nil
		}, nil)
	}
	made.Store(true)
	if err := <-errs; err != nil {
		t.Error(err)
	}
}

// keepCapabilities takes all other capabilities from the test's thread, which must be locked.
func keepCapabilities(t *testing.T, keep ...int) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range keep {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	must(t, "drop capabilities", unix.Capset(&header, &data[0]))
}

// A daemon needs only these capabilities, also for fan-out and to probe a port. Without
// CAP_SYS_ADMIN the program that holds an interface cannot be named.
func TestThreeCapabilitiesSuffice(t *testing.T) {
	load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	keepCapabilities(t, unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON)

	c := load(t)
	p := openPort(t, c, ifindex, ModeAuto)
	defer p.Close()
	put(t, c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, 7)
	_, err := c.OpenPort(ifindex, 0, ModeAuto)
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "find its owner with: bpftool link show") {
		t.Errorf("second port: %v", err)
	}
	f, err := c.LoadFanOut(testTables(), 0)
	must(t, "load fan-out", err)
	must(t, "engage fan-out", c.Engage(f, p))
	if err := ProbeTransmit(ifindex); err != nil && !errors.Is(err, ErrRefuses) {
		t.Errorf("probe: %v", err)
	}
}

// Each of the three is needed, and an error names them.
func TestOneCapabilityLess(t *testing.T) {
	load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	three := []int{unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON}
	for i, missing := range []string{"CAP_BPF", "CAP_NET_ADMIN"} {
		t.Run(missing, func(t *testing.T) {
			runtime.LockOSThread() // never unlocked: the thread ends with the test
			keepCapabilities(t, slices.Delete(slices.Clone(three), i, i+1)...)
			if _, err := Load(); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), missing) {
				t.Errorf("load: %v", err)
			}
		})
	}
	t.Run("CAP_PERFMON", func(t *testing.T) {
		runtime.LockOSThread()
		keepCapabilities(t, three[:2]...)
		if err := ProbeTransmit(ifindex); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_PERFMON") {
			t.Errorf("probe: %v", err)
		}
	})
}

// loadWithoutPerfmon is Load where CAP_PERFMON is missing. The verifiers of older kernels refuse
// the classifier then, and the error names the capability: c is nil.
func loadWithoutPerfmon(t *testing.T) (c *Classifier) {
	t.Helper()
	c, err := Load()
	switch {
	case err == nil:
		t.Cleanup(func() { must(t, "close classifier", c.Close()) })
	case !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "CAP_PERFMON"):
		t.Error(err)
	}
	return c
}

// Without CAP_PERFMON the verifier is stricter. Newer kernels take the classifier all the same.
func TestWithoutPerfmon(t *testing.T) {
	load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	keepCapabilities(t, unix.CAP_BPF, unix.CAP_NET_ADMIN)
	if c := loadWithoutPerfmon(t); c != nil {
		p, err := c.OpenPort(ifindex, 0, ModeAuto)
		must(t, "open port", err)
		must(t, "close port", p.Close())
	}
}

// If the verifier refuses the fan-out program, LoadFanOut must fail. If only OpenPort failed, the
// caller could no longer fall back to the classifier alone.
//
// Without CAP_PERFMON the verifier takes the program only if the machine has booted with
// mitigations=off.
func TestFanOutThatTheVerifierRefusesIsNotLoaded(t *testing.T) {
	load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	keepCapabilities(t, unix.CAP_BPF, unix.CAP_NET_ADMIN)
	c := loadWithoutPerfmon(t)
	if c == nil {
		return
	}
	f, err := c.LoadFanOut(testTables(), 0)
	if err != nil {
		if !errors.Is(err, unix.EACCES) || !strings.HasPrefix(err.Error(), "load fan-out: ") || !strings.Contains(err.Error(), "CAP_PERFMON") {
			t.Error(err)
		}
		return
	}
	must(t, "engage fan-out", c.Engage(f))
	p, err := c.OpenPort(ifindex, 0, ModeAuto)
	must(t, "open port", err)
	must(t, "close port", p.Close())
}

func TestNoSuchInterface(t *testing.T) {
	c := load(t)
	const nobody = 1 << 30
	if _, err := c.OpenPort(nobody, 0, ModeAuto); err == nil || !strings.Contains(err.Error(), "no interface with index 1073741824") {
		t.Errorf("got %v", err)
	}
}

const heldIfindexEnv = "ROCAST_TEST_HOLD_IFINDEX"

// A daemon that is killed leaves no program behind: its bpf_link goes away with it.
func TestKilledProcessLeavesNoProgram(t *testing.T) {
	if ifindex, err := strconv.Atoi(os.Getenv(heldIfindexEnv)); err == nil {
		holdPort(t, ifindex)
		return
	}
	load(t)
	enterNamespace(t)
	ifindex := addVeth(t)
	child := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), heldIfindexEnv+"="+strconv.Itoa(ifindex))
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	must(t, "pipe", err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	must(t, "pipe", err)
	must(t, "start", child.Start())
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	running := attached(t, ifindex)
	must(t, "kill", child.Process.Kill())
	_ = child.Wait() // reports the kill
	if line != "open\n" || !running {
		t.Fatalf("the child said %q, program attached: %v", line, running)
	}
	if attached(t, ifindex) {
		t.Error("the process is dead and its program still attached")
	}
}

// holdPort runs in the child: it opens the port, reports this, and waits to be killed.
func holdPort(t *testing.T, ifindex int) {
	openPort(t, load(t), ifindex, ModeAuto)
	os.Stdout.WriteString("open\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// Ports share groups and counters but not sockets.
func TestPortsShareGroups(t *testing.T) {
	a := newBench(t, true)
	putTestGroups(t, a.c)
	good := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16)
	if got := a.run(t, good).Verdict; got != RedirectData {
		t.Errorf("the port with a socket: %s, want %s", got, RedirectData)
	}
	socket := a.p.socket(0)
	a.p.entry().Ifindex = 0 // the next port has the same interface, and sockets of its own
	b := &bench{a.c, unattached(t, a.c, 0)}
	if got := b.run(t, good).Verdict; got != PassNoSocket || b.p.socket(0) == socket {
		t.Errorf("the port without: %s, want %s", got, PassNoSocket)
	}
}

func TestFeatures(t *testing.T) {
	load(t)
	for _, f := range Features() {
		err := f.Check()
		if errors.Is(err, unix.EPERM) {
			t.Skip("needs CAP_SYS_ADMIN for a network namespace")
		}
		if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
			t.Errorf("%s: %v", f.Name, err)
		}
		if again := f.Check(); again != err {
			t.Errorf("%s: %v at first, then %v", f.Name, err, again)
		}
	}
}

func TestFeatureAnswers(t *testing.T) {
	undecided := errors.New("cannot try")
	for _, row := range []struct {
		name   string
		answer error
		want   string
		probes int
	}{
		{"there", nil, "", 1},
		{"missing", ebpf.ErrNotSupported, "warp needs a kernel >= 9.9", 1},
		{"undecided", undecided, "try warp: cannot try", 2},
	} {
		probes := 0
		f := Feature{Name: "warp", Since: "9.9", probe: func() error { probes++; return row.answer }}
		for range 2 {
			err := f.Check()
			if !errors.Is(err, row.answer) || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v, want %q", row.name, err, row.want)
			}
		}
		if probes != row.probes {
			t.Errorf("%s: probed %d times, want %d", row.name, probes, row.probes)
		}
	}
}

// The programs know a port by the lowest bits of its interface's number. Another port with the same
// bits is refused, and may be opened when the first one is closed. Then it gets no frames of the
// first one.
func TestAPortThatLooksLikeAnother(t *testing.T) {
	c := load(t)
	enterNamespace(t)
	first := unattached(t, c, 0)
	second := &Port{c: c, name: "rcother", ifindex: loopback + len(c.shared().Ports), number: 1, row: noRow}
	const want = "its interface has the number 16385, which the classifier cannot tell from the number 1 of another port; remove one of " +
		"the two interfaces and make it again"
	if err := second.register(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	must(t, "close the refused port", second.Close())
	if e := first.entry(); e.Ifindex != loopback || e.FirstSocket != first.socket(0) {
		t.Errorf("the first port is %+v", e)
	}
	must(t, "close the first port", first.Close())
	must(t, "open the second port", second.register())
	if e := second.entry(); e.Ifindex != uint32(second.ifindex) || e.Number != 1 || e.Room != 0 {
		t.Errorf("the second port is %+v", e)
	}
	must(t, "set a socket", second.SetSocket(0, openSocket(t, loopback).fd))
	putTestGroups(t, c)
	b := &bench{c, second}
	if got := b.run(t, frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16)).Verdict; got != PassNoSocket {
		t.Errorf("a frame of the first port: %s", got)
	}
	must(t, "close the second port", second.Close())
}

// As many ports as there is room for have sockets of their own, and one more is refused.
func TestPortsHaveSocketsOfTheirOwn(t *testing.T) {
	c := load(t)
	sockets := map[uint32]bool{}
	open := func(i int) (*Port, error) {
		p := &Port{c: c, name: fmt.Sprint("rc", i), ifindex: 1 + i, row: noRow}
		return p, p.register()
	}
	for i := range portsMax {
		p, err := open(i)
		must(t, "open "+p.name, err)
		defer p.Close()
		sockets[p.socket(0)], sockets[p.socket(QueuesMax-1)] = true, true
	}
	if len(sockets) != 2*portsMax || sockets[portsMax*QueuesMax] {
		t.Errorf("%d ports have %d sockets", portsMax, len(sockets))
	}
	if _, err := open(portsMax); err == nil || !strings.Contains(err.Error(), "256 ports are open") {
		t.Errorf("one more: %v", err)
	}
}

// A port that is closed leaves no socket behind for the one that gets its row.
func TestAClosedPortLeavesNoSocket(t *testing.T) {
	b := newBench(t, true)
	putTestGroups(t, b.c)
	good := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16)
	if got := b.run(t, good).Verdict; got != RedirectData {
		t.Fatalf("an open port: %s", got)
	}
	must(t, "close", b.p.Close())
	if got := b.run(t, good).Verdict; got != PassNoSocket {
		t.Errorf("a closed port: %s", got)
	}
	row := b.p.row
	b.p = unattached(t, b.c, 0)
	if got := b.run(t, good).Verdict; got != PassNoSocket || b.p.row == row {
		t.Errorf("the next port: %s, in place %d", got, b.p.row)
	}
}

// runs checks which program a port runs.
func runs(t *testing.T, p *Port, program *ebpf.Program) {
	t.Helper()
	link, err := p.link.Info()
	must(t, "ask for the link", err)
	info, err := program.Info()
	must(t, "ask for the program", err)
	if id, _ := info.ID(); link.Program != id {
		t.Errorf("%s runs program %d, want %d", p.name, link.Program, id)
	}
}

// Fan-out takes over at the ports that are open and at those that are opened later. Where one of
// them refuses, all go on without it.
func TestFanOutIsEngagedAtAllPorts(t *testing.T) {
	c := load(t)
	enterNamespace(t)
	p := openPort(t, c, addVeth(t), ModeNative)
	defer p.Close()
	fanOut := func() *FanOut {
		t.Helper()
		f, err := c.LoadFanOut(testTables(), 0)
		must(t, "load fan-out", err)
		return f
	}
	runs(t, p, c.program)
	gone := openPort(t, c, loopback, ModeGeneric)
	must(t, "detach", gone.link.Detach())
	if err := c.Engage(fanOut(), p, gone); err == nil || !strings.HasPrefix(err.Error(), "engage fan-out at port lo: ") {
		t.Errorf("a port is gone: %v", err)
	}
	runs(t, p, c.program)
	must(t, "close", gone.Close())
	f := fanOut()
	must(t, "engage", c.Engage(f, p))
	runs(t, p, f.programs.Classify)
	later := openPort(t, c, loopback, ModeGeneric)
	defer later.Close()
	runs(t, later, f.programs.Classify)
}
