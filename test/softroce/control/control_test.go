package control

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pair starts a server, which runs commands on this machine, and returns a client of it.
func pair(t *testing.T) (*Client, net.Conn) {
	t.Helper()
	far, near := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(far, Hello{Kernel: "test"}) }()
	c := NewClient(near)
	t.Cleanup(func() {
		c.Close()
		far.Close()
		<-served
	})
	return c, far
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustStart(t *testing.T, c *Client, args ...string) *Process {
	t.Helper()
	p, err := c.Start(Command{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOutputAndExitStatusArriveWhole(t *testing.T) {
	c, _ := pair(t)
	ctx := testContext(t)
	p := mustStart(t, c, "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; echo oops >&2; exit 7")
	exit, err := p.Wait(ctx)
	if err != nil || exit != (Exit{Code: 7}) {
		t.Fatalf("exit %v, error %v", exit, err)
	}
	if got := p.Stdout.String(); got != strings.Repeat("x", 200000) {
		t.Errorf("stdout holds %d bytes", len(got))
	}
	if got := p.Stderr.String(); got != "oops\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestConversationOverStdin(t *testing.T) {
	c, _ := pair(t)
	ctx := testContext(t)
	p := mustStart(t, c, "cat")
	for _, word := range []string{"one", "two"} {
		if _, err := io.WriteString(p, word+"\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := p.Stdout.ReadLine(ctx); err != nil || line != word {
			t.Fatalf("echoed %q, error %v", line, err)
		}
	}
	if err := p.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
		t.Fatalf("exit %v, error %v", exit, err)
	}
	if _, err := p.Stdout.ReadLine(ctx); err != io.EOF {
		t.Fatalf("after the end: %v", err)
	}
}

func TestSignalReachesChildren(t *testing.T) {
	c, _ := pair(t)
	ctx := testContext(t)
	p := mustStart(t, c, "sh", "-c", "sleep 600 & echo started; wait")
	if _, err := p.Stdout.ReadLine(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The sleeping child holds stdout open. So Wait returns only if the child has ended too.
	if exit, err := p.Wait(ctx); err != nil || exit.Signal != "killed" {
		t.Fatalf("exit %v, error %v", exit, err)
	}
}

func TestDeadlineKillsTheProcess(t *testing.T) {
	c, _ := pair(t)
	p := mustStart(t, c, "sleep", "600")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	if exit, err := p.Wait(testContext(t)); err != nil || exit.Signal != "killed" {
		t.Fatalf("exit %v, error %v", exit, err)
	}
}

func TestUnknownCommandSaysWhy(t *testing.T) {
	c, _ := pair(t)
	exit, err := mustStart(t, c, "no-such-command-here").Wait(testContext(t))
	if err != nil || !strings.Contains(exit.Error, "no-such-command-here") {
		t.Fatalf("exit %v, error %v", exit, err)
	}
}

func TestLostGuestEndsEveryWait(t *testing.T) {
	c, far := pair(t)
	ctx := testContext(t)
	p := mustStart(t, c, "cat")
	far.Close()
	if _, err := p.Wait(ctx); !errors.Is(err, ErrLost) {
		t.Fatalf("wait: %v", err)
	}
	if _, err := c.Start(Command{Args: []string{"true"}}); !errors.Is(err, ErrLost) {
		t.Fatalf("start: %v", err)
	}
}

// A guest that reboots says hello again. What ran in it will never exit.
func TestARebootLosesTheProcesses(t *testing.T) {
	far, near := net.Pipe()
	defer far.Close()
	c := NewClient(near)
	defer c.Close()
	ctx := testContext(t)
	greet := func(kernel string) {
		t.Helper()
		if _, err := far.Write(appendFrame(nil, frame{kind: KindHello, payload: mustJSON(Hello{Kernel: kernel})})); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		if hello, err := c.Hello(ctx); err != nil || hello.Kernel != want {
			t.Fatalf("hello %v, %v", hello, err)
		}
	}
	go io.Copy(io.Discard, far)
	greet("first")
	hear("first")
	p := mustStart(t, c, "sleep", "1000")
	greet("second")
	hear("second")
	if _, err := p.Wait(ctx); !errors.Is(err, ErrLost) {
		t.Errorf("the process of the first boot: %v", err)
	}
}
