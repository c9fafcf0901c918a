package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// ByTrouble returns the names of the groups of operators that are not ready, then of their
// others, and then the same of all other groups: those can be any number.
func ByTrouble(all []*groups.Version) (names []string) {
	rank := map[string]int{}
	for _, v := range all {
		s := Summary(v)
		rank[v.Name] = 2 * rankOf(&s)
		if s.State == api.Ready {
			rank[v.Name]++
		}
	}
	return slices.SortedFunc(maps.Keys(rank), func(a, b string) int { return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b)) })
}

// Traffic returns what a group has carried, where the data path has it in this state; happened
// counts its events.
func Traffic(g *groups.Version, state dataplane.GroupState, happened map[api.EventKind]uint64, now time.Time) (t api.GroupTraffic) {
	s := Summary(g)
	if s.Reason == "" {
		s.Reason = waitsBecause(g)
	}
	t = api.GroupTraffic{Name: g.Name, State: s.State, Reason: s.Reason, By: s.By, Unconfirmed: s.Unconfirmed, Events: happened, Receivers: []api.ReceiverTraffic{}}
	if g.File == nil {
		return t
	}
	if g.Published != nil {
		var engine api.Engine
		addEngine(&engine, state.Engine)
		t.Carrier = engine.Carrier
	}
	t.Packets, t.Bytes = state.Traffic.Packets, state.Traffic.Bytes
	t.Copies, t.CopyBytes, t.Mapped = state.Traffic.Copies, state.Traffic.CopyBytes, state.Traffic.Mapped
	t.Drops = api.Counters{}
	for i, n := range state.Counters {
		switch reason := dataplane.Reason(i); {
		case reason == dataplane.Reason(feedback.Resent):
			t.Resent = n.Value
		case reason < dataplane.NumReasons && isDropped(reason) && n.Value > 0:
			t.Drops[n.Name] = n.Value
		}
	}
	t.Source, t.Shares = sourceTraffic(g), sharesOf(state)
	t.Receivers = append(t.Receivers, receiverTraffic(g, now, state)...)
	return t
}

// isDropped reports whether a frame with this reason was of no use to its sender.
func isDropped(r dataplane.Reason) bool {
	return r.Verdict() == dataplane.Drop || r == dataplane.Reason(feedback.Refused) || r == dataplane.RefusedMemory
}

// sourceTraffic says why a source that is no receiver does not get on; nil: it does, as far as is
// known.
func sourceTraffic(g *groups.Version) *api.SourceTraffic {
	for l := range g.Legs().Members() {
		if kind, why := TroubleOf(g, l); kind != "" && l.Member.Role == groupfile.Source {
			return &api.SourceTraffic{IP: l.Member.IP.String(), RemoteQPN: uint32(l.Member.RemoteQPN), Trouble: kind, Reason: why}
		}
	}
	return nil
}

// receiverTraffic describes the receivers, in the order of the group file.
func receiverTraffic(g *groups.Version, now time.Time, state dataplane.GroupState) (list []api.ReceiverTraffic) {
	for l := range g.Legs().Members() {
		m := l.Member
		if m.Role == groupfile.Source {
			continue
		}
		reach := reachOf(g, l)
		r := api.ReceiverTraffic{
			IP: g.Own(m).IP.String(), RemoteQPN: uint32(g.Own(m).RemoteQPN), Box: cmp.Or(g.BoxBehind(m.ID()), g.RelayedBy(m.ID())), Port: reach.Port,
			State: reach.State, Reason: reach.Reason,
		}
		if kind, why := TroubleOf(g, l); kind != "" {
			r.Trouble, r.Reason = kind, why
		}
		if g.Published != nil {
			addTraffic(g, now, &r, m, state)
		}
		list = append(list, r)
	}
	return list
}

// addTraffic adds what a receiver has answered, and how far it is behind.
func addTraffic(g *groups.Version, now time.Time, r *api.ReceiverTraffic, m *groupfile.Member, state dataplane.GroupState) {
	path := pathOf(m, state)
	if path < 0 {
		return
	}
	of, p := state.Receivers[path], state.Paths[path]
	r.Acknowledged, r.NAKs, r.RNRs, r.CNPs, r.Repaired = of.Acknowledged, of.NAKs, of.RNRs, of.CNPs, p.Repaired
	if !IsWaitedFor(p.Part) || m.ID() == g.Source {
		return
	}
	if lag := state.Sent.Sub(p.Acked); lag > 0 {
		r.Lag = min(uint64(lag), state.Traffic.Sent)
		history := g.Found.Since(now, g.ID, state.Traffic.Sent)
		r.LagSeconds = history.Age(now, state.Traffic.Sent-r.Lag).Seconds()
	}
}
