package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/logs"
	"github.com/rocast/rocast/ctl/openapi"
	"github.com/rocast/rocast/ctl/seats"
	"github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/mft"
)

// Limits for one client. The server closes the connection of a client that exceeds them. If only
// the answer is late, the change is carried out all the same, and the client's error says so.
const (
	requestWithin = 30 * time.Second // from the connection or the last answer to the end of the body, idle time included
	answerWithin  = 30 * time.Second // from the end of the header to the end of the answer
	// stopWithin is the time that running requests get when the daemon stops. systemd kills a
	// daemon that needs 30 s to stop.
	stopWithin     = 2 * time.Second
	maxHeaderBytes = 16 << 10
	// maxBodies bounds the memory of bodies: maxBodies times api.MaxGroupFileBytes. maxChanges
	// bounds the number of requests with a body that are carried out at a time. More requests wait.
	// A request takes its turn only when its body is complete, so fewer than maxBodies clients that
	// stall do not hinder others; more of them hinder others for requestWithin at most.
	maxBodies  = 64
	maxChanges = 16
)

// Control is what the server needs from a ctl.Controller.
type Control interface {
	Create(ctx context.Context, file []byte) (api.Group, error)
	Update(ctx context.Context, name string, file []byte) (api.Group, error)
	Remove(name string) error
	Confirm(name string, request []byte) (api.Group, error)
	ChangeRegions(ctx context.Context, name string, request []byte) (api.Group, error)
	Regions(name string, from, count int) (api.Regions, error)
	Groups() api.Groups
	Group(name string) (api.Group, error)
	Tree(ctx context.Context, name string) (api.Tree, error)
	Status() api.Status
	PortList() api.Ports
	Stats() api.Stats
	Traffic() api.Traffic
	GroupTraffic(name string) (api.Traffic, error)
	Events(ctx context.Context, at api.Cursor, group string) api.Events
	Capture(ctx context.Context, q api.CaptureQuery, send func(api.CaptureLine) error) error
	Trace(request []byte) (api.Trace, error)
}

// Services is what the server needs from a services.Services.
type Services interface {
	Perftests() api.Perftests
	PerftestUp(ctx context.Context, request []byte) (api.Perftest, error)
	PerftestDown(groupIP string) error
	CMs() api.CMs
	CMUp(ctx context.Context, request []byte) (api.CM, error)
	CMDown(groupIP string) error
}

// Level is the level of the daemon's log. A logs.Log is a Level.
type Level interface {
	Level() string
	SetLevel(name string) error
}

// Reloader is what the server needs from a reload.Reloader.
type Reloader interface {
	Reload(by string) (api.Reloaded, error)
	State() api.ConfigState
}

// Config holds the parts and settings of a Server.
type Config struct {
	Control  Control
	Services Services
	Features func() []api.Feature
	Metrics  http.Handler
	Reloader Reloader
	Log      *zap.Logger
	Level    Level
	Bounds   *bounds.Book
	// Group is the ID of the Unix group whose members may make changes, besides root.
	Group int
	// Readers are the IDs of Unix groups whose members may read. None: whoever can connect may.
	Readers []int
}

// Server answers the requests of package api.
type Server struct {
	Config
	http  *http.Server
	conns sync.WaitGroup // counted from accept until the last handler has returned
	// bodies has a token for each request whose body is in memory or on its way there, slots one
	// for each request with a body that is carried out.
	bodies, slots chan struct{}
	// waiting has a token for each request that waits for an event. Such requests end when stopping
	// is done.
	waiting  chan struct{}
	stopping context.Context
	// giveUp ends the contexts of all requests. To close a connection is not enough: net/http stops
	// watching a connection on which the client has sent something after its request.
	giveUp context.CancelFunc
	// access returns the rights of a connection's peer; tests replace it. bound limits the
	// connections of a listener.
	access func(net.Conn) peer
	bound  func(net.Listener) net.Listener
}

// New returns a Server that does nothing until Serve is called.
func New(c Config) *Server {
	s := unrouted(c)
	s.access = s.accessOf
	s.http.Handler = admit(s.routes())
	s.bound = func(l net.Listener) net.Listener {
		return &crowd{Listener: l, seats: seats.Book{Most: mostOfAUser}, enters: func(conn net.Conn) (p peer, who string) {
			if p = s.access(conn); !p.change {
				who = strconv.Itoa(p.uid)
			}
			return p, who
		}, refused: s.met(bounds.UserConnections)}
	}
	s.http.ConnContext = func(ctx context.Context, conn net.Conn) context.Context { return withPeer(ctx, conn.(*visitor).peer) }
	return s
}

// met returns what counts that a bound was met.
func (s *Server) met(bound bounds.Bound) func(who string) {
	return func(who string) { s.Bounds.Met(bound, who) }
}

func unrouted(c Config) *Server {
	s := &Server{Config: c, bound: func(l net.Listener) net.Listener { return l }, bodies: make(chan struct{}, maxBodies), slots: make(chan struct{}, maxChanges), waiting: make(chan struct{}, maxWaiting)}
	requests, giveUp := context.WithCancel(context.Background())
	s.giveUp = giveUp
	stopping, stop := context.WithCancel(context.Background())
	s.stopping = stopping
	s.http = &http.Server{
		BaseContext:    func(net.Listener) context.Context { return requests },
		ConnState:      s.countConns,
		ReadTimeout:    requestWithin,
		WriteTimeout:   answerWithin,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       logs.ForHTTP(c.Log),
	}
	s.http.RegisterOnShutdown(stop)
	return s
}

// Serve answers requests on the listener until ctx is done. Running requests then have stopWithin
// to finish, after which their connections are closed. When Serve returns, no handler is running.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var stopErr error
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		stopErr = s.shutDown()
	})
	err := s.http.Serve(s.bound(l))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API: %w", err)
	}
	<-stopped
	s.conns.Wait()
	return stopErr
}

func (s *Server) shutDown() error {
	grace, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err := s.http.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		s.giveUp()
		err = s.http.Close()
	}
	return err
}

func (s *Server) countConns(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed:
		s.conns.Done()
	}
}

// resources returns what answers to each method of each path. ctl/openapi describes it.
func (s *Server) resources() map[string]map[string]handler {
	return map[string]map[string]handler{
		api.GroupsPath:                               {http.MethodGet: s.listGroups, http.MethodPost: s.createGroup},
		api.GroupsPath + "/{name}":                   {http.MethodGet: s.showGroup, http.MethodPut: s.updateGroup, http.MethodDelete: s.removeGroup},
		api.GroupsPath + "/{name}" + api.ReadyPath:   {http.MethodPost: s.confirm},
		api.GroupsPath + "/{name}" + api.RegionsPath: {http.MethodGet: s.listRegions, http.MethodPost: s.changeRegions},
		api.TreesPath + "/{name}":                    {http.MethodGet: s.tree},
		api.PerftestPath:                             {http.MethodGet: s.listPerftests, http.MethodPost: s.perftestUp},
		api.PerftestPath + "/{groupIP}":              {http.MethodDelete: s.perftestDown},
		api.CMPath:                                   {http.MethodGet: s.listCMs, http.MethodPost: s.cmUp},
		api.CMPath + "/{groupIP}":                    {http.MethodDelete: s.cmDown},
		api.StatusPath:                               {http.MethodGet: s.status},
		api.PortsPath:                                {http.MethodGet: func(*http.Request) (any, error) { return s.Control.PortList(), nil }},
		api.StatsPath:                                {http.MethodGet: func(*http.Request) (any, error) { return s.Control.Stats(), nil }},
		api.ReloadPath:                               {http.MethodPost: s.reload},
		api.TrafficPath:                              {http.MethodGet: s.traffic},
		api.TrafficPath + "/{name}":                  {http.MethodGet: s.groupTraffic},
		api.EventsPath:                               {http.MethodGet: s.listEvents},
		api.LogPath:                                  {http.MethodGet: s.showLog, http.MethodPut: s.changeLog},
		api.CapturePath:                              {http.MethodGet: s.capture},
		api.TracePath:                                {http.MethodPost: s.trace},
		api.FeaturesPath:                             {http.MethodGet: func(*http.Request) (any, error) { return api.Features{Features: s.Features()}, nil }},
		api.VersionPath:                              {http.MethodGet: func(*http.Request) (any, error) { return version.Build(), nil }},
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for path, methods := range s.resources() {
		mux.Handle(path, resource(methods))
	}
	mux.HandleFunc("GET "+api.OpenAPIPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openapi.Document) // the client has left if that fails
	})
	mux.Handle("GET "+api.MetricsPath, s.Metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, api.Errorf(api.NotFound, "there is no %s; the paths of the API begin with %s, %s and so on",
			r.URL.EscapedPath(), api.GroupsPath, api.PortsPath))
	})
	return mux
}

func (s *Server) listGroups(*http.Request) (any, error) { return s.Control.Groups(), nil }

func (s *Server) createGroup(r *http.Request) (any, error) {
	g, err := s.fromFile(r, s.Control.Create)
	if err != nil {
		return nil, err
	}
	s.Log.Info("created on request", zap.String("group", g.Name), zap.Stringer("by", peerOf(r)))
	return created{g}, nil
}

func (s *Server) updateGroup(r *http.Request) (any, error) {
	g, err := s.fromFile(r, func(ctx context.Context, file []byte) (api.Group, error) {
		return s.Control.Update(ctx, r.PathValue("name"), file)
	})
	if err != nil {
		return nil, err
	}
	s.Log.Info("updated on request", zap.String("group", g.Name), zap.Stringer("by", peerOf(r)))
	return g, nil
}

func (s *Server) confirm(r *http.Request) (any, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	g, err := withBody(s, r, "the confirmation", "no member needs; write one member", func(_ context.Context, body []byte) (api.Group, error) {
		return s.Control.Confirm(name, body)
	})
	if err != nil {
		return nil, err
	}
	s.Log.Info("member confirmed on request", zap.String("group", name), zap.Stringer("by", p))
	return p.hide(g), nil
}

func (s *Server) changeRegions(r *http.Request) (any, error) {
	p, name := peerOf(r), r.PathValue("name")
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	g, err := withBody(s, r, "the change of regions", "one change may have; make several", func(ctx context.Context, body []byte) (api.Group, error) {
		return s.Control.ChangeRegions(ctx, name, body)
	})
	if err != nil {
		return nil, err
	}
	s.Log.Info("memory changed on request", zap.String("group", name), zap.Int("regions", len(g.Memory)+g.RegionCount), zap.Stringer("by", p))
	return p.hide(g), nil
}

func (s *Server) listRegions(r *http.Request) (any, error) {
	q := r.URL.Query()
	from, err := uintIn(q, "from", mft.MaxRanges)
	if err != nil {
		return nil, err
	}
	count, err := uintIn(q, "count", api.MaxRegions)
	if err != nil {
		return nil, err
	}
	if count == 0 {
		count = api.MaxRegions
	}
	list, err := s.Control.Regions(r.PathValue("name"), int(from), int(count))
	if err != nil {
		return nil, err
	}
	return peerOf(r).hideRegions(list), nil
}

// fromFile calls do with the group file in the body of a request.
func (s *Server) fromFile(r *http.Request, do func(context.Context, []byte) (api.Group, error)) (api.Group, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return api.Group{}, err
	}
	g, err := withBody(s, r, "the group file", "no group needs; split the group", func(ctx context.Context, file []byte) (api.Group, error) {
		g, err := do(ctx, file)
		if err != nil {
			s.logRefusal(err, p)
		}
		return g, err
	})
	if err != nil {
		return api.Group{}, err
	}
	return p.hide(g), nil
}

// withBody reads the body of a request and calls do with it in turn. See readBody for what and
// advice.
func withBody[T any](s *Server, r *http.Request, what, advice string, do func(context.Context, []byte) (T, error)) (answer T, err error) {
	// This does not watch the context: before the body is read only a stop ends it, and a stop also
	// ends the requests that have the tokens.
	s.bodies <- struct{}{}
	defer func() { <-s.bodies }()
	body, err := readBody(r, api.MaxGroupFileBytes, what, advice)
	if err != nil {
		return answer, err
	}
	ctx := r.Context()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		return do(ctx, body)
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// readBody reads the body of a request. For the error of a body that is too long, what names the
// body and advice tells the user how to shorten it.
func readBody(r *http.Request, most int64, what, advice string) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, api.Errorf(api.TooLarge, "%s is longer than %d bytes, which %s", what, most, advice)
	case err != nil:
		return nil, api.Errorf(api.BadRequest, "%s did not arrive whole: %v", what, err)
	}
	return body, nil
}

// mistake reports whether an error is about a group file, and in which line. The sentence of such
// an error may quote the file, and the quoted text may be an R_Key in a wrong place, so it is not
// logged.
func mistake(err error) (line int, inFile bool) {
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return e.Line, e.Kind == api.BadFile
	}
	return 0, false
}

func (s *Server) logRefusal(err error, p peer) {
	if line, inFile := mistake(err); inFile {
		s.Log.Warn("group file refused", zap.Int("line", line), zap.Stringer("by", p))
		return
	}
	s.Log.Warn("group refused", zap.Error(err), zap.Stringer("by", p))
}

func (s *Server) showGroup(r *http.Request) (any, error) {
	g, err := s.Control.Group(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return peerOf(r).hide(g), nil
}

func (s *Server) removeGroup(r *http.Request) (any, error) {
	return s.remove(r, "group", r.PathValue("name"), s.Control.Remove)
}

func (s *Server) showLog(*http.Request) (any, error) { return api.Log{Level: s.Level.Level()}, nil }

func (s *Server) changeLog(r *http.Request) (any, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	return withBody(s, r, "the level of the log", "no level needs; write one word", func(_ context.Context, body []byte) (api.Log, error) {
		var wanted api.Log
		if err := json.Unmarshal(body, &wanted); err != nil {
			return wanted, api.Errorf(api.BadRequest, `the level of the log is not JSON such as {"level": "debug"}: %v`, err)
		}
		was := s.Level.Level()
		if err := s.Level.SetLevel(wanted.Level); err != nil {
			return wanted, api.Errorf(api.BadRequest, "%v", err)
		}
		s.Log.Warn("the level of the log was changed on request", zap.String("was", was), zap.String("level", wanted.Level), zap.Stringer("by", p))
		return wanted, nil
	})
}

// remove removes the object in the path of the request. kind is the name of the log field that
// holds the object's name.
func (s *Server) remove(r *http.Request, kind, name string, remove func(name string) error) (any, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	if err := remove(name); err != nil {
		return nil, err
	}
	s.Log.Info("removed on request", zap.String(kind, name), zap.Stringer("by", p))
	return api.Removed{Name: name}, nil
}
