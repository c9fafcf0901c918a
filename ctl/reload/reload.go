// Package reload takes over what has changed in the config file while the daemon runs.
//
// A reload reads the whole file and checks it as a start would. Then it takes over everything that
// has changed, or, if a part of it cannot be taken over, nothing. Groups run on.
package reload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/follow"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Control is what a Reloader needs from a ctl.Controller.
type Control interface {
	PortList() api.Ports
	ChangePorts(follow.Change) error
	ConfigEvent(kind api.EventKind, cause string)
}

// Options are the parts of a Reloader.
type Options struct {
	Running config.Config // as its file said when the daemon started
	Control Control
	// Check checks what a config names, as a start does, and replaces the globs in Ports by names.
	// The interfaces with the names in have are ports now: a glob matches them even if they are
	// away.
	Check func(c *config.Config, have []string) error
	// Find replaces names of bonds by those of their lower devices, as Check does.
	Find     func(ports []string) ([]string, error)
	SetLevel func(level string) error // of the log
	// Begins and Ends are called around each reload.
	Begins, Ends func()
	Log          *zap.Logger
}

// Reloader reloads the config of a running daemon. Its methods may be called from any goroutine.
type Reloader struct {
	Options              // Running is guarded by mu
	file      string     // of the config
	reloading sync.Mutex // held during a reload
	bonds     bonds      // guarded by reloading

	mu      sync.Mutex
	since   time.Time // when the daemon took over what runs
	refused string    // why the last reload changed nothing; "": it did not fail
}

// New returns a Reloader of a daemon that has just started.
func New(o Options) *Reloader { return &Reloader{Options: o, file: o.Running.File, since: time.Now()} }

// Reload takes over what has changed in the file. After an error nothing has changed. by says who
// asked for it.
func (r *Reloader) Reload(by string) (api.Reloaded, error) {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	r.Begins()
	defer r.Ends()
	done, err := r.reload()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.refused = err.Error()
		r.Log.Warn("config not reloaded; everything runs as before", zap.String("by", by), zap.Error(err))
		r.Control.ConfigEvent(api.ConfigRefused, r.refused)
		return done, err
	}
	r.refused, r.since = "", time.Now()
	r.Log.Info("config reloaded", zap.String("by", by), zap.Strings("changed", done.Changed), zap.Strings("portsAdded", done.Added),
		zap.Strings("portsRemoved", done.Removed))
	r.Control.ConfigEvent(api.ConfigReloaded, done.String())
	return done, nil
}

// reload does what Reload says. Opening ports is the only step that may fail late, so it is the
// first one.
func (r *Reloader) reload() (api.Reloaded, error) {
	done := api.Reloaded{Changed: []string{}, Added: []string{}, Removed: []string{}}
	next, err := r.read()
	if err != nil {
		return done, err
	}
	have := r.ports()
	full := next
	if err := r.Check(&full, have); err != nil {
		return done, api.Errorf(api.BadFile, "%s: %v", r.file, err)
	}
	for _, k := range config.Differences(&r.Running, &next) {
		if k.Reloads == "" {
			return done, api.Errorf(api.BadFile, "%s: %s changes only at a restart; run systemctl restart rocastd, or undo the change of %s",
				r.file, k.Name, k.Name)
		}
		done.Changed = append(done.Changed, k.Name)
	}
	change, err := r.portChange(&full, have)
	if err != nil {
		return done, err
	}
	if err := r.Control.ChangePorts(change); err != nil {
		return done, inFile(r.file, err)
	}
	if next.LogLevel != r.Running.LogLevel { // else rocast log level has the last word
		if err := r.SetLevel(next.LogLevel); err != nil {
			return done, err // not with a level that the config takes
		}
	}
	r.mu.Lock()
	r.Running = next
	r.mu.Unlock()
	done.Added, done.Removed = append(done.Added, change.Add...), append(done.Removed, change.Remove...)
	return done, nil
}

// portChange returns the ports that come and go. What egress says of a port that stays may not
// change, because the forwarding threads count by it what waits.
func (r *Reloader) portChange(next *config.Config, have []string) (change follow.Change, err error) {
	was, is := config.PortEgress(r.Running.Egress, have), config.PortEgress(next.Egress, have)
	for i, name := range have {
		switch {
		case !slices.Contains(next.Ports, name):
			change.Remove = append(change.Remove, name)
		case was[i].Bounds() != is[i].Bounds():
			return change, api.Errorf(api.BadFile, "%s: egress of port %s changes only at a restart; run systemctl restart rocastd, or undo "+
				"the change", r.file, name)
		}
	}
	bounds := config.PortEgress(next.Egress, next.Ports)
	for i, name := range next.Ports {
		if !slices.Contains(have, name) {
			change.Add, change.Bounds = append(change.Add, name), append(change.Bounds, bounds[i].Bounds())
		}
	}
	return change, nil
}

// ports returns the names of the ports that are there now.
func (r *Reloader) ports() (names []string) {
	for _, p := range r.Control.PortList().Ports {
		names = append(names, p.Name)
	}
	return names
}

func (r *Reloader) read() (config.Config, error) {
	c, err := config.Load(r.file)
	switch {
	case errors.As(err, new(*yamldoc.Error)):
		return c, api.Errorf(api.BadFile, "%v", err)
	case err != nil:
		return c, api.Errorf(api.Unavailable, "%v", err)
	}
	return c, nil
}

// inFile adds the name of the file to an error about its content.
func inFile(file string, err error) error {
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Kind == api.BadFile {
		return api.Errorf(api.BadFile, "%s: %s", file, e.Message)
	}
	return err
}

// State reports whether the file is what runs. It reads the file.
func (r *Reloader) State() api.ConfigState {
	next, err := r.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := api.ConfigState{File: r.file, Since: r.since.UTC().Truncate(time.Second), Refused: r.refused}
	switch differ := config.Differences(&r.Running, &next); {
	case err != nil:
		s.Stale, s.Reason = true, err.Error()
	case len(differ) > 0:
		var names []string
		for _, k := range differ {
			names = append(names, k.Name)
		}
		s.Stale, s.Reason = true, fmt.Sprintf("%s: the file has changed since; rocast reload takes the change over", strings.Join(names, ", "))
	default:
		s.Refused = "" // what was refused is no longer in the file
	}
	return s
}

// Stale reports whether the file is not what runs.
func (r *Reloader) Stale() bool { return r.State().Stale }
