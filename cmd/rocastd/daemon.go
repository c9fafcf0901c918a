package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"runtime"
	"strconv"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/hosts"
	"github.com/rocast/rocast/ctl/logs"
	"github.com/rocast/rocast/ctl/metrics"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/page"
	"github.com/rocast/rocast/ctl/reload"
	"github.com/rocast/rocast/ctl/server"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/version"
)

// service is the daemon with all its resources open.
type service struct {
	log        *logs.Log
	sw         ctl.Switch
	controller *ctl.Controller
	server     *server.Server
	listener   net.Listener
	boxes      *server.Server // for other boxes; nil: off
	boxesAt    net.Listener
	hosts      *server.Server // for programs on hosts; nil: off
	hostsAt    net.Listener
	hostGroups *hosts.Hosts      // the groups that they make
	metrics    *metrics.Listener // nil: off
	reloader   *reload.Reloader
	hangups    <-chan os.Signal // each one reloads the config
	workers    int
	repair     uint64         // bytes that the forwarding threads may keep for repair
	socket     string         // the path of the socket; the listener was created under another path and does not know this one
	ready      func() error   // called once the daemon is ready, if not nil
	close      []func() error // functions that undo the steps of open; called from the last to the first
}

// opener opens the data path. The daemon uses openSwitch; tests use a replacement.
type opener func(config.Config) (ctl.Switch, func() error, error)

// open opens everything that the daemon needs, in the network namespace of the calling thread, and
// restores the kept groups. If open returns an error, it has released everything again.
func open(c config.Config, log *logs.Log, openSwitch opener) (*service, error) {
	s := &service{log: log}
	if err := s.open(c, openSwitch); err != nil {
		return nil, errors.Join(err, s.undo())
	}
	return s, nil
}

func (s *service) open(c config.Config, openSwitch opener) error {
	group, readers, err := groupIDs(c)
	if err != nil {
		return err
	}
	if err := findPaths(&c); err != nil {
		return err
	}
	state, err := store.Open(c.StateDir)
	if err != nil {
		return aboutPath(err)
	}
	s.close = append(s.close, state.Close)
	if err := s.openDataPath(c, openSwitch); err != nil {
		return err
	}
	s.workers, s.repair = max(c.Workers, 1), c.RepairMemory
	if err := s.openControl(c, state); err != nil {
		return err
	}
	s.reloader = reload.New(reload.Options{
		Running: c, Control: s.controller, Check: checkWith, Find: expand, Log: s.log.Logger, SetLevel: s.log.SetLevel,
		Begins: s.notifyReloading, Ends: func() { s.notify(s.withStatus(daemon.SdNotifyReady)) },
	})
	scrape := metrics.Handler(s.controller, s.reloader.Stale)
	s.server = server.New(server.Config{
		Control: s.controller, Services: s.controller.Services, Reloader: s.reloader, Features: features, Metrics: scrape, Log: s.log.Logger, Level: s.log, Bounds: s.controller.Bounds, Group: group, Readers: readers,
	})
	if c.Metrics.IsValid() {
		s.metrics = &metrics.Listener{At: c.Metrics, Handler: s.forViewers(scrape), Log: s.log.Logger, Bounds: s.controller.Bounds}
	}
	if err := errors.Join(s.openBoxes(c), s.openHosts(c)); err != nil {
		return err
	}
	s.socket = c.Socket
	s.listener, err = server.Listen(c.Socket, group, len(readers) > 0)
	return aboutPath(err)
}

// forViewers returns what the listener of the metrics answers: metrics, health, and the page with
// what it asks for.
func (s *service) forViewers(scrape http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", metrics.Routes(s.controller, scrape))
	mux.Handle("GET "+page.Path, page.Handler())
	mux.Handle("/v1/", s.server.Viewers())
	return mux
}

// openBoxes listens for other boxes, if the config says so.
func (s *service) openBoxes(c config.Config) (err error) {
	if !c.API.On() {
		return nil
	}
	if s.boxesAt, err = server.ListenForBoxes(c.API.Listen); err != nil {
		return err
	}
	s.close = append(s.close, func() error { _ = s.boxesAt.Close(); return nil }) // Serve has closed it, unless open fails
	s.boxes = server.NewForBoxes(s.controller.Branches, s.controller, s.log.Logger, s.server, c.API)
	return nil
}

// openHosts listens for programs on hosts, if the config says so.
func (s *service) openHosts(c config.Config) (err error) {
	if !c.Hosts.On() {
		return nil
	}
	if s.hostsAt, err = server.ListenForHosts(c.Hosts.Listen); err != nil {
		return err
	}
	s.close = append(s.close, func() error { _ = s.hostsAt.Close(); return nil }) // Serve has closed it, unless open fails
	s.hostGroups = ctl.NewHosts(s.controller, c.Hosts)
	s.hosts = server.NewForHosts(s.hostGroups, s.controller, s.log.Logger, s.controller.Bounds)
	return nil
}

func (s *service) openDataPath(c config.Config, openSwitch opener) error {
	if err := findPorts(&c); err != nil {
		return err
	}
	sw, closeSwitch, err := openSwitch(c)
	if err != nil {
		return aboutPorts(err)
	}
	s.sw = sw
	s.close = append(s.close, closeSwitch)
	return nil
}

func (s *service) openControl(c config.Config, state *store.Store) error {
	var ports []int
	for _, p := range s.sw.Ports() {
		if p.State.Open() {
			ports = append(ports, p.IfIndex)
		}
	}
	hops, err := nexthop.Open(ports)
	if err != nil {
		return err
	}
	s.close = append(s.close, func() error { hops.Close(); return nil })
	addresses, err := address.Open(addressNotes(state.Dir()))
	if err != nil {
		return aboutPath(err)
	}
	if strays := addresses.Strays(); len(strays) > 0 {
		s.log.Warn("the directory of the notes of addresses has files that are no notes, which rocastd ignores; "+
			"remove the files", zap.Strings("files", strays))
	}
	parts := ctl.Parts{
		Switch: s.sw, NextHops: hops, Addresses: addresses, Store: state, Log: s.log.Logger, Perftest: c.Perftest, CM: c.CM, Edges: c.Edges, Neighbours: c.Neighbours,
		Workers: s.workers, FollowBonds: func() { s.reloader.FollowBonds() },
	}
	if c.API.On() {
		if parts.Box, err = c.API.Files.Name(); err != nil {
			return err
		}
		boxes := neighbour.NewClient(c.API.Files, c.Neighbours)
		parts.Boxes, parts.Above = boxes, boxes
	}
	if c.Etcd.On() {
		if err := s.openDesired(c, &parts); err != nil {
			return err
		}
	}
	s.controller = ctl.New(parts)
	s.close = append(s.close, s.controller.Close)
	return s.controller.Restore()
}

// openDesired connects to the desired groups of several boxes. A box without a certificate is known
// by its host name.
func (s *service) openDesired(c config.Config, parts *ctl.Parts) (err error) {
	if parts.Box == "" {
		if parts.Box, err = os.Hostname(); err != nil {
			return fmt.Errorf("etcd: the boxes know this one by its host name: %w", err)
		}
	}
	settings, err := c.Etcd.Config(parts.Box)
	if err != nil {
		return err
	}
	settings.CheckName = groupfile.CheckName
	d, err := desired.Open(settings, s.log.Logger)
	if err != nil {
		return err
	}
	s.close = append(s.close, d.Close)
	parts.Desired = d
	return nil
}

// run serves until ctx is done or a part of the service fails, and then releases everything.
func (s *service) run(ctx context.Context) error {
	runtime.GOMAXPROCS(procs(runtime.GOMAXPROCS(0), s.workers))
	if cpus := runtime.NumCPU(); s.workers >= cpus {
		s.log.Warn("every CPU has a forwarding thread, so that none is left for the kernel and for control; write "+
			"a smaller number of workers: into the config",
			zap.Int("workers", s.workers), zap.Int("cpus", cpus))
	}
	forwarding, stopForwarding := context.WithCancel(context.WithoutCancel(ctx))
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		s.sw.Run(forwarding)
	}()
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return s.server.Serve(ctx, s.listener) })
	if s.boxes != nil {
		tasks.Go(func() error { return s.boxes.Serve(ctx, s.boxesAt) })
	}
	if s.hosts != nil {
		tasks.Go(func() error { return s.hosts.Serve(ctx, s.hostsAt) })
		tasks.Go(func() error { s.hostGroups.Run(ctx); return nil })
	}
	if s.metrics != nil {
		tasks.Go(func() error { s.metrics.Serve(ctx); return nil })
	}
	tasks.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-forwarded:
			return errors.New("the data path stopped by itself")
		}
	})
	tasks.Go(func() error { return s.notifySystemd(ctx) })
	tasks.Go(func() error { s.log.Report(ctx); return nil })
	tasks.Go(func() error { s.reloadOnHangups(ctx); return nil })
	s.notify(s.withStatus(daemon.SdNotifyReady))
	s.log.Info("ready", zap.String("socket", s.socket), zap.String("version", version.Build().Version),
		zap.Int("workers", s.workers), zap.Uint64("repairMemoryKiB", s.repair>>10))
	tasks.Go(func() error { return s.controller.Run(ctx) }) // not before: it loads the kernel engine
	if s.ready != nil {
		tasks.Go(s.ready)
	}
	<-ctx.Done()
	s.notify(daemon.SdNotifyStopping)
	err := tasks.Wait()
	// At this point the server answers no requests and next hops are no longer followed. Forwarding
	// may stop only now. The final states of the groups are known only after forwarding has
	// stopped; undo records these states.
	stopForwarding()
	<-forwarded
	err = errors.Join(err, s.undo())
	s.log.Info("stopped", zap.Error(err))
	return err
}

// reloadOnHangups reloads the config on each SIGHUP until ctx is done. The reloader logs the
// outcome.
func (s *service) reloadOnHangups(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hangups:
			_, _ = s.reloader.Reload("SIGHUP")
		}
	}
}

// procs returns the value for GOMAXPROCS. A forwarding thread never leaves its processor, so each
// forwarding thread needs one processor, and two more are for all other goroutines.
func procs(now, workers int) int { return max(now, workers+2) }

func (s *service) undo() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	s.close = nil
	return errors.Join(errs...)
}

// groupIDs returns the IDs of the Unix groups that the config names: of those who may change
// groups, and of those who may read.
func groupIDs(c config.Config) (group int, readers []int, err error) {
	if group, err = groupID("socketGroup", c.SocketGroup); err != nil || c.ReadGroup == "" {
		return group, nil, err
	}
	id, err := groupID("readGroup", c.ReadGroup)
	return group, []int{id}, err
}

// groupID converts the name or number of a Unix group to its ID. No name means the daemon's group.
func groupID(key, name string) (int, error) {
	if name == "" {
		return os.Getegid(), nil
	}
	if id, err := strconv.Atoi(name); err == nil {
		return id, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w; create the group with groupadd, or write another one", key, err)
	}
	return strconv.Atoi(g.Gid)
}
