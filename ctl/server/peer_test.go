package server

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCredentialsDecide(t *testing.T) {
	const group = 700
	stranger := uint32(os.Geteuid()) + 1000
	for _, c := range []struct {
		name           string
		cred           unix.Ucred
		groups         []uint32
		change, secret bool
	}{
		{"root", unix.Ucred{Uid: 0, Gid: 0}, nil, true, true},
		{"the daemon's own user", unix.Ucred{Uid: uint32(os.Geteuid()), Gid: 5}, nil, true, true},
		{"first group", unix.Ucred{Uid: stranger, Gid: group}, nil, true, false},
		{"another of its groups", unix.Ucred{Uid: stranger, Gid: 5}, []uint32{6, group}, true, false},
		{"a stranger", unix.Ucred{Uid: stranger, Gid: 5}, []uint32{6, 7}, false, false},
	} {
		if p := allow(c.cred, c.groups, group); p.change != c.change || p.secretsToo != c.secret {
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
	if a, b := net.Pipe(); s.accessOf(a).change {
		t.Error("a connection without credentials may change")
	} else {
		a.Close()
		b.Close()
	}
}
