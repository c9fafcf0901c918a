package reload

import (
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/follow"
)

// FollowBonds adds the lower devices as ports that have joined a bond of the running config, and
// removes those that have left it. Globs are matched by a reload alone. It does nothing during a
// reload, and what fails is tried again by the next call.
func (r *Reloader) FollowBonds() {
	if !r.reloading.TryLock() {
		return
	}
	defer r.reloading.Unlock()
	var names, globs []string
	for _, pattern := range r.Running.Ports {
		if config.IsGlob(pattern) {
			globs = append(globs, pattern)
		} else {
			names = append(names, pattern)
		}
	}
	list := r.Control.PortList().Ports
	is := func(name string) bool {
		return slices.ContainsFunc(list, func(p api.Port) bool {
			return p.Name == name && (p.State == api.PortUp || p.State == api.PortDown)
		})
	}
	if !slices.ContainsFunc(names, func(name string) bool { return !is(name) }) {
		return // no name is that of a bond
	}
	found, err := r.Find(names)
	if err != nil {
		r.unfollowed(err)
		return
	}
	have := r.ports()
	next := r.Running
	next.Ports = found
	for _, name := range have {
		if !slices.Contains(found, name) && config.MatchesAny(globs, name) {
			next.Ports = append(next.Ports, name)
		}
	}
	change, err := r.portChange(&next, have)
	if err == nil && len(change.Add)+len(change.Remove) > 0 {
		err = r.changeBonds(change)
	}
	r.unfollowed(err)
}

func (r *Reloader) changeBonds(change follow.Change) error {
	if err := r.Control.ChangePorts(change); err != nil {
		return err
	}
	r.Log.Info("ports follow the lower devices of a bond", zap.Strings("portsAdded", change.Add), zap.Strings("portsRemoved", change.Remove))
	return nil
}

// bonds is why FollowBonds failed last. A port that leaves a bond fails once, until the groups that
// used it are sent by another one.
type bonds struct {
	failed string
	told   bool
}

func (r *Reloader) unfollowed(err error) {
	switch {
	case err == nil:
		r.bonds = bonds{}
	case err.Error() != r.bonds.failed:
		r.bonds = bonds{failed: err.Error()}
	case !r.bonds.told:
		r.bonds.told = true
		r.Log.Warn("the ports do not follow the lower devices of a bond; tried again each second", zap.Error(err))
	}
}
