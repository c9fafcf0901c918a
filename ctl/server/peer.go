package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
)

// peer is the process at the other end of a connection, with its rights. The zero peer may only
// read.
type peer struct {
	uid, pid   int
	change     bool
	secretsToo bool
}

func (p peer) String() string { return fmt.Sprintf("uid %d pid %d", p.uid, p.pid) }

func (p peer) mayChange() error {
	if p.change {
		return nil
	}
	return api.Errorf(api.Forbidden, "user %d may not change groups; run as root, or join the socket's group", p.uid)
}

// hide removes the R_Keys from a group unless the peer may see them.
func (p peer) hide(g api.Group) api.Group {
	if p.secretsToo {
		return g
	}
	g.Memory = withoutKeys(g.Memory)
	g.Members = slices.Clone(g.Members)
	for i := range g.Members {
		g.Members[i].Regions = withoutKeys(g.Members[i].Regions)
	}
	return g
}

func withoutKeys(regions []api.Region) []api.Region {
	regions = slices.Clone(regions)
	for i := range regions {
		regions[i].RKey = nil
	}
	return regions
}

type peerKey struct{}

func withPeer(ctx context.Context, p peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

func peerOf(r *http.Request) peer {
	p, _ := r.Context().Value(peerKey{}).(peer)
	return p
}

// accessOf asks the kernel for the identity of the peer. A peer that the kernel does not identify
// may only read.
func (s *Server) accessOf(conn net.Conn) peer {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return peer{uid: -1}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return peer{uid: -1}
	}
	p := peer{uid: -1}
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		groups, err := peerGroups(int(fd))
		if err != nil {
			groups = nil // kernels before 4.13 return only the first group
		}
		p = allow(*cred, groups, s.Group)
	})
	return p
}

// allow returns the rights of a peer. The credentials are those at the time when the peer
// connected.
func allow(cred unix.Ucred, groups []uint32, group int) peer {
	p := peer{uid: int(cred.Uid), pid: int(cred.Pid)}
	p.secretsToo = cred.Uid == 0 || int(cred.Uid) == os.Geteuid()
	p.change = p.secretsToo || int(cred.Gid) == group || slices.Contains(groups, uint32(group))
	return p
}
