package server

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
)

func TestCredentialsDecide(t *testing.T) {
	const group, self, stranger = 700, 900, 1000
	for _, c := range []struct {
		name           string
		cred           unix.Ucred
		groups         []uint32
		change, secret bool
	}{
		{"root", unix.Ucred{Uid: 0, Gid: 0}, nil, true, true},
		{"the daemon's own user", unix.Ucred{Uid: self, Gid: 5}, nil, true, true},
		{"first group", unix.Ucred{Uid: stranger, Gid: group}, nil, true, false},
		{"another of its groups", unix.Ucred{Uid: stranger, Gid: 5}, []uint32{6, group}, true, false},
		{"a stranger", unix.Ucred{Uid: stranger, Gid: 5}, []uint32{6, 7}, false, false},
	} {
		if p := (&Server{Config: Config{Group: group}}).allow(c.cred, c.groups, self); p.stranger || p.change != c.change || p.secretsToo != c.secret {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

func TestTheKernelNamesThePeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	s := &Server{Config: Config{Group: os.Getegid()}}
	if p := s.accessOf(near); p.uid != os.Getuid() || p.pid != os.Getpid() || !p.change {
		t.Errorf("%+v", p)
	}
	raw, err := near.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		got, err := peerGroups(int(fd))
		if err != nil || len(got) != len(want) {
			t.Errorf("groups %v, %v; the process has %v", got, err, want)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// If the kernel does not name the peer of a connection, the connection may only read.
func TestAPeerThatTheKernelDoesNotNameIsNobody(t *testing.T) {
	dir := t.TempDir()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "d"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	closed, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "c"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, conn := range map[string]net.Conn{
		"in memory": a, "without a socket": &net.UnixConn{}, "without a peer": datagrams, "closed": closed,
	} {
		if p := new(Server).accessOf(conn); p != (peer{uid: -1}) {
			t.Errorf("a connection %s has a peer %+v", name, p)
		}
	}
}

// The kernel names every group of the peer, however many there are.
func TestPeersWithManyGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs CAP_SETGID, to have other groups; run it with sudo")
	}
	for _, n := range []int{0, 1, 64, 65, 1000} {
		want := make([]uint32, n)
		for i := range want {
			want[i] = uint32(5000 + i)
		}
		var ends [2]int
		done := make(chan error)
		go func() { // on a thread that ends with it, because it has other groups than the rest
			runtime.LockOSThread()
			_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(n), uintptr(unsafe.Pointer(unsafe.SliceData(want))), 0)
			var err error
			if ends, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); errno != 0 {
				err = errno
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got, err := peerGroups(ends[0]); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d groups: %v, %v", n, got, err)
		}
		unix.Close(ends[0])
		unix.Close(ends[1])
	}
}

// Hiding R_Keys from one peer must not hide them from the next one.
func TestHidingKeysChangesNothing(t *testing.T) {
	key := api.Hex(0x77)
	regions := func() []api.Region { return []api.Region{{RKey: &key}} }
	g := api.Group{Memory: regions(), Members: []api.Member{{Regions: regions()}}}
	if hidden := (peer{change: true}).hide(g); hidden.Memory[0].RKey != nil || hidden.Members[0].Regions[0].RKey != nil {
		t.Errorf("not hidden: %+v", hidden)
	}
	if g.Memory[0].RKey == nil || g.Members[0].Regions == nil || g.Members[0].Regions[0].RKey == nil {
		t.Errorf("gone: %+v", g)
	}
}
