package watch

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/goodput"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

const (
	lookAtProgressEvery = 250 * time.Millisecond
	// lookAtMost bounds the groups that are looked at in one period, because each look asks a
	// worker. If there are more groups, each is looked at less often.
	lookAtMost = 256
	// standsAfter is the time without progress after which the log speaks of a standstill. QPs that
	// retry after a loss get on much sooner.
	standsAfter = time.Second
)

// pace is what a look at a running group remembers for the next one.
type pace struct {
	meter    goodput.Meter
	stalls   goodput.Stalls[groupfile.ID]
	still    goodput.Standstill
	senders  senders
	silences silences
	keeping  keeping
	epoch    uint64 // counts PSN spaces: each source has its own, in each group of the data path
	id       mft.GroupID
	source   groupfile.ID
	quiet    bool // the log speaks of a standstill, so it does not have the slowness (Findings.Seen) as well
	troubled bool // an event has said that a member is in trouble
	goesOn   bool // and that the group goes on
}

// paceOf returns what is remembered of a group.
func (w *Watch) paceOf(g *groups.Group) *pace {
	if w.paces[g] == nil {
		w.paces[g] = new(pace)
	}
	return w.paces[g]
}

// forgetPaces forgets groups that have gone, if more groups are remembered than there are.
func (w *Watch) forgetPaces(groups int) {
	w.Groups.Lock()
	defer w.Groups.Unlock()
	if len(w.paces) <= groups {
		return
	}
	for g := range w.paces {
		if w.Groups.Named(g.Name) != g {
			delete(w.paces, g)
		}
	}
}

// goodputOf returns nil if the meter does not know yet what the group can do.
func goodputOf(m *goodput.Meter) *api.Goodput {
	if m.Best() == 0 {
		return nil
	}
	return &api.Goodput{Now: m.Rate(), Before: m.Best()}
}

// FollowProgress looks at the progress of the groups until ctx is done.
func (w *Watch) FollowProgress(ctx context.Context) error {
	ticker := time.NewTicker(lookAtProgressEvery)
	defer ticker.Stop()
	var names []string
	var strays time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if now := time.Now(); now.Sub(strays) >= lookAtStraysEvery {
			strays = now
			w.lookAtStrays(now)
		}
		if len(names) == 0 {
			names = w.Groups.SeenNames()
			w.forgetPaces(len(names))
		}
		n := min(len(names), lookAtMost)
		for _, name := range names[:n] {
			w.Look(name, time.Now())
		}
		names = names[n:]
	}
}

// Look looks at the progress of a group. It tells when the group begins and ceases to be degraded,
// and when a receiver stalls and returns. The hosts of members that are silent are asked for their
// MACs.
func (w *Watch) Look(name string, now time.Time) {
	for _, host := range w.lookAt(name, now) {
		w.Doubt(host) // asks the kernel, so the groups are not locked
	}
}

func (w *Watch) lookAt(name string, now time.Time) (silent []netip.Addr) {
	w.Groups.Lock()
	defer w.Groups.Unlock()
	g := w.Groups.Named(name)
	if g == nil || g.Published == nil {
		return nil
	}
	w.Hear()
	w.retryTurn(g)
	if state, ok := w.Switch.GroupState(g.ID); ok {
		w.Groups.Enter(g, &state)
		w.Groups.ShareAsNow(g)
		w.keepUp(g)
		w.renewTurn(g, state.Snapshot)
		w.lookAtSenders(now, g, state)
		w.lookAtShares(g, now, state)
		silent = silentHosts(g, &w.paceOf(g).silences, now, state)
		g.Found.History, g.Found.In = g.Found.Since(now, g.ID, state.Traffic.Sent), g.ID
		if g.File.DegradedAfter != 0 || g.Found.Degraded {
			w.measure(g, now, state)
		}
	}
	w.lookAtTrouble(g)
	w.Groups.Changed(g)
	return silent
}

// measure compares the progress of a group with its earlier progress.
func (w *Watch) measure(g *groups.Group, now time.Time, state dataplane.GroupState) {
	if !state.Started {
		return
	}
	p := w.paceOf(g)
	sample := goodput.Sample{Sent: state.Sent, Merged: state.Merged, Turned: p.id == g.ID}
	if p.id != g.ID || p.source != g.Source {
		p.id, p.source = g.ID, g.Source
		p.epoch++
	}
	sample.Epoch = p.epoch
	after := g.File.DegradedAfter
	stood := p.still.Stands()
	lookAtFloor(g, state)
	w.lookAtStandstill(g, now, sample, state)
	lookAtRepair(&g.Found, now, g.Published.Paths, state.Paths, after)
	change := p.meter.Step(now, sample, goodput.Limits{Below: float64(g.File.DegradedBelow) / 100, After: after})
	g.Found.Degraded, g.Found.Goodput = p.meter.IsDegraded(), goodputOf(&p.meter)
	stalls := after
	if sourceStops(g, state) {
		stalls = math.MaxInt64 // a receiver that waits for the source does not stall
	}
	stalled, returned := p.stalls.Step(now, sample, progressOf(g, state, feedback.PartActive), stalls)
	g.Found.Stalled = p.stalls.Stalled()
	for _, id := range stalled {
		w.stalled(g, id, after)
	}
	for _, id := range returned {
		if !stood {
			w.Log.Info("a receiver acknowledges again", fieldsOf(g, id)...)
		}
		w.Groups.MemberEvent(api.MemberReturned, g, id, "it acknowledges again")
	}
	switch change {
	case goodput.Degraded:
		w.degraded(g, state)
	case goodput.Restored:
		if !p.quiet {
			w.Log.Info("a group is no longer degraded", zap.String("group", g.Name))
		}
		w.Restored(g, "its packets get on again")
	}
}

// lookAtFloor records the paths for which the source's packets wait. Of the paths that have
// everything of which the source has heard, these are the ones furthest behind; a quorum has gone
// on without the other paths. A path of which nothing is known is waited for too.
func lookAtFloor(g *groups.Group, state dataplane.GroupState) {
	g.Found.AtFloor = nil
	if !state.Sent.After(state.Merged) {
		return
	}
	g.Found.AtFloor = map[groupfile.ID]bool{}
	last, _ := slowest(g, state)
	for i := range state.Paths {
		s, path := &state.Paths[i], &g.Published.Paths[i]
		if s.Part == feedback.PartUnknown || view.IsWaitedFor(s.Part) && s.Acked == last.Acked {
			g.Found.AtFloor[groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}] = true
		}
	}
}

// sourceStops reports whether the source sends nothing more for a reason that is known: it cannot
// be reached, or it has heard, or is about to hear, the NAK that ends its QP.
func sourceStops(g *groups.Group, state dataplane.GroupState) bool {
	for i := range state.Paths {
		path := &g.Published.Paths[i]
		if state.Paths[i].Part == feedback.PartDead && g.Found.AtFloor[groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}] {
			return true
		}
	}
	for l := range g.Plan.Members() {
		if kind, _ := view.TroubleOf(&g.Version, l); view.IsCause(kind) && g.IsSource(l.Member) {
			return true
		}
	}
	return false
}

// progressOf returns the receivers whose part is one of parts, and what each has acknowledged.
func progressOf(g *groups.Group, state dataplane.GroupState, parts ...feedback.Part) (list []goodput.Progress[groupfile.ID]) {
	for i := range state.Paths {
		path := &g.Published.Paths[i]
		id := groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}
		if slices.Contains(parts, state.Paths[i].Part) && id != g.Source {
			list = append(list, goodput.Progress[groupfile.ID]{ID: id, Acked: state.Paths[i].Acked})
		}
	}
	return list
}

func (w *Watch) stalled(g *groups.Group, id groupfile.ID, after time.Duration) {
	if !w.paceOf(g).still.Stands() {
		w.Log.Warn("a receiver has stalled", fieldsOf(g, id)...)
	}
	w.Groups.MemberEvent(api.MemberStalled, g, id, "it has acknowledged nothing for %v, and others are further", after)
}

// degraded records that few packets get on, or none, and for which receiver they wait.
func (w *Watch) degraded(g *groups.Group, state dataplane.GroupState) {
	p, f := w.paceOf(g), &g.Found
	e := api.Event{Kind: api.GroupDegraded, Group: g.Name, Goodput: f.Goodput}
	f.Seen, f.Last = fmt.Sprintf("%.0f packets a second get on, and %.0f did before", p.meter.Rate(), p.meter.Best()), ""
	if p.meter.Rate() == 0 {
		f.Seen = "packets wait, and none gets on"
	}
	who, known := view.HeldUpBy(&g.Version)
	switch last, ok := slowest(g, state); {
	case ok:
		f.Last = fmt.Sprintf("the last is %v, which lacks the source's packet %d", last.ID.IP, last.Acked.Next())
		if known == "" {
			who = last.ID
		}
	case last.Acked.Before(state.Sent):
		f.Last = fmt.Sprintf("no receiver has acknowledged the source's packet %d", last.Acked.Next())
	}
	if who.IP.IsValid() {
		e.Member, e.RemoteQPN = who.IP.String(), uint32(who.RemoteQPN)
	}
	e.Cause = view.SlowBecause(&g.Version)
	if p.quiet = p.still.Stands(); !p.quiet {
		w.Log.Warn("a group is degraded", zap.String("group", g.Name), zap.String("reason", e.Cause))
	}
	w.Groups.AddEvent(e)
}

// slowest returns the receiver that is furthest behind, of those that the source may wait for. ok
// is false if it lacks nothing, or if all of them are equally far. A receiver whose QP has ended
// counts, because the source waits for it in vain.
func slowest(g *groups.Group, state dataplane.GroupState) (last goodput.Progress[groupfile.ID], ok bool) {
	list := slices.DeleteFunc(progressOf(g, state, feedback.PartActive, feedback.PartDead), func(p goodput.Progress[groupfile.ID]) bool {
		return p.Acked.Before(state.Merged)
	})
	if len(list) == 0 {
		return goodput.Progress[groupfile.ID]{Acked: state.Sent}, false
	}
	compare := func(a, b goodput.Progress[groupfile.ID]) int { return int(a.Acked.Sub(b.Acked)) }
	last = slices.MinFunc(list, compare)
	alone := len(list) == 1 || slices.MaxFunc(list, compare).Acked != last.Acked
	return last, alone && last.Acked.Before(state.Sent)
}

// lookAtStandstill logs when a group stands still, once, with the receiver that it waits for, and
// when it gets on again.
func (w *Watch) lookAtStandstill(g *groups.Group, now time.Time, sample goodput.Sample, state dataplane.GroupState) {
	begun, ended, lasted := w.paceOf(g).still.Step(now, sample, standsAfter)
	switch {
	case ended:
		w.Log.Info("a group gets on again", zap.String("group", g.Name), zap.Duration("after", lasted))
	case begun:
		fields := []zap.Field{zap.String("group", g.Name)}
		who, why := view.HeldUpBy(&g.Version)
		if why != "" {
			fields = fieldsOf(g, who)
		} else {
			why = view.Trouble(&g.Version) // the receiver that is furthest behind may be another one
			if last, ok := slowest(g, state); ok {
				fields = append(fieldsOf(g, last.ID), zap.Uint32("lacksPSN", uint32(last.Acked.Next())))
			}
		}
		if why != "" {
			fields = append(fields, zap.String("reason", why))
		}
		w.Log.Warn("a group stands still: packets wait, and the source has heard no acknowledgement", append(fields, zap.Duration("for", lasted))...)
	}
}

// Restored records that the reason for which a group was degraded is over, unless there is another
// one. If only a member is in trouble, it records that the group is degraded and goes on. The
// caller has locked the groups.
func (w *Watch) Restored(g *groups.Group, cause string) {
	if g.Found.Degraded || g.TreeProblem != "" || g.Away != "" {
		return
	}
	s := view.Summary(&g.Version)
	w.reportTrouble(g, &s, cause)
}
