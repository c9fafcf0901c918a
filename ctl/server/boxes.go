package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/neighbour"
)

// Branches is what the server for other boxes needs from a ctl.Controller. upper is the box that
// asks.
type Branches interface {
	PutBranch(ctx context.Context, upper, name string, b api.Branch) (api.BranchAnswer, error)
	DeleteBranch(ctx context.Context, upper, name string, version uint64) error
	BranchTree(ctx context.Context, upper, name string) (api.Tree, error)
	BranchChanged(lower, name string) error
}

// BoxEdges is what the server for other boxes needs of a ctl.Controller for those that are edges.
type BoxEdges interface {
	AskEdgeOf(ctx context.Context, box string, q api.EdgeQuestion) (api.EdgeAnswer, error)
}

const (
	// mostOfAPeer bounds the connections from one address, and mostOfPeers those from all. Before a
	// certificate is verified it is not known who connects, so one address cannot keep all others
	// out, and all together cannot take the daemon's file descriptors. A box has at
	// most an eighth of those from its address; the others are for programs, and for boxes behind
	// the same address.
	mostOfAPeer = 8 * neighbour.MostAtOnce
	mostOfPeers = 4096
)

// NewForBoxes returns a Server for other boxes and for programs, with a certificate that it
// verifies. Boxes may only ask for branches. The programs that a names as clients may
// ask for all that the server programs answers, as a user in its socket's group; those that it
// names as readClients may read, as a user in its readGroup.
func NewForBoxes(c Branches, e BoxEdges, log *zap.Logger, programs *Server, a neighbour.API) *Server {
	s := unrouted(Config{Log: log, Bounds: programs.Bounds})
	s.http.Handler = s.boxRoutes(c, e, programs, a)
	s.bound = func(l net.Listener) net.Listener {
		return neighbour.NewListener(crowdOf(l, mostOfAPeer, mostOfPeers, s.met(bounds.BoxConnections)), a.Files)
	}
	return s
}

// ListenForBoxes listens for other boxes. The address need not be on an interface yet.
func ListenForBoxes(at netip.AddrPort) (net.Listener, error) {
	l, err := listenFreely(at)
	if err != nil {
		return nil, fmt.Errorf("listen for other boxes on %v: %w", at, err)
	}
	return l, nil
}

// listenFreely listens on an address that need not be on an interface yet: at boot, addresses may
// appear after the daemon starts.
func listenFreely(at netip.AddrPort) (net.Listener, error) {
	free := func(_, _ string, conn syscall.RawConn) (err error) {
		failed := conn.Control(func(fd uintptr) { // the option serves IPv6 too
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		})
		return errors.Join(failed, err)
	}
	return (&net.ListenConfig{Control: free}).Listen(context.Background(), "tcp", at.String())
}

// branchResources is resources for other boxes.
func (s *Server) branchResources(c Branches, e BoxEdges) map[string]map[string]handler {
	return map[string]map[string]handler{api.BranchesPath + "/{name}": {
		http.MethodPut:    func(r *http.Request) (any, error) { return s.putBranch(r, c) },
		http.MethodDelete: func(r *http.Request) (any, error) { return s.deleteBranch(r, c) },
		http.MethodPost: func(r *http.Request) (any, error) {
			lower, err := boxOf(r)
			if err != nil {
				return nil, err
			}
			return api.Told{Name: r.PathValue("name")}, c.BranchChanged(lower, r.PathValue("name"))
		},
		http.MethodGet: func(r *http.Request) (any, error) {
			upper, err := boxOf(r)
			if err != nil {
				return nil, err
			}
			return c.BranchTree(r.Context(), upper, r.PathValue("name"))
		},
	}, api.EdgePath: {
		http.MethodPost: func(r *http.Request) (any, error) {
			lower, err := boxOf(r)
			if err != nil {
				return nil, err
			}
			return s.answerEdge(r, func(ctx context.Context, q api.EdgeQuestion) (api.EdgeAnswer, error) {
				return e.AskEdgeOf(ctx, lower, q)
			})
		},
	}}
}

func (s *Server) boxRoutes(c Branches, e BoxEdges, programs *Server, a neighbour.API) http.Handler {
	mux := http.NewServeMux()
	for path, methods := range s.branchResources(c, e) {
		mux.Handle(path, resource(methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		name, err := boxOf(r)
		change := slices.Contains(a.Clients, name)
		if err == nil && !change && !slices.Contains(a.ReadClients, name) {
			err = api.Errorf(api.Forbidden, "certificate %q is named by neither clients: nor readClients: of api: on this box, so it has no answer to %s; "+
				"add %[1]s to one of them", name, r.URL.EscapedPath())
		}
		if err != nil {
			writeError(w, err)
			return
		}
		p := peer{uid: nobody, name: name, change: change}
		programs.http.Handler.ServeHTTP(w, r.WithContext(withPeer(r.Context(), p)))
	})
	return mux
}

// boxOf returns the name of the box that asks.
func boxOf(r *http.Request) (string, error) {
	name, err := neighbour.PeerName(r.TLS)
	if err != nil {
		return "", api.Errorf(api.Forbidden, "%v", err)
	}
	return name, nil
}

func (s *Server) putBranch(r *http.Request, c Branches) (any, error) {
	upper, err := boxOf(r)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	return withBody(s, r, "the branch", "no group needs; split the group", func(ctx context.Context, body []byte) (api.BranchAnswer, error) {
		var b api.Branch
		if err := json.Unmarshal(body, &b); err != nil {
			return api.BranchAnswer{}, api.Errorf(api.BadRequest, "the branch cannot be read (%v); run the same version of rocast on "+
				"both boxes", err)
		}
		answer, err := c.PutBranch(ctx, upper, name, b)
		if err != nil {
			log := s.Log.With(zap.String("group", name), zap.String("upper", upper))
			if _, inFile := mistake(err); !inFile {
				log = log.With(zap.Error(err))
			}
			log.Warn("branch refused")
		}
		return answer, err
	})
}

func (s *Server) deleteBranch(r *http.Request, c Branches) (any, error) {
	upper, err := boxOf(r)
	if err != nil {
		return nil, err
	}
	version, err := neededIn(r.URL.Query(), "version", math.MaxUint64)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	return api.Removed{Name: name}, c.DeleteBranch(r.Context(), upper, name, version)
}
