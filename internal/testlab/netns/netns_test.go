package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
	"golang.org/x/sys/unix"
)

func threadNamespace(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink(threadNS)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestDoRunsInsideAndLeavesTheCallerOutside(t *testing.T) {
	n := New(t)
	outside := threadNamespace(t)
	var inside string
	if err := n.Do(func() error { inside = threadNamespace(t); return nil }); err != nil {
		t.Fatal(err)
	}
	if inside == outside {
		t.Errorf("Do ran in the caller's namespace %s", inside)
	}
	for range 100 { // on any thread that the scheduler picks
		if now := threadNamespace(t); now != outside {
			t.Fatalf("caller moved from %s to %s", outside, now)
		}
	}
}

func TestDoReturnsTheError(t *testing.T) {
	want := errors.New("inside")
	if err := New(t).Do(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestDoEndsTheCallerWhenTheFunctionEndsItsGoroutine(t *testing.T) {
	n := New(t)
	t.Run("skip inside", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("not skipped")
			}
		}()
		_ = n.Do(func() error { t.SkipNow(); return nil })
		t.Error("the caller went on")
	})
}

func TestCloseRemovesTheName(t *testing.T) {
	var n *NS
	t.Run("scope", func(t *testing.T) {
		n = New(t)
		if _, err := os.Stat(n.path()); err != nil {
			t.Fatal(err)
		}
	})
	if n == nil {
		t.Skip("needs CAP_SYS_ADMIN")
	}
	if _, err := os.Stat(n.path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", n.path(), err)
	}
}

func TestVethCarriesFramesBetweenNamespaces(t *testing.T) {
	a, b := New(t), New(t)
	macs := [2]net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	left, right := Veth(t, a, "p0", b, "p1", VethOptions{MTU: 9000, Queues: 2, MACs: macs})
	if left.MAC.String() != macs[0].String() || right.MAC.String() != macs[1].String() {
		t.Errorf("MACs are %v and %v", left.MAC, right.MAC)
	}
	if err := errors.Join(left.AddAddress("10.0.0.1/24"), right.AddAddress("10.0.0.2/24"),
		left.AddNeighbour("10.0.0.2", right.MAC), right.AddNeighbour("10.0.0.1", left.MAC)); err != nil {
		t.Fatal(err)
	}
	listener := listenUDP(t, b, "10.0.0.2:4791")
	sender := listenUDP(t, a, "10.0.0.1:0")
	sent := make([]byte, 8192) // this is one frame at MTU 9000 only
	if _, err := sender.WriteTo(sent, listener.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := listener.ReadFrom(make([]byte, 9000)); err != nil || n != len(sent) {
		t.Errorf("received %d bytes, %v", n, err)
	}
	link, err := b.Netlink().LinkByName("p1")
	if err != nil {
		t.Fatal(err)
	}
	if got := link.Attrs(); got.MTU != 9000 || got.NumRxQueues != 2 || got.NumTxQueues != 2 {
		t.Errorf("far end: MTU %d, %d RX and %d TX queues", got.MTU, got.NumRxQueues, got.NumTxQueues)
	}
}

// What is sent to an address as soon as a link has it is received.
func TestAnAddressReceivesAtOnce(t *testing.T) {
	a, b := New(t), New(t)
	for _, n := range []*NS{a, b} {
		if err := n.Sysctl("net.ipv6.conf.default.disable_ipv6", "0"); err != nil {
			t.Skipf("needs IPv6: %v", err)
		}
	}
	left, _ := Veth(t, a, "p0", b, "p1", VethOptions{})
	for i := range 50 {
		for _, format := range []string{"10.0.0.%d/24", "fd00::%d/64"} {
			cidr := fmt.Sprintf(format, i+1)
			if err := left.AddAddress(cidr); err != nil {
				t.Fatal(err)
			}
			ip, _, _ := net.ParseCIDR(cidr)
			routes, err := a.Netlink().RouteGet(ip)
			if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
				t.Fatalf("packets to %v are not received: %v, %v", ip, routes, err)
			}
		}
	}
}

func listenUDP(t *testing.T, n *NS, address string) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	if err := n.Do(func() (err error) { conn, err = net.ListenPacket("udp4", address); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestExecRunsInside(t *testing.T) {
	n := New(t)
	output, err := n.Exec("readlink", "/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(output) == threadNamespace(t) {
		t.Error("the command ran in the caller's namespace")
	}
	if _, err := n.Exec("false"); err == nil || !strings.Contains(err.Error(), n.Name()) {
		t.Errorf("a failing command says %v", err)
	}
}

func TestRemoveStaleTakesOnlyWhatDeadProcessesLeft(t *testing.T) {
	n := New(t)
	stale := filepath.Join(Dir, prefix+"stale"+strconv.Itoa(deadPID(t))+"-1")
	if err := os.WriteFile(stale, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(stale) })
	if err := unix.Mount(n.path(), stale, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStale(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", stale, err)
	}
	if _, err := os.Stat(n.path()); err != nil {
		t.Errorf("a living process lost its namespace: %v", err)
	}
}

// deadPID is the PID of a process that has ended and been waited for.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// A test that is interrupted leaves neither its namespace behind, nor a process in it.
func TestAnInterruptedTestLeavesNothingBehind(t *testing.T) {
	if os.Getenv("ROCAST_INTERRUPTED") != "" {
		n := New(t)
		// Its parent ends at once, as that of a program that goes into the background.
		text, err := n.Exec("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
		if err != nil {
			t.Fatal(err)
		}
		inside := strings.TrimSpace(text)
		dir, err := os.MkdirTemp("", "rcn")
		if err != nil {
			t.Fatal(err)
		}
		RemoveAtSignal(dir)
		outside := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait") // the shell has a child, too
		line, err := outside.StdoutPipe()
		if err == nil {
			err = outside.Start()
		}
		var below int
		if _, scan := fmt.Fscan(line, &below); err != nil || scan != nil {
			t.Fatal(err, scan)
		}
		fmt.Printf("\nstarted %s %s %s %d %d\n", n.Name(), dir, inside, outside.Process.Pid, below)
		_ = outside.Wait()
		select {} // until the signal has ended this process
	}
	New(t) // skips where that is not permitted
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			if signal.Ignored(s) {
				t.Skip("this process was started to ignore the signal, and so are those that it starts")
			}
			child := exec.Command("/proc/self/exe", "-test.run=^TestAnInterruptedTestLeavesNothingBehind$")
			child.Env = append(os.Environ(), "ROCAST_INTERRUPTED=1")
			child.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
			out, err := child.StdoutPipe()
			if err == nil {
				err = child.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var name, dir string
			var pids [3]int
			for lines := bufio.NewScanner(out); name == "" && lines.Scan(); {
				_, _ = fmt.Sscanf(lines.Text(), "started %s %s %d %d %d", &name, &dir, &pids[0], &pids[1], &pids[2])
			}
			if _, err := os.Stat(filepath.Join(Dir, name)); name == "" || err != nil {
				t.Fatalf("it has not started: %q, %v", name, err)
			}
			if err := child.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait()
			if ended := child.ProcessState.Sys().(syscall.WaitStatus); !ended.Signaled() || ended.Signal() != s {
				t.Errorf("%v: it ended with %v", s, child.ProcessState)
			}
			if _, err := os.Stat(filepath.Join(Dir, name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v: %s is left: %v", s, name, err)
			}
			if _, err := os.Stat(dir); dir == "" || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v: %s is left: %v", s, dir, err)
			}
			for _, pid := range pids {
				testlab.Eventually(t, testlab.Patience, fmt.Sprintf("%v: process %d has ended", s, pid), func() bool {
					stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					return err != nil || strings.Contains(string(stat), ") Z ") // nobody waits for it any more
				}, nil)
			}
		})
	}
}

// A test that was started to ignore a signal, as in the background of a script, goes on when the
// signal comes, and another signal still ends it.
func TestAnIgnoredSignalStaysIgnored(t *testing.T) {
	if os.Getenv("ROCAST_IGNORES") != "" {
		n := New(t)
		testlab.Must(t, unix.Kill(os.Getpid(), unix.SIGINT))
		if _, err := n.Exec("true"); err != nil {
			t.Fatal(err)
		}
		testlab.Must(t, unix.Kill(os.Getpid(), unix.SIGTERM))
		select {} // until the signal has ended this process
	}
	New(t) // skips where that is not permitted
	ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
	defer cancel()
	child := exec.CommandContext(ctx, "sh", "-c", "trap '' INT; exec /proc/"+strconv.Itoa(os.Getpid())+"/exe -test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), "ROCAST_IGNORES=1")
	out, err := child.CombinedOutput()
	ended := child.ProcessState.Sys().(syscall.WaitStatus)
	if ctx.Err() != nil || !ended.Signaled() || ended.Signal() != unix.SIGTERM {
		t.Errorf("it ended with %v, %v\n%s", err, child.ProcessState, out)
	}
}
