package shared

import (
	"context"
	"errors"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/mft"
)

const (
	// claimWithin is how long a request waits until some box has claimed the group, reportWithin
	// until that box has set up what the request asks for.
	claimWithin  = 4 * time.Second
	reportWithin = 12 * time.Second
	// undoWithin bounds the request that undoes a change.
	undoWithin = 5 * time.Second
)

// Create adds a group to the desired ones, and waits until a box has set it up. If none does,
// the group is removed again.
func (s *Shared) Create(ctx context.Context, file *groupfile.File, text []byte) (api.Group, error) {
	if s.Groups.Seen(file.Name) != nil {
		return api.Group{}, groups.NameTaken(file)
	}
	revision, err := s.Desired.Create(ctx, file.Name, text)
	if errors.Is(err, desired.ErrExists) {
		return api.Group{}, groups.NameTaken(file)
	}
	if err != nil {
		return api.Group{}, unavailable(err)
	}
	return s.awaitReport(ctx, file, revision, func(ctx context.Context) error {
		if err := s.Desired.Remove(ctx, file.Name, revision); !errors.Is(err, desired.ErrChanged) {
			return err
		}
		return nil // changed meanwhile
	})
}

// Running returns the file of a group that all boxes share, and its revision.
func (s *Shared) Running(ctx context.Context, name string) (file *groupfile.File, revision int64, err error) {
	e, _ := s.Desired.Entry(name)
	if !e.Wanted() {
		return nil, 0, s.notShared(name)
	}
	file, err = s.Parse(ctx, e.Text)
	return file, e.Revision, err
}

// Update changes a desired group, and waits until its root has followed. If the root refuses
// the change, it is taken back. from is the revision that was changed; 0: any.
func (s *Shared) Update(ctx context.Context, file *groupfile.File, text []byte, from int64) (api.Group, error) {
	e, _ := s.Desired.Entry(file.Name)
	if !e.Wanted() {
		return api.Group{}, s.notShared(file.Name)
	}
	if from != 0 && from != e.Revision {
		return api.Group{}, groups.ChangedMeanwhile(file.Name)
	}
	was, err := s.Parse(ctx, e.Text)
	if err == nil {
		err = errors.Join(file.CheckUpdate(was), file.CheckOneChange(was))
	}
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	revision, err := s.Desired.Update(ctx, file.Name, text, e.Revision)
	if errors.Is(err, desired.ErrChanged) {
		return api.Group{}, groups.ChangedMeanwhile(file.Name)
	}
	if err != nil {
		return api.Group{}, unavailable(err)
	}
	return s.awaitReport(ctx, file, revision, func(ctx context.Context) error {
		_, err := s.Desired.Update(ctx, file.Name, e.Text, revision)
		return err
	})
}

// Remove removes a desired group. Its root follows. from is the revision that is to go; 0: any.
func (s *Shared) Remove(name string, from int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), reportWithin)
	defer cancel()
	switch err := s.Desired.Remove(ctx, name, from); {
	case errors.Is(err, desired.ErrChanged):
		return groups.ChangedMeanwhile(name)
	case errors.Is(err, desired.ErrMissing):
		return s.notShared(name)
	case err != nil:
		return unavailable(err)
	}
	for {
		heard := s.work.next()
		if e, _ := s.Desired.Entry(name); !e.Wanted() {
			s.Reconcile(ctx, name, false)
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return nil // it is removed, and this box follows when it hears of it
		}
	}
}

// notShared refuses to change a group that is not among the desired ones.
func (s *Shared) notShared(name string) error {
	switch g := s.Groups.Seen(name); {
	case g == nil:
		return groups.NoGroup(name)
	case g.Branch != nil:
		return groups.BelongsTo(g)
	case !g.Kept:
		return api.Errorf(api.BadRequest, "group %s belongs to a perftest run or an RDMA-CM connection, which ends it", name)
	default:
		return api.Errorf(api.NotFound, "group %s was removed meanwhile", name)
	}
}

// awaitReport waits until a box has set up a version of a group. If no box does, or one refuses it,
// the change is reversed by undo.
func (s *Shared) awaitReport(ctx context.Context, file *groupfile.File, revision int64, undo func(context.Context) error) (api.Group, error) {
	g, err := s.reported(ctx, file, revision)
	if err == nil {
		return g, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin) // the request may have ended
	defer cancel()
	return api.Group{}, groups.APIError(errors.Join(err, undo(ctx)))
}

// reported returns a version of a group as the box says that has set it up, or why no box has.
func (s *Shared) reported(ctx context.Context, file *groupfile.File, revision int64) (api.Group, error) {
	waiting, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	unclaimed := time.NewTimer(claimWithin)
	defer unclaimed.Stop()
	for {
		heard := s.work.next()
		e, _ := s.Desired.Entry(file.Name)
		if r := reportOf(e); r != nil && r.Revision >= revision {
			if r.Refused != "" {
				return api.Group{}, api.Errorf(api.BadRequest, "box %s, to which the source is attached, refuses the group: %s", e.Root, r.Refused)
			}
			return s.describe(file.Name, r), nil
		}
		select {
		case <-heard:
		case <-unclaimed.C:
			if e, _ := s.Desired.Entry(file.Name); e.Root == "" {
				if file.Addressing == mft.BySwitchIP {
					return api.Group{}, api.Errorf(api.BadRequest, "no box has %v, and with addressing switch-ip the box that has it carries the "+
						"group; add it with ip addr add, or correct it", file.IP)
				}
				return api.Group{}, api.Errorf(api.BadRequest, "no box says that the source %v is attached to it; connect the host, or "+
					"correct its address", file.Source.IP)
			}
		case <-waiting.Done():
			if ctx.Err() != nil {
				return api.Group{}, groups.GivenUp(ctx)
			}
			return api.Group{}, api.Errorf(api.Unavailable, "box %s has not set up group %s within %v; see its log", e.Root, file.Name, reportWithin)
		}
	}
}

func unavailable(err error) error { return api.Errorf(api.Unavailable, "%v", err) }
