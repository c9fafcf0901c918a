package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
)

const (
	// mostOfAHost bounds the connections of one host, and mostOfHosts those of all: one host cannot
	// keep all others out, and all together cannot take the daemon's file descriptors.
	mostOfAHost = 256
	mostOfHosts = 4096
	// maxHostRequest bounds the body of a question: one queue pair with its regions.
	maxHostRequest = 4 << 10
	// maxEdgeRequest bounds that of an edge, which may name the mappings that it cannot load.
	maxEdgeRequest = 16 << 10
)

// Hosts is what the server for hosts needs from a hosts.Hosts.
type Hosts interface {
	Join(ctx context.Context, host netip.Addr, name string, request api.HostRequest, seen string) (api.HostGroup, error)
	Leave(ctx context.Context, host netip.Addr, name string) error
	End(ctx context.Context, host netip.Addr, name string, notify bool) error
}

// Edges is what the server for hosts needs of a ctl.Controller for their edges.
type Edges interface {
	AskEdge(ctx context.Context, host netip.Addr, q api.EdgeQuestion) (api.EdgeAnswer, error)
}

// NewForHosts returns a Server for programs on hosts. A program speaks for the IP from which its
// connection comes, and for no other.
func NewForHosts(h Hosts, e Edges, log *zap.Logger, met *bounds.Book) *Server {
	s := unrouted(Config{Log: log, Bounds: met})
	s.bound = func(l net.Listener) net.Listener {
		return crowdOf(l, mostOfAHost, mostOfHosts, s.met(bounds.HostConnections))
	}
	mux := http.NewServeMux()
	for path, methods := range s.hostResources(h, e) {
		mux.Handle(path, resource(methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, api.Errorf(api.NotFound, "there is no %s for hosts; the paths begin with %s or %s", r.URL.EscapedPath(), api.HostsPath, api.EdgePath))
	})
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "" && !api.IsAddress(r.Host) { // a web site whose name leads here
			writeError(w, api.Errorf(api.Forbidden, "%.80q is not an address of this box; ask it by its address", r.Host))
			return
		}
		mux.ServeHTTP(w, r)
	})
	return s
}

// ListenForHosts listens for hosts. The address need not be on an interface yet.
func ListenForHosts(at netip.AddrPort) (net.Listener, error) {
	l, err := listenFreely(at)
	if err != nil {
		return nil, fmt.Errorf("listen for hosts on %v: %w", at, err)
	}
	return l, nil
}

func (s *Server) hostResources(h Hosts, e Edges) map[string]map[string]handler {
	return map[string]map[string]handler{api.HostsPath + "/{name}": {
		http.MethodPost:   func(r *http.Request) (any, error) { return s.joinHost(r, h) },
		http.MethodDelete: func(r *http.Request) (any, error) { return s.leaveHost(r, h) },
	}, api.EdgePath: {
		http.MethodPost: func(r *http.Request) (any, error) { return s.askEdge(r, e) },
	}}
}

// maxEdgeWait bounds how long a question of an edge may wait.
const maxEdgeWait = 20 * time.Second

func (s *Server) askEdge(r *http.Request, e Edges) (any, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	if err := needJSON(r); err != nil {
		return nil, err
	}
	return s.answerEdge(r, func(ctx context.Context, q api.EdgeQuestion) (api.EdgeAnswer, error) { return e.AskEdge(ctx, host, q) })
}

// answerEdge answers the question of an edge.
func (s *Server) answerEdge(r *http.Request, ask func(context.Context, api.EdgeQuestion) (api.EdgeAnswer, error)) (any, error) {
	body, err := readBody(r, maxEdgeRequest, "the request", "no edge needs")
	if err != nil {
		return nil, err
	}
	var q api.EdgeQuestion
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, api.Errorf(api.BadRequest, "the question cannot be read: %v", err)
	}
	q.Wait = max(0, min(q.Wait, int(maxEdgeWait/time.Millisecond))) // it also says when an edge is silent
	ctx, cancel := context.WithTimeout(r.Context(), maxEdgeWait)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	return ask(ctx, q)
}

// needJSON refuses a request of another type: a page in a browser of a host may send such requests
// anywhere, without asking.
func needJSON(r *http.Request) error {
	kind := r.Header.Get("Content-Type")
	if is, _, _ := mime.ParseMediaType(kind); is != "application/json" {
		return api.Errorf(api.BadRequest, "the request's Content-Type is %q; write application/json", kind)
	}
	return nil
}

// hostOf returns the IP for which a program may speak.
func hostOf(r *http.Request) (netip.Addr, error) {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap().WithZone(""), err
}

func (s *Server) joinHost(r *http.Request, h Hosts) (any, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	if err := needJSON(r); err != nil {
		return nil, err
	}
	q := r.URL.Query()
	wait, err := uintIn(q, "wait", uint64(api.MaxEventWait/time.Second))
	if err != nil {
		return nil, err
	}
	body, err := readBody(r, maxHostRequest, "the request", "no host needs; write one queue pair")
	if err != nil {
		return nil, err
	}
	var request api.HostRequest
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		// The decoder's error may quote an R_Key.
		return nil, api.Errorf(api.BadRequest, "the request cannot be read; write role, qpn, psn, members, mtu and regions, with VAs and R_Keys like 0x10000 in quotes")
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(wait)*time.Second)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer context.AfterFunc(s.stopping, func() { giveUp(errStopping) })()
	name := r.PathValue("name")
	g, err := h.Join(ctx, host, name, request, q.Get("seen"))
	if err != nil && !request.Ready {
		s.Log.Warn("a host was refused", zap.String("group", name), zap.Stringer("host", host), zap.Error(err))
	}
	return g, err
}

// errStopping ends questions when the daemon stops.
var errStopping = errors.New("the daemon stops")

func (s *Server) leaveHost(r *http.Request, h Hosts) (any, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	whole, err := uintIn(q, "whole", 1)
	if err != nil {
		return nil, err
	}
	notify, err := uintIn(q, "tell", 1)
	switch {
	case err != nil:
		return nil, err
	case notify == 1 && whole == 0:
		return nil, api.Errorf(api.BadRequest, "tell says that the group ends; write whole=1 too")
	}
	name := r.PathValue("name")
	if whole == 1 {
		err = h.End(r.Context(), host, name, notify == 1)
	} else {
		err = h.Leave(r.Context(), host, name)
	}
	return api.Removed{Name: name}, err
}
