package server

import (
	"context"
	"errors"
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
	name       string // in the certificate of a program on another machine
	change     bool
	secretsToo bool
	stranger   bool // it may not even read
}

func (p peer) String() string {
	if p.name != "" {
		return "the program " + p.name
	}
	return fmt.Sprintf("uid %d pid %d", p.uid, p.pid)
}

func (p peer) mayChange() error {
	if p.change {
		return nil
	}
	if p.name != "" {
		return api.Errorf(api.Forbidden, "the program %s may only read; name it in clients: instead of readClients: in rocastd.yaml", p.name)
	}
	return api.Errorf(api.Forbidden, "user %d may only read; run as root, or join the group that socketGroup in rocastd.yaml names", p.uid)
}

// admit answers a stranger by an error, and passes all other requests on.
func admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := peerOf(r); p.stranger {
			writeError(w, api.Errorf(api.Forbidden, "user %d may not use the API; run as root, or join a group that readGroup or socketGroup "+
				"in rocastd.yaml names", p.uid))
			return
		}
		next.ServeHTTP(w, r)
	})
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

// hideRegions removes the R_Keys from regions, which belong to this request alone, unless the peer
// may see them.
func (p peer) hideRegions(list api.Regions) api.Regions {
	if p.secretsToo {
		return list
	}
	for i := range list.Regions {
		r := &list.Regions[i]
		r.RKey = nil
		for k := range r.At {
			r.At[k].RKey = nil
		}
	}
	return list
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

// accessOf returns the rights of the peer. A peer that the kernel does not identify may only read.
func (s *Server) accessOf(conn net.Conn) peer {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return peer{uid: nobody, stranger: len(s.Readers) > 0}
	}
	cred, groups, err := identify(socket)
	if err != nil {
		return peer{uid: nobody, stranger: len(s.Readers) > 0}
	}
	return s.allow(*cred, groups, os.Geteuid())
}

// nobody is the uid of a peer that the kernel does not identify.
const nobody = -1

// identify asks the kernel for the credentials of the peer, as they were when the peer connected.
func identify(socket *net.UnixConn) (cred *unix.Ucred, groups []uint32, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var credErr, groupsErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		groups, groupsErr = peerGroups(int(fd))
	})
	return cred, groups, errors.Join(err, credErr, groupsErr)
}

// allow returns the rights of a peer in a daemon that runs as user self.
func (s *Server) allow(cred unix.Ucred, groups []uint32, self int) peer {
	in := func(group int) bool { return int(cred.Gid) == group || slices.Contains(groups, uint32(group)) }
	p := peer{uid: int(cred.Uid), pid: int(cred.Pid)}
	p.secretsToo = cred.Uid == 0 || int(cred.Uid) == self
	p.change = p.secretsToo || in(s.Group)
	p.stranger = !p.change && len(s.Readers) > 0 && !slices.ContainsFunc(s.Readers, in)
	return p
}
