package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/mft"
)

// Desired keeps the groups that several boxes are to carry: a desired.Desired. With it, a group is
// created, changed and removed there, and the box where its source is attached follows.
type Desired interface {
	// Away returns why etcd cannot be relied on at present; nil: it answers.
	Away() error
	Names() []string
	Entry(name string) (desired.Entry, bool)
	Create(ctx context.Context, name string, text []byte) (revision int64, err error)
	Update(ctx context.Context, name string, text []byte, from int64) (revision int64, err error)
	Remove(ctx context.Context, name string, from int64) error
	Claim(ctx context.Context, name string, e desired.Entry) (claimed bool, err error)
	TakeOver(ctx context.Context, name string, e desired.Entry) (claimed bool, err error)
	Report(ctx context.Context, name, report string) error
	PutMembers(ctx context.Context, name string, state []byte) error
	Yield(ctx context.Context, name string) error
	Run(ctx context.Context, changed func(names []string)) error
}

const (
	// claimWithin is how long a request waits until some box has claimed the group, reportWithin
	// until that box has set up what the request asks for.
	claimWithin  = 4 * time.Second
	reportWithin = 12 * time.Second
	// takeBackWithin bounds the request that takes a change back.
	takeBackWithin = 5 * time.Second
	// lookAtDesiredEvery is the time between two looks whether etcd answers.
	lookAtDesiredEvery = time.Second
	// atOnce is how many groups are set up at the same time.
	atOnce = 16
)

// shared has the work on the desired groups that followDesired has to do.
type shared struct {
	putting sync.Mutex // held while the state of members is stored in etcd; taken before mu

	mu      sync.Mutex
	read    bool // all desired groups have been read once
	pending pending
	busy    map[string]bool // the groups on which work is under way; a new change of such a group stays pending
	heard   chan struct{}   // closed, and replaced by a new one, by every change in etcd
	wake    chan struct{}   // has an element if a change is pending
}

// pending has the changes that followDesired has not looked at yet.
type pending struct {
	first   bool            // all desired groups were read for the first time
	names   map[string]bool // the groups that may have changed; true: try again what was refused or set up before
	members map[string]bool // the groups of whose members the state is to be stored in etcd
	// addresses of the box have come or gone; anyAddress: any may have.
	addresses  map[netip.Addr]bool
	anyAddress bool
}

func newPending() pending {
	return pending{names: map[string]bool{}, members: map[string]bool{}, addresses: map[netip.Addr]bool{}}
}

func newShared() shared {
	return shared{pending: newPending(), busy: map[string]bool{}, heard: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// hear notes that something has changed about groups.
func (s *shared) hear(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending.first, s.read = s.pending.first || !s.read, true
	for _, name := range names {
		if !s.pending.names[name] {
			s.pending.names[name] = false
		}
	}
	close(s.heard)
	s.heard = make(chan struct{})
	s.rouse()
}

// rouse lets followDesired look. The caller holds s.mu.
func (s *shared) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// look lets followDesired look at a group.
func (s *shared) look(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pending.names[name] {
		s.pending.names[name] = false
	}
	s.rouse()
}

// next returns a channel that is closed when something is heard.
func (s *shared) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// take returns the pending changes, and whether all desired groups have been read once.
func (s *shared) take() (p pending, read bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, s.pending = s.pending, newPending()
	return p, s.read
}

// begin reports whether a group can be looked at now. Otherwise the group stays pending until end.
func (s *shared) begin(name string, again bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[name] {
		s.pending.names[name] = s.pending.names[name] || again
		return false
	}
	s.busy[name] = true
	return true
}

func (s *shared) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, name)
	if _, more := s.pending.names[name]; more {
		s.rouse()
	}
}

// markSwitches says in etcd that the source of a group switches.
func (c *Controller) markSwitches(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), reportWithin)
	defer cancel()
	return c.putMembers(ctx, name)
}

// keepMembers stores the state of a group's members in etcd. Another box that takes the group over
// reads the state there.
func (c *Controller) keepMembers(name string) {
	if c.Desired == nil {
		return
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.shared.pending.members[name] = true
	c.shared.rouse()
}

// report is the root's report on a group.
type report struct {
	Revision int64            `json:"revision"` // of the group file that it is about
	Refused  string           `json:"refused,omitempty"`
	Group    api.GroupSummary `json:"group"`
}

// reportOf returns the root's report on a group, or nil if there is none.
func reportOf(e desired.Entry) *report {
	var r report
	if e.Report == "" || json.Unmarshal([]byte(e.Report), &r) != nil {
		return nil
	}
	r.Group.Root = e.Root
	return &r
}

// followDesired sets up the groups whose source is attached to this box, and ends those that are
// not wanted any more or that another box carries.
func (c *Controller) followDesired(ctx context.Context) error {
	if c.Desired == nil {
		return nil
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return c.Desired.Run(ctx, c.shared.hear) })
	tasks.Go(func() error {
		work := errgroup.Group{}
		work.SetLimit(atOnce)
		again := time.NewTicker(groups.RetryEvery)
		defer again.Stop()
		for {
			all := false
			select {
			case <-ctx.Done():
				return work.Wait()
			case <-c.shared.wake:
			case <-again.C:
				all = true
			}
			p, read := c.shared.take()
			if p.first || all && read {
				c.addUnsettled(p.names)
			}
			c.addMoved(ctx, p)
			for name, again := range p.names {
				if c.shared.begin(name, again) {
					work.Go(func() error { defer c.shared.end(name); c.reconcile(ctx, name, again); return nil })
				}
			}
			for name := range p.members {
				work.Go(func() error { c.followMembers(ctx, name); return nil })
			}
		}
	})
	return tasks.Wait()
}

// addUnsettled adds the groups for which there may be work although no event names them: groups
// that no box has claimed, groups of this box, and groups that this box carries and that may have
// been removed from etcd.
func (c *Controller) addUnsettled(names map[string]bool) {
	for _, name := range c.Desired.Names() {
		if e, _ := c.Desired.Entry(name); e.Wanted() && (e.Root == "" || e.Root == c.Box) {
			names[name] = true
		}
	}
	c.groups.Lock()
	defer c.groups.Unlock()
	for name, g := range c.groups.All() {
		if g.Kept && g.Branch == nil {
			names[name] = true
		}
	}
}

func (c *Controller) followMembers(ctx context.Context, name string) {
	if err := c.putMembers(ctx, name); err != nil {
		if errors.Is(err, desired.ErrNotRoot) {
			return // this box stores it when it has claimed the group again
		}
		c.Log.Warn("could not store the state of members for other boxes; rocastd tries again", zap.String("group", name), zap.Error(err))
		c.shared.mu.Lock()
		defer c.shared.mu.Unlock()
		c.shared.pending.members[name] = true // the next tick finds it
	}
}

// putMembers stores the present state of a group's members in etcd. One state is stored at a time,
// so that none takes the place of a later one.
func (c *Controller) putMembers(ctx context.Context, name string) error {
	c.shared.putting.Lock()
	defer c.shared.putting.Unlock()
	c.groups.Lock()
	g := c.groups.Named(name)
	if g == nil || g.Branch != nil {
		c.groups.Unlock()
		return nil // it was removed meanwhile
	}
	all := g.Everywhere()
	text, err := all.TextFor(g.Wanted)
	c.groups.Unlock()
	if err == nil {
		err = c.Desired.PutMembers(ctx, name, text)
	}
	return err
}

// reconcile makes this box's part of a group equal to the desired group. If the same revision was
// set up or refused before, reconcile does nothing, unless again is set.
func (c *Controller) reconcile(ctx context.Context, name string, again bool) {
	// A box that has nothing to do does not lock the group: the group's root may be asking this box
	// for a part of it.
	t := c.claim(ctx, name, again)
	if !t.concerned {
		return
	}
	unlock, _, err := c.groups.Names.Lock(ctx, name, "")
	if err != nil {
		return
	}
	defer unlock()
	e, _ := c.Desired.Entry(name)
	c.groups.Lock()
	g := c.groups.Named(name)
	c.groups.Unlock()
	switch {
	case t.byAddress && isTakenInVain(g, e, c.Box):
		c.Log.Warn("this box has the address of a group, and hears only now that the group's source has switched before; it does not carry the group",
			zap.String("group", name))
		c.letGo(g)
		return
	case t.away && e.Wanted() && hasTurns(e, c.Box):
		if g != nil && !e.Held { // the claim is what lets it tell the other boxes why the group stands still
			_, _ = c.Desired.Claim(ctx, name, e) // the next tick tries again
		}
		c.standStill(g, true)
		c.report(ctx, name, e.Revision, nil)
		return
	case t.away && e.Wanted():
		c.yield(ctx, name, g, "the box does not have the address of a group any more, and stands by for the box that has it")
		return
	case !e.Held && !t.byAddress || !e.Wanted():
		if g != nil && g.Kept && g.Branch == nil {
			c.letGo(g)
			c.shared.look(name) // it may be this box's to begin anew
		}
		return
	case !again && !t.byAddress && settled(e, g != nil): // meanwhile
		return
	}
	file, err := c.parseDesired(ctx, name, e)
	switch {
	case err != nil:
		c.Log.Error("a group in etcd has a file that cannot be read", zap.String("group", name), zap.Error(err))
		return
	case g != nil && g.Branch != nil: // a part of the group, for the box that was the root before
		c.letGo(g)
		g = nil
	case g != nil && file.Addressing != mft.BySwitchIP && !hasTurns(e, c.Box) && c.Branches.IsBehind(&file.Source):
		c.yield(ctx, name, g, "the source of a group is behind another box now, which may become its root")
		return
	}
	if _, gone := c.addressState(name); gone && hasTurns(e, c.Box) {
		c.standStill(g, false)
	} else if gone {
		c.letGo(g)
		g = nil
	}
	err = c.become(ctx, g, file, e, t.begun)
	if t.byAddress && !e.Held && (c.tellLater(name) || !c.tellTakenOver(ctx, name, e)) {
		return
	}
	c.report(ctx, name, e.Revision, err)
}

// parseDesired parses the file of a group that etcd has under a name. Another program may have put
// it there.
func (c *Controller) parseDesired(ctx context.Context, name string, e desired.Entry) (*groupfile.File, error) {
	file, err := c.parseStored(ctx, e.Text)
	if err == nil && file.Name != name {
		return nil, fmt.Errorf("the key names group %s, and its file group %s; delete the key, and create the group with rocast group create", name, file.Name)
	}
	return file, err
}

// followAway looks whether etcd answers until ctx is done.
func (c *Controller) followAway(ctx context.Context) error {
	ticker := time.NewTicker(lookAtDesiredEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.lookAtDesired()
		}
	}
}

// lookAtDesired tells when etcd does not answer, and when it does again.
func (c *Controller) lookAtDesired() {
	if c.Desired == nil {
		return
	}
	why := c.Desired.Away()
	c.groups.Lock()
	defer c.groups.Unlock()
	if was := c.storeAway; was == (why != nil) {
		return
	}
	c.storeAway = why != nil
	e := api.Event{Kind: api.StoreBack, Cause: "etcd answers"}
	if why != nil {
		e = api.Event{Kind: api.StoreAway, Cause: view.StoreAwayText(why)}
	}
	c.groups.Tell(e)
}

// yield ends a group and its claim, so that another box can carry it.
func (c *Controller) yield(ctx context.Context, name string, g *groups.Group, why string) {
	c.Log.Info(why, zap.String("group", name))
	c.letGo(g)
	if err := c.Desired.Yield(ctx, name); err != nil {
		c.Log.Warn("could not give up the claim of a group; rocastd tries again", zap.String("group", name), zap.Error(err))
	}
}

// task says which work a box has with a desired group.
type task struct {
	concerned bool // there is work
	begun     bool // the group may have carried data before
	byAddress bool // this box has the group's address, so it carries the group, even if etcd names another root
	away      bool // the group's address is not on this box
}

// claim returns this box's task for a group. It claims the group if no box has claimed it and the
// group's source is attached to this box.
func (c *Controller) claim(ctx context.Context, name string, again bool) task {
	e, _ := c.Desired.Entry(name)
	v := c.groups.Seen(name)
	part := v != nil && v.Branch != nil // of a group of another root, which sees to it
	ends := task{concerned: v != nil && !part}
	elsewhere := e.Root != "" && e.Root != c.Box
	if untold, _ := c.addressState(name); untold {
		again = true
	}
	switch {
	case v != nil && !v.Kept: // a perftest run's
		return task{}
	case !e.Wanted() || elsewhere && !again:
		return ends
	case e.Held && !again:
		return task{concerned: !settled(e, v != nil), begun: e.Begun}
	}
	file, err := c.parseDesired(ctx, name, e)
	if err != nil {
		return task{concerned: e.Held}
	}
	away, err := c.away(file)
	switch {
	case err != nil:
		c.Log.Warn("could not see whether the box has the address of a group; rocastd tries again", zap.String("group", name), zap.Error(err))
		return task{}
	case away:
		return task{concerned: ends.concerned || e.Held, away: true}
	case (v == nil || part) && !e.Held && e.Begun && chronicle.SaysSwitched(e.Members):
		return task{} // only the box that carried it last has the turns
	case file.Addressing == mft.BySwitchIP && (e.Begun || e.Root != "" || part):
		return task{concerned: true, begun: true, byAddress: true}
	case elsewhere:
		return ends
	case e.Held:
		return task{concerned: true, begun: e.Begun}
	case v != nil && !part && !e.IsCarriedLastBy(c.Box):
		return ends // before it is claimed: from then on it counts as carried by this box
	case file.Addressing != mft.BySwitchIP && (v == nil || part) && !c.attached(ctx, &file.Source):
		return task{}
	}
	claimed, err := c.Desired.Claim(ctx, name, e)
	if err != nil || !claimed {
		return task{} // the next tick or event tries again
	}
	c.Log.Info("this box is the root of a group now", zap.String("group", name), zap.Bool("begun", e.Begun))
	if v != nil {
		c.keepMembers(name) // what happened while it was not the root
	}
	return task{concerned: true, begun: e.Begun}
}

// hasTurns reports whether this box alone can carry a group, because the source has switched and
// only this box has the turns.
func hasTurns(e desired.Entry, box string) bool {
	return e.Wanted() && chronicle.SaysSwitched(e.Members) && e.IsCarriedLastBy(box)
}

// isTakenInVain reports whether this box has begun a group with its address, or is about to, and
// did not know that the group's source had switched: only the box that carried it last has the
// turns.
func isTakenInVain(g *groups.Group, e desired.Entry, box string) bool {
	return (g == nil || !g.Past.Switched) && chronicle.SaysSwitched(e.Members) && !e.IsCarriedLastBy(box)
}

// settled reports whether this box has set up or refused the present version of a group.
func settled(e desired.Entry, isHere bool) bool {
	r := reportOf(e)
	return r != nil && r.Revision == e.Revision && (isHere || r.Refused != "")
}

// letGo ends a group that is not wanted any more, or that another box has claimed.
func (c *Controller) letGo(g *groups.Group) {
	if g == nil {
		return
	}
	c.groups.Lock()
	err := c.groups.Forget(g)
	c.groups.Unlock()
	if err != nil {
		c.Log.Error("could not remove a group that is not desired any more; rocastd tries again", zap.String("group", g.Name), zap.Error(err))
		return
	}
	c.Branches.Withdraw(g.Name, g.Links)
}

// attached reports whether a group's source reaches the fabric by this box: the way to it does not
// lead through a neighbour.
func (c *Controller) attached(ctx context.Context, source *groupfile.Member) bool {
	c.NextHops.Track(source.IP)
	defer c.NextHops.Untrack(source.IP)
	settling, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	c.NextHops.Settle(settling, []netip.Addr{source.IP})
	return c.NextHops.Hop(source.IP).Known() && !c.Branches.IsBehind(source)
}

// become sets up a group that this box has claimed, or changes it. begun reports whether it may
// have carried data before, so that its QPs have advanced.
func (c *Controller) become(ctx context.Context, g *groups.Group, file *groupfile.File, e desired.Entry, begun bool) error {
	settling := ctx
	if file.Addressing == mft.BySwitchIP && begun { // data may be on its way: a host that is down must not delay the others
		var cancel func()
		settling, cancel = context.WithTimeout(ctx, takeOverSettles)
		defer cancel()
	}
	defer c.settle(settling, file.Members())()
	if g != nil {
		c.groups.Lock()
		g.Claim = e.Claim
		c.groups.Unlock()
	}
	if g == nil {
		g = groups.New(file, true)
		g.Claim = e.Claim
		if g.Restored = begun; begun {
			past, err := chronicle.Read(e.Members, file, false)
			if err == nil && past.Switched {
				err = errors.New(switchedElsewhere(e))
			}
			if err != nil {
				return err
			}
			g.Past = past
		}
		return c.Branches.Stand(ctx, g, e.Text)
	}
	text, err := c.Store.Get(g.Name)
	if err != nil || bytes.Equal(text, e.Text) {
		return err
	}
	return c.catchUp(ctx, g, file, e.Text)
}

// catchUp makes a running group that of a desired file. This box may have missed versions in
// between, of which each was one change.
func (c *Controller) catchUp(ctx context.Context, g *groups.Group, file *groupfile.File, text []byte) error {
	steps := []*groupfile.File{file}
	if g.Wanted != nil {
		steps = file.Steps(g.Wanted)
	}
	for _, step := range steps {
		c.groups.Lock()
		err := c.mayBecome(g, g.Name, step)
		c.groups.Unlock()
		if err != nil {
			return err
		}
		kept := text
		if step != file {
			kept = step.Text()
		}
		if err := c.Branches.Change(ctx, g, step, kept, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// report says to all boxes how a group of this box is, if that has changed.
func (c *Controller) report(ctx context.Context, name string, revision int64, refused error) {
	r := report{Revision: revision}
	if refused != nil {
		r.Refused = groups.APIError(refused).Error()
	}
	c.groups.Lock()
	if g := c.groups.Named(name); g != nil {
		r.Group = view.Summary(&g.Version)
	} else {
		r.Group = api.GroupSummary{Name: name, State: api.Failed, Reason: r.Refused}
	}
	c.groups.Unlock()
	text, err := json.Marshal(r)
	if e, _ := c.Desired.Entry(name); err == nil && e.Report != string(text) {
		err = c.Desired.Report(ctx, name, string(text))
	}
	if err != nil && ctx.Err() == nil {
		c.Log.Warn("could not report a group to other boxes; rocastd tries again", zap.String("group", name), zap.Error(err))
	}
}

// createShared adds a group to the desired ones, and waits until a box has set it up. If none does,
// the group is removed again.
func (c *Controller) createShared(ctx context.Context, file *groupfile.File, text []byte) (api.Group, error) {
	if c.groups.Seen(file.Name) != nil {
		return api.Group{}, groups.NameTaken(file)
	}
	revision, err := c.Desired.Create(ctx, file.Name, text)
	if errors.Is(err, desired.ErrExists) {
		return api.Group{}, groups.NameTaken(file)
	}
	if err != nil {
		return api.Group{}, unavailable(err)
	}
	return c.awaitReport(ctx, file, revision, func(ctx context.Context) error {
		if err := c.Desired.Remove(ctx, file.Name, revision); !errors.Is(err, desired.ErrChanged) {
			return err
		}
		return nil // changed meanwhile
	})
}

// updateShared changes a desired group, and waits until its root has followed. If the root refuses
// the change, it is taken back.
func (c *Controller) updateShared(ctx context.Context, file *groupfile.File, text []byte, from *basis) (api.Group, error) {
	e, _ := c.Desired.Entry(file.Name)
	if !e.Wanted() {
		return api.Group{}, c.notShared(file.Name)
	}
	if from != nil && from.revision != e.Revision {
		return api.Group{}, groups.ChangedMeanwhile(file.Name)
	}
	was, err := c.parseStored(ctx, e.Text)
	if err == nil {
		err = errors.Join(file.CheckUpdate(was), file.CheckOneChange(was))
	}
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	revision, err := c.Desired.Update(ctx, file.Name, text, e.Revision)
	if errors.Is(err, desired.ErrChanged) {
		return api.Group{}, groups.ChangedMeanwhile(file.Name)
	}
	if err != nil {
		return api.Group{}, unavailable(err)
	}
	return c.awaitReport(ctx, file, revision, func(ctx context.Context) error {
		_, err := c.Desired.Update(ctx, file.Name, e.Text, revision)
		return err
	})
}

// removeShared removes a desired group. Its root follows.
func (c *Controller) removeShared(ctx context.Context, name string, from *basis) error {
	revision := int64(0) // any
	if from != nil {
		revision = from.revision
	}
	switch err := c.Desired.Remove(ctx, name, revision); {
	case errors.Is(err, desired.ErrChanged):
		return groups.ChangedMeanwhile(name)
	case errors.Is(err, desired.ErrMissing):
		return c.notShared(name)
	case err != nil:
		return unavailable(err)
	}
	for {
		heard := c.shared.next()
		if e, _ := c.Desired.Entry(name); !e.Wanted() {
			c.reconcile(ctx, name, false)
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
func (c *Controller) notShared(name string) error {
	switch g := c.groups.Seen(name); {
	case g == nil:
		return groups.NoGroup(name)
	case g.Branch != nil:
		return belongsTo(g)
	case !g.Kept:
		return api.Errorf(api.BadRequest, "group %s belongs to a perftest run or an RDMA-CM connection, which ends it", name)
	default:
		return api.Errorf(api.NotFound, "group %s was removed meanwhile", name)
	}
}

// awaitReport waits until a box has set up a version of a group. If no box does, or one refuses it,
// takeBack undoes the change.
func (c *Controller) awaitReport(ctx context.Context, file *groupfile.File, revision int64, takeBack func(context.Context) error) (api.Group, error) {
	g, err := c.reported(ctx, file, revision)
	if err == nil {
		return g, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackWithin) // the request may have ended
	defer cancel()
	return api.Group{}, groups.APIError(errors.Join(err, takeBack(ctx)))
}

// reported returns a version of a group as the box says that has set it up, or why no box has.
func (c *Controller) reported(ctx context.Context, file *groupfile.File, revision int64) (api.Group, error) {
	waiting, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	unclaimed := time.NewTimer(claimWithin)
	defer unclaimed.Stop()
	for {
		heard := c.shared.next()
		e, _ := c.Desired.Entry(file.Name)
		if r := reportOf(e); r != nil && r.Revision >= revision {
			if r.Refused != "" {
				return api.Group{}, api.Errorf(api.BadRequest, "box %s, to which the source is attached, refuses the group: %s", e.Root, r.Refused)
			}
			return c.sharedGroup(file.Name, r), nil
		}
		select {
		case <-heard:
		case <-unclaimed.C:
			if e, _ := c.Desired.Entry(file.Name); e.Root == "" {
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

// sharedGroup describes a group: in full if it is here, else as its root reports it.
func (c *Controller) sharedGroup(name string, r *report) api.Group {
	if v := c.groups.Seen(name); v != nil {
		return c.view(v)
	}
	return api.Group{GroupSummary: r.Group}
}

// elsewhere returns the desired groups that are not on this box, as their roots report them.
func (c *Controller) elsewhere() (list []api.GroupSummary) {
	if c.Desired == nil {
		return nil
	}
	for _, name := range c.Desired.Names() {
		if c.groups.Seen(name) != nil {
			continue
		}
		if s, ok := c.summaryElsewhere(name); ok {
			list = append(list, s)
		}
	}
	return list
}

// summaryElsewhere describes a desired group that is not on this box.
func (c *Controller) summaryElsewhere(name string) (s api.GroupSummary, ok bool) {
	if c.Desired == nil {
		return s, false
	}
	e, _ := c.Desired.Entry(name)
	if !e.Wanted() {
		return s, false
	}
	if r := reportOf(e); r != nil {
		r.Group.Name = name
		return r.Group, true
	}
	if e.Begun && chronicle.SaysSwitched(e.Members) {
		return api.GroupSummary{Name: name, State: api.Failed, Root: e.Root, Reason: switchedElsewhere(e)}, true
	}
	return api.GroupSummary{Name: name, State: api.Waiting, Root: e.Root, Reason: "no box has set it up: its source is not attached to any"}, true
}

// switchedElsewhere is why no other box carries a group whose source has switched: only the box
// that was the root has stored the turns.
func switchedElsewhere(e desired.Entry) string {
	return fmt.Sprintf("its source has switched, and only %s knows the offsets between the members' PSNs; start that box, "+
		"or remove the group and create it again with fresh QPs and PSNs", cmp.Or(e.Last, "the box that carried it"))
}

func unavailable(err error) error { return api.Errorf(api.Unavailable, "%v", err) }
