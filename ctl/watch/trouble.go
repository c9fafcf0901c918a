package watch

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// lookAtRepair records which receivers get their data by repair alone, or wait for the source
// because repair has given up, for longer than after.
func lookAtRepair(f *groups.Findings, now time.Time, paths []mft.Path, state []feedback.PathSnapshot, after time.Duration) {
	was := f.Repairs
	f.Repairs = nil
	for i := range paths {
		s := &state[i]
		if after == 0 || s.Part != feedback.PartActive || !s.Repairing && !s.Unmended {
			continue
		}
		id := groupfile.ID{IP: paths[i].Dst, RemoteQPN: paths[i].RemoteQPN}
		m := was[id]
		m.Kind, m.Cause = "", ""
		if lasts(&m.Repairing, s.Repairing, now) >= after {
			m.Kind, m.Cause = api.TroubleRepairing, "it gets its data by repair alone: its link loses packets, or it is slow"
		}
		if lasts(&m.Unmended, s.Unmended, now) >= after {
			m.Kind, m.Cause = api.TroubleUnmended, fmt.Sprintf("repair has fallen back on the source, which has to send packet %d again", s.Acked.Next())
		}
		if f.Repairs == nil {
			f.Repairs = map[groupfile.ID]groups.RepairTrouble{}
		}
		f.Repairs[id] = m
	}
}

// lasts returns for how long something has been the case. since keeps when that began.
func lasts(since *time.Time, is bool, now time.Time) time.Duration {
	switch {
	case !is:
		*since = time.Time{}
		return 0
	case since.IsZero():
		*since = now
	}
	return now.Sub(*since)
}

// lookAtTrouble records when a group begins and ceases to be degraded because of a member, unless
// the group has a graver reason.
func (w *Watch) lookAtTrouble(g *groups.Group) {
	s := view.Summary(&g.Version)
	is := view.IsTroubled(&g.Version, &s)
	p := w.paceOf(g)
	if changed := is != p.troubled || is && s.GoesOn != p.goesOn; changed && (is || s.State == api.Ready) {
		w.reportTrouble(g, &s, "no member is in trouble any more")
	}
}

// reportTrouble records that a group is degraded because of a member, or that it no longer is.
func (w *Watch) reportTrouble(g *groups.Group, s *api.GroupSummary, over string) {
	p := w.paceOf(g)
	p.troubled, p.goesOn = view.IsTroubled(&g.Version, s), s.GoesOn
	e := api.Event{Kind: api.GroupRestored, Group: g.Name, Cause: over, Goodput: g.Found.Goodput}
	switch fields := []zap.Field{zap.String("group", g.Name), zap.String("reason", s.Reason)}; {
	case s.GoesOn:
		e.Kind, e.Cause, e.GoesOn = api.GroupDegraded, s.Reason, true
		w.Log.Info("a group is degraded, and goes on", fields...)
	case p.troubled:
		e.Kind, e.Cause = api.GroupDegraded, s.Reason
		w.Log.Warn("a group is degraded", fields...)
	}
	w.Groups.AddEvent(e)
}
