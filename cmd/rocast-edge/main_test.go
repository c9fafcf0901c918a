package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/cmd/rocast-edge/agent"
	"github.com/rocast/rocast/internal/testlab"
)

// Wrong arguments have a status of their own, by which systemd knows that another start would fail
// in the same way, and a sentence that says what to write.
func TestWrongArguments(t *testing.T) {
	for args, want := range map[string]string{
		"run":                             "no box is named: write --box ADDRESS:PORT, as hosts: listen has it in the box's rocastd.yaml",
		"run --box 10.77.3.254":           "--box 10.77.3.254: write ADDRESS:PORT, as hosts: listen has it in the box's rocastd.yaml",
		"run --box [fd77::1]:1 --ip eth0": "--ip eth0: write an address of an RDMA device",
		"run --box 1.2.3.4:5 --wire eth0": "--wire eth0: write --ip ADDRESS too, of the host that is behind this machine",
		"run --box 1.2.3.4:5 --attach tc": "--attach tc: write one of these: xdp native frags, xdp native, tcx, tc clsact, xdp generic",
		"run eth0":                        `unknown command "eth0" for "rocast-edge run"`,
		"stop":                            `unknown command "stop" for "rocast-edge"`,
		"status --socket x":               "unknown flag: --socket",
	} {
		var stdout, stderr bytes.Buffer
		exit := execute(t.Context(), strings.Fields(args), &stdout, &stderr)
		if got := strings.TrimSpace(stderr.String()); exit != exitUsage || got != "rocast-edge: "+want {
			t.Errorf("rocast-edge %s: exit status %d, %q, want %q", args, exit, got, want)
		}
	}
}

// Without a program that is pinned there is nothing to show or to remove, and that is no error.
func TestNothingIsThere(t *testing.T) {
	none := t.TempDir() + "/none"
	for command, want := range map[string]string{"status": "no program is attached\nrocast-edge run has not been started\n", "remove": ""} {
		var stdout, stderr bytes.Buffer
		if exit := execute(t.Context(), []string{command, "--pins", none, "--state", none}, &stdout, &stderr); exit != exitOK || stdout.String() != want {
			t.Errorf("rocast-edge %s: exit status %d, %q, %q", command, exit, &stdout, &stderr)
		}
	}
}

// Before systemd takes it for started, status says what it waits for. The socket of systemd is full
// here, so run waits there. No interface has the IP, so nothing is attached afterwards.
func TestStatusBeforeTheFirstAnswer(t *testing.T) {
	dir := t.TempDir()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := fill(socket); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", dir+"/notify")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	at := []string{"--pins", dir + "/none", "--state", dir + "/state"}
	go func() {
		var output bytes.Buffer
		ended <- execute(ctx, append(at, "run", "--box", "192.0.2.1:7472", "--ip", "192.0.2.2"), &output, &output)
	}()
	var status bytes.Buffer
	testlab.Eventually(t, testlab.Patience, "status shows the box", func() bool {
		status.Reset()
		return execute(t.Context(), append(at, "status"), &status, &status) == exitOK && strings.Contains(status.String(), "box 192.0.2.1:7472")
	}, status.String)
	if strings.Contains(status.String(), "has not been started") {
		t.Errorf("status says %q", &status)
	}
	cancel()
	go func() { // systemd reads
		for buffer := make([]byte, 99); ; {
			if _, err := socket.Read(buffer); err != nil {
				return
			}
		}
	}()
	<-ended
}

// fill fills the queue of a socket, so that the next sender waits.
func fill(socket *net.UnixConn) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for err == nil {
		err = unix.Sendto(fd, []byte("full"), 0, &unix.SockaddrUnix{Name: socket.LocalAddr().String()})
	}
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}

// Without --ip the IP is known when the box has been reached.
func TestStatusBeforeTheIPIsKnown(t *testing.T) {
	at := paths{pins: t.TempDir() + "/none", state: t.TempDir() + "/state"}
	at.write(agent.New(agent.Config{Boxes: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7472")}}, at.pins, nil).State())
	var out bytes.Buffer
	if err := at.status(&out); err != nil {
		t.Fatal(err)
	}
	if want := "box 192.0.2.1:7472  -  -  has not answered yet\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want %q", &out, want)
	}
}

func TestTheManPage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if exit := execute(t.Context(), []string{"man"}, &stdout, &stderr); exit != exitOK || !strings.HasPrefix(stdout.String(), `.TH ROCAST-EDGE 8 "" `) {
		t.Errorf("exit status %d, %.100q, %q", exit, &stdout, &stderr)
	}
}
