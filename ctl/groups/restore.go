package groups

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
)

// Restore sets up the stored groups again. If a group fails, it stays stored, is shown as failed,
// and RetryFailed tries again; the other groups are still restored.
func (s *Set) Restore() error {
	kept, err := s.Store.Restore()
	if err != nil {
		return err
	}
	if s.Store.Damage != nil {
		s.Log.Error("the record of the last clean stop is not used; groups are restored as after a crash", zap.Error(s.Store.Damage))
	}
	s.Lock()
	defer s.Unlock()
	for _, k := range kept {
		s.restore(k)
	}
	// Remove addresses that a crash left on interfaces and that no group needs.
	if err := s.Addresses.Sweep(); err != nil {
		s.Log.Error("could not remove an address that an earlier run added", zap.Error(err))
	}
	return nil
}

func (s *Set) restore(k store.Group) {
	// Set restored before anything can fail. A failed group carries no data, so a failure must not
	// change whether the group counts as idle: see IsIdle.
	g := &Group{Version: Version{Name: k.Name, Kept: true, Restored: !k.Idle}, shown: new(atomic.Pointer[Version]), unkept: !k.Clean}
	s.enlist(g)
	s.Events.Begin(g.Name)
	if k.Err != nil {
		if file, err := groupfile.ParseStored(k.Text); err == nil { // then the neighbours can be told
			g = New(file, true)
			g.Name, g.Restored, g.unkept = k.Name, !k.Idle, !k.Clean
			s.enlist(g)
			_ = g.recallTree(k.Tree, time.Now())
		}
		s.fail(g, unreadable(k.Err))
		return
	}
	file, err := groupfile.ParseStored(k.Text)
	if err != nil {
		s.fail(g, fmt.Errorf("%w; remove the group and create it again", err))
		return
	}
	g = New(file, true)
	g.Name, g.Restored, g.unkept = k.Name, !k.Idle, !k.Clean
	s.enlist(g)
	if err := g.recallTree(k.Tree, time.Now()); err != nil {
		s.fail(g, err)
		return
	}
	if err := s.recallTable(g); err != nil {
		s.fail(g, unreadable(err))
		return
	}
	if err := g.recall(k); err != nil {
		s.fail(g, err)
		return
	}
	// Store what recall made of the state after a crash, before a packet depends on it, and before
	// the group can fail: the next restart must not read it again as the state of another stop.
	s.keepChronicle(g)
	if err := s.begin(g); err != nil {
		s.fail(g, willBeRetried(g, err))
		s.trackFailed(g)
		return
	}
	s.Log.Info("group restored", zap.String("group", g.Name), zap.Bool("fresh", !g.Restored), zap.Int("waiting", g.Waiting()))
}

// unreadable is why a group fails of which a stored file cannot be read.
func unreadable(err error) error {
	return fmt.Errorf("%w; repair the cause and restart rocastd, or remove the group and create it again", err)
}

// RetryEvery is the period for retrying failed groups. A change in the network causes a retry at
// once, but other changes send no event: for example, the removal of another group that used the
// same QPN.
const RetryEvery = 5 * time.Second

// willBeRetried adds to the reason of a failure what becomes of the group. A retry does not help a
// group whose file an older release has accepted and this one refuses.
func willBeRetried(g *Group, err error) error {
	if g.Wanted.Policy.Repair == feedback.RepairOff && g.Wanted.NeedsRepair() != "" {
		return fmt.Errorf("%w; remove the group and create it again", err)
	}
	return fmt.Errorf("%w; rocastd tries again every %v", err, RetryEvery)
}

// RetryFailed retries the failed groups whose file and state are readable. For other groups a retry
// cannot help.
func (s *Set) RetryFailed() {
	s.Lock()
	defer s.Unlock()
	if err := s.Store.Forget(); err != nil {
		s.Log.Debug("could not remove the record of the last clean stop", zap.Error(err))
	}
	for _, g := range s.groups {
		if s.hasFailed(g) {
			s.Retry(g)
		}
	}
}

// Retry sets up a group that failed before.
func (s *Set) Retry(g *Group) {
	s.untrack(g)
	s.Changed(g)
	if err := s.begin(g); err != nil {
		g.Problem = willBeRetried(g, err).Error()
		s.trackFailed(g)
		return
	}
	g.Problem = ""
	if g.unkept {
		s.keepChronicle(g)
	}
	s.Log.Info("group restored after a failure", zap.String("group", g.Name))
}

// recall reads the stored state of a group's members.
func (g *Group) recall(k store.Group) (err error) {
	if k.Idle { // all members start with the first packet
		g.Past, err = chronicle.ReadConfirmed(k.State, g.File)
		return err
	}
	if g.Past, err = chronicle.Read(k.State, g.File, k.Clean); err != nil {
		return err
	}
	if g.Past.Forgotten() {
		return errSwitched
	}
	if t := g.Past.Turn; t != nil {
		g.Source = groupfile.ID(t.Source)
	}
	return nil
}

// errSwitched: an earlier release did not store turns. Only its data path knew the current
// source and the PSN offsets between the members.
var errSwitched = errors.New("the source had switched before the daemon ended, and the offsets between the " +
	"members' PSNs " +
	"are lost; remove the group and create it again with fresh QPs and PSNs")

// fail records why a stored group is not published. An error message about the file may quote an
// R_Key that stands in a wrong place, so the log gets only the line number.
func (s *Set) fail(g *Group, err error) {
	g.Problem = err.Error()
	s.Changed(g)
	why := zap.Error(err)
	if line := yamldoc.Line(err); line > 0 {
		why = zap.Int("line", line)
	}
	s.Log.Error("group could not be restored; rocast group show says why", zap.String("group", g.Name), why)
}
