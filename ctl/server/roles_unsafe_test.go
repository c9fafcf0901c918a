package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
)

// Groups and users that no machine of a test has.
const (
	operators, monitors = 64001, 64002
	someUser            = 64100
)

// dialAs connects to a socket as a user with groups. The kernel tells the daemon who that is.
func dialAs(socket string, uid, gid int, groups ...uint32) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with its user
		for _, call := range []func() syscall.Errno{
			func() syscall.Errno {
				_, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
				return errno
			},
			func() syscall.Errno {
				_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid))
				return errno
			},
			func() syscall.Errno {
				_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
				return errno
			},
		} {
			if errno := call(); errno != 0 {
				err = errno
				return
			}
		}
		conn, err = net.Dial("unix", socket)
	}()
	<-done
	return conn, err
}

// as is a client of a user; each request has a connection of its own.
func (c caller) as(uid, gid int, groups ...uint32) *client.Client {
	return client.Over(c.socket, func(context.Context) (net.Conn, error) { return dialAs(c.socket, uid, gid, groups...) })
}

// openToAll runs a server whose socket any user may reach, with groups for its roles.
func openToAll(t *testing.T, readers ...int) caller {
	t.Helper()
	testlab.NeedRoot(t)
	s, _ := newServer(t)
	s.Group, s.Readers = operators, readers
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return s.onSocketAt(t, filepath.Join(dir, "run", "rocast.sock"))
}

// Everything that a program may ask for, by method and path.
func TestWhoMayDoWhat(t *testing.T) {
	c := openToAll(t, monitors)
	if _, err := c.as(0, 0).CreateGroup(t.Context(), []byte(g1)); err != nil {
		t.Fatal(err)
	}
	for _, u := range []struct {
		name                  string
		client                *client.Client
		read, change, secrets bool
	}{
		{"root", c.as(0, 0), true, true, true},
		{"an operator", c.as(someUser, operators), true, true, false},
		{"an operator by another group", c.as(someUser, someUser, 7, operators), true, true, false},
		{"a monitor", c.as(someUser, monitors), true, false, false},
		{"a monitor by another group", c.as(someUser, someUser, monitors), true, false, false},
		{"a stranger", c.as(someUser, someUser, 7), false, false, false},
	} {
		ctx := t.Context()
		asked := func(what string, may bool, err error) {
			t.Helper()
			refused := client.KindOf(err) == api.Forbidden
			if refused == may {
				t.Errorf("%s, %s: %v", u.name, what, err)
			}
			want := "user 64100 may only read; run as root, or join the group that socketGroup in rocastd.yaml names"
			if !u.read {
				want = "user 64100 may not use the API; run as root, or join a group that readGroup or socketGroup in rocastd.yaml names"
			}
			if refused && err.Error() != want {
				t.Errorf("%s, %s:\ngot  %v\nwant %s", u.name, what, err, want)
			}
		}
		g, err := u.client.Group(ctx, "g1")
		asked("show", u.read, err)
		if err == nil && (g.Memory[0].RKey != nil) != u.secrets {
			t.Errorf("%s sees R_Keys: %+v", u.name, g.Memory)
		}
		_, err = u.client.Groups(ctx)
		asked("ls", u.read, err)
		_, err = u.client.Status(ctx)
		asked("status", u.read, err)
		_, err = u.client.Stats(ctx)
		asked("stats", u.read, err)
		_, err = u.client.EventsAfter(ctx, api.Cursor{}, "", 0)
		asked("events", u.read, err)
		_, err = u.client.CreateGroup(ctx, []byte("name: g9\n"))
		asked("create", u.change, err)
		_, err = u.client.UpdateGroup(ctx, "g1", []byte(g1))
		asked("update", u.change, err)
		_, err = u.client.RemoveGroup(ctx, "none")
		asked("rm", u.change, err)
		_, err = u.client.Confirm(ctx, "g1", api.Confirmation{})
		asked("confirm", u.change, err)
		_, err = u.client.ChangeRegions(ctx, "g1", api.RegionChange{})
		asked("regions", u.change, err)
		_, err = u.client.PerftestUp(ctx, api.PerftestRequest{})
		asked("perftest up", u.change, err)
		_, err = u.client.PerftestDown(ctx, "10.0.0.1")
		asked("perftest down", u.change, err)
		_, err = u.client.CMUp(ctx, api.CMRequest{})
		asked("cm up", u.change, err)
		_, err = u.client.CMDown(ctx, "10.0.0.1")
		asked("cm down", u.change, err)
		_, err = u.client.Reload(ctx)
		asked("reload", u.change, err)
		_, err = u.client.SetLog(ctx, api.Log{Level: "nonsense"})
		asked("log level", u.change, err)
	}
}

// Without readers the mode of the socket keeps everyone out but the operators.
func TestWithoutReadersTheSocketIsClosedToOthers(t *testing.T) {
	c := openToAll(t)
	if _, err := c.as(someUser, someUser).Groups(t.Context()); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v", err)
	}
	if _, err := c.as(someUser, operators).Groups(t.Context()); err != nil {
		t.Error(err)
	}
}

// A peer that the kernel does not name is a stranger where there are readers.
func TestAnUnnamedPeerIsAStranger(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for readers, want := range map[int]bool{0: false, 1: true} {
		s := &Server{Config: Config{Readers: make([]int, readers)}}
		if p := s.accessOf(near); p.stranger != want || p.change {
			t.Errorf("%d groups of readers: %+v", readers, p)
		}
	}
}
