package shared

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/groups"
)

// atOnce is how many groups are set up at the same time.
const atOnce = 16

// Run sets up the groups whose source is attached to this box, and ends those that are not wanted
// any more or that another box carries, until ctx is done.
func (s *Shared) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return s.Desired.Run(ctx, s.work.hear) })
	tasks.Go(func() error { return s.followAway(ctx) })
	tasks.Go(func() error { return s.follow(ctx) })
	return tasks.Wait()
}

// follow does the work on the groups until ctx is done.
func (s *Shared) follow(ctx context.Context) error {
	doing := errgroup.Group{}
	doing.SetLimit(atOnce)
	again := time.NewTicker(groups.RetryEvery)
	defer again.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return doing.Wait()
		case <-s.work.wake:
		case <-again.C:
			all = true
		}
		p, read := s.work.take()
		if p.first || all && read {
			s.addUnsettled(p.names)
		}
		s.addMoved(ctx, p)
		for name, again := range p.names {
			if s.work.begin(name, again) {
				doing.Go(func() error { defer s.work.end(name); s.Reconcile(ctx, name, again); return nil })
			}
		}
		for name := range p.members {
			doing.Go(func() error { s.followMembers(ctx, name); return nil })
		}
	}
}

// addUnsettled adds the groups for which there may be work although no event names them: groups
// that no box has claimed, groups of this box, and groups that this box carries and that may have
// been removed from etcd. It forgets what is known of groups that have gone.
func (s *Shared) addUnsettled(names map[string]bool) {
	for _, name := range s.Desired.Names() {
		if e, _ := s.Desired.Entry(name); e.Wanted() && (e.Root == "" || e.Root == s.Box) {
			names[name] = true
		}
	}
	s.Groups.Lock()
	defer s.Groups.Unlock()
	for name, g := range s.Groups.All() {
		if g.Kept && g.Branch == nil {
			names[name] = true
		}
	}
	for g := range s.carried {
		if s.Groups.Named(g.Name) != g {
			delete(s.carried, g)
		}
	}
}
