package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// asDaemon makes this test's program the daemon itself: see TestMain.
const asDaemon = "ROCASTD_TEST_CONFIG"

func TestMain(m *testing.M) {
	if config := os.Getenv(asDaemon); config != "" {
		os.Args = []string{"rocastd", "--config", config}
		main()
	}
	os.Exit(m.Run())
}

const owned = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
  - {ip: 10.77.0.2, qpn: 18, psn: 5}
`

// box is a namespace with a bridge over two ports, a host behind each, and a daemon's files:
//
//	10.77.0.1 p0 ─ eth1 ┐
//	                    br0 10.77.0.254
//	10.77.0.2 p0 ─ eth2 ┘
type box struct {
	*netns.NS
	hosts  [2]*netns.NS
	config string
	socket string
	notify *net.UnixConn // what the daemon tells systemd
}

func newBox(t testing.TB) *box {
	t.Helper()
	b := &box{NS: netns.New(t)}
	b.ip(t, "link", "add", "br0", "type", "bridge")
	b.ip(t, "addr", "add", "10.77.0.254/24", "dev", "br0")
	b.ip(t, "link", "set", "br0", "up")
	for i := range b.hosts {
		b.hosts[i] = netns.New(t)
		name := fmt.Sprintf("eth%d", i+1)
		_, far := netns.Veth(t, b.NS, name, b.hosts[i], "p0", netns.VethOptions{})
		b.ip(t, "link", "set", name, "master", "br0")
		if err := far.AddAddress(fmt.Sprintf("10.77.0.%d/24", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	b.config, b.socket = filepath.Join(dir, "rocastd.yaml"), filepath.Join(dir, "rocast.sock")
	text := fmt.Sprintf("ports: ['eth*']\nsocket: %s\nstateDir: %s\nengine: auto\n", b.socket, filepath.Join(dir, "state"))
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.notify = newNotify(t)
	return b
}

// newNotify is the socket on which systemd hears a daemon.
func newNotify(t testing.TB) *net.UnixConn {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return socket
}

func (b *box) ip(t testing.TB, args ...string) string {
	t.Helper()
	output, err := b.Exec("ip", args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// process is a running daemon.
type process struct {
	*exec.Cmd
	log *logBuffer
}

// logBuffer may be read while it is written.
type logBuffer struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // has one token if text has grown since until looked
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.grown <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// until waits until the log contains a text.
func (b *logBuffer) until(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(2 * testlab.Patience)
	for !strings.Contains(b.String(), want) {
		select {
		case <-b.grown:
		case <-deadline:
			t.Fatalf("the log never says %q", want)
		}
	}
}

// start returns when the daemon says that it is ready.
func (b *box) start(t testing.TB) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asDaemon+"="+b.config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return b.launch(t, cmd)
}

// launch is start with another program.
func (b *box) launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, log: &logBuffer{grown: make(chan struct{}, 1)}}
	p.Env = append(p.Environ(), "NOTIFY_SOCKET="+b.notify.LocalAddr().String())
	p.Stderr = p.log
	if err := b.Do(p.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("log of the daemon with PID %d:\n%s", p.Process.Pid, p.log)
		}
	})
	b.expectNotice(t, "READY=1")
	return p
}

func (b *box) expectNotice(t testing.TB, want string) {
	t.Helper()
	got, err := readNotice(b.notify, 2*time.Minute)
	for err == nil && strings.HasPrefix(got, "WATCHDOG=1\n") {
		got, err = readNotice(b.notify, 2*time.Minute)
	}
	if notice, _, _ := strings.Cut(got, "\n"); err != nil || notice != want {
		t.Fatalf("the daemon tells systemd %q (%v), want %q", got, err, want)
	}
}

// readNotice returns the next notice, or an error if there is none in time.
func readNotice(socket *net.UnixConn, within time.Duration) (string, error) {
	buf := make([]byte, 256)
	if err := socket.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	n, err := socket.Read(buf)
	return string(buf[:n]), err
}

// end sends a signal and returns how the daemon ended.
func (p *process) end(t testing.TB, signal os.Signal) string {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := p.Wait()
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// until waits for a state of the group: members are resolved behind the API's back.
func (b *box) until(t *testing.T, state string) (g api.Group) {
	t.Helper()
	client := client.New(b.socket)
	testlab.Eventually(t, 2*testlab.Patience, "the group is "+state, func() (done bool) {
		var err error
		if g, err = client.Group(t.Context(), "g1"); err != nil {
			t.Fatal(err)
		}
		return g.State == state
	}, func() string { return fmt.Sprintf("it is %+v", g) })
	return g
}

// addresses are br0's, in the order ip lists them.
func (b *box) addresses(t *testing.T) string {
	t.Helper()
	return strings.Join(strings.Fields(b.ip(t, "-brief", "addr", "show", "dev", "br0"))[2:], " ")
}

func TestTheDaemonsLifeOnRealPorts(t *testing.T) {
	b, ctx := newBox(t), context.Background()
	client := client.New(b.socket)
	const mine, withGroup = "10.77.0.254/24", "10.77.0.254/24 10.77.0.100/32"

	p := b.start(t)
	if _, err := client.CreateGroup(ctx, []byte(owned)); err != nil {
		t.Fatal(err)
	}
	g := b.until(t, api.Ready)
	if g.Members[0].Port != "eth1" || g.Members[1].Port != "eth2" {
		t.Errorf("members %+v", g.Members)
	}
	if _, err := b.hosts[0].Exec("ping", "-c1", "-W5", "10.77.0.100"); err != nil {
		t.Errorf("nobody answers for the group's IP: %v", err)
	}

	// A crash: the address stays behind, the program does not. The next daemon takes it over, the
	// group comes back.
	if got := p.end(t, unix.SIGKILL); got != "signal: killed" {
		t.Errorf("killed: %s", got)
	}
	if got := b.addresses(t); got != withGroup {
		t.Errorf("after the crash br0 has %s", got)
	}
	p = b.start(t)
	if g = b.until(t, api.Ready); !g.Restored {
		t.Error("after the crash the group's state counts as known")
	}
	if _, err := client.RemoveGroup(ctx, "g1"); err != nil {
		t.Fatal(err)
	}
	if got := b.addresses(t); got != mine {
		t.Errorf("without the group br0 has %s", got)
	}

	// A clean stop gives everything back but the group's file.
	if _, err := client.CreateGroup(ctx, []byte(owned)); err != nil {
		t.Fatal(err)
	}
	if got := p.end(t, unix.SIGTERM); got != "exit status 0" {
		t.Errorf("stopped: %s", got)
	}
	b.expectNotice(t, "STOPPING=1")
	if got := b.addresses(t); got != mine {
		t.Errorf("after the stop br0 has %s", got)
	}
	if links := b.ip(t, "link"); strings.Contains(links, "xdp") {
		t.Errorf("after the stop a program is still there:\n%s", links)
	}
	if _, err := os.Stat(b.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the stop the socket is still there: %v", err)
	}
	b.start(t)
	if g = b.until(t, api.Ready); g.Restored {
		t.Error("after the stop the group, which carried nothing, counts as restored")
	}
	if got := b.addresses(t); got != withGroup {
		t.Errorf("after the last start br0 has %s", got)
	}
}

// A host that has an address keeps it, even if a group file names the address.
func TestALivingHostKeepsItsIP(t *testing.T) {
	b := newBox(t)
	b.start(t)
	client := client.New(b.socket)
	if _, err := b.hosts[1].Exec("ip", "addr", "add", "10.77.0.50/24", "dev", "p0"); err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]string{
		"10.77.0.50":  "line 2: ip 10.77.0.50 is taken (",
		"10.77.0.254": "line 2: ip 10.77.0.254 is this box's own; write an address that no host has, or use addressing: switch-ip",
	} {
		text := strings.Replace(owned, "10.77.0.100", ip, 1)
		if _, err := client.CreateGroup(t.Context(), []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", ip, err, want)
		}
	}
	if got := b.addresses(t); got != "10.77.0.254/24" {
		t.Errorf("br0 has %s", got)
	}
}

// A daemon whose groups carry nothing leaves the CPU to others.
func TestAnIdleDaemonUsesHardlyAnyCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("short tests run under the race detector, which takes CPU time of its own")
	}
	b := newBox(t)
	p := b.start(t)
	if _, err := client.New(b.socket).CreateGroup(t.Context(), []byte(owned)); err != nil {
		t.Fatal(err)
	}
	// A worker that polls without pause takes the whole span; slow machines have needed 52 ms.
	const span, most = 3 * time.Second, 75 * time.Millisecond
	var used time.Duration
	for range 3 { // other programs slow the daemon down, for instance when they take its place in the caches
		from := cpuTime(t, p.Process.Pid)
		<-time.After(span) // over which its CPU time is measured
		if used = cpuTime(t, p.Process.Pid) - from; used <= most {
			return
		}
		t.Logf("%v in %v", used, span)
	}
	t.Errorf("it used %v in %v, want %v at most", used, span, most)
}

// cpuTime is what a process has used so far.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	const schedulerClock = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|schedulerClock, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// The page people look at when nothing arrives names counters; every one has to be there.
func TestTroubleshootNamesCountersThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshoot.md")
	if err != nil {
		t.Fatal(err)
	}
	reference, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "## When something does not arrive")
	section, _, _ = strings.Cut(section, "\n## ")
	section = strings.ReplaceAll(section, "`switch-ip`", "") // an addressing
	named := regexp.MustCompile("`[a-z]+(?:[-_][a-z]+)+`").FindAllString(section, -1)
	if !found || len(named) < 10 {
		t.Fatalf("the page names %v", named)
	}
	b := newBox(t)
	b.start(t)
	client := client.New(b.socket)
	stats, err := client.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ports, err := client.Ports(t.Context())
	if err != nil || len(ports.Ports) == 0 {
		t.Fatal(ports, err)
	}
	maps.Copy(stats.Counters, ports.Ports[0].Kernel)
	for _, name := range named {
		if _, there := stats.Counters[strings.Trim(name, "`")]; !there {
			t.Errorf("there is no counter %s", name)
		}
	}
	_, table, _ := strings.Cut(string(reference), "\n## Every counter\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for name := range stats.Counters {
		if !strings.Contains(table, "| `"+name+"` | ") {
			t.Errorf("Every counter does not have %s", name)
		}
	}
	if rows := strings.Count(table, "\n| `"); rows != len(stats.Counters) {
		t.Errorf("Every counter has %d rows for %d counters", rows, len(stats.Counters))
	}
}

// perftest's clients connect by TCP: what listens for them is in the daemon's namespace, on an IP
// that the daemon owns.
func TestAPerftestClientFindsItsHelper(t *testing.T) {
	b := newBox(t)
	config, err := os.OpenFile(b.config, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = config.WriteString("perftest: [{groupIP: 10.77.0.101, receivers: 10.77.0.2}]\n")
	}
	if err == nil {
		err = config.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := b.start(t)
	client := client.New(b.socket)
	if _, err := client.PerftestUp(t.Context(), api.PerftestRequest{GroupIP: "10.77.0.99", Receivers: []string{"10.77.0.1", "10.77.0.2"}}); err != nil {
		t.Fatal(err)
	}
	var list api.Perftests
	testlab.Eventually(t, 2*testlab.Patience, "both are up", func() (done bool) {
		if list, err = client.Perftests(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(list.Perftests) == 2
	}, func() string { return fmt.Sprintf("up are %+v", list) })
	for _, groupIP := range []string{"10.77.0.99", "10.77.0.101"} {
		err := b.hosts[0].Do(func() error {
			conn, err := net.DialTimeout("tcp4", groupIP+":18515", 5*time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if got := p.end(t, unix.SIGTERM); got != "exit status 0" {
		t.Errorf("stopped: %s", got)
	}
	if got := b.addresses(t); strings.Contains(got, "10.77.0.99") || strings.Contains(got, "10.77.0.101") {
		t.Errorf("after the stop br0 has %s", got)
	}
}
