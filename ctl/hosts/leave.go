package hosts

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
)

// leaves begins the request of a host that leaves its group, or ends it for all: member then gets
// what the host is there. A host that only waited for the group waits no more.
func (d *desk) leaves(member func(now time.Time, t *task, g *Group, m *api.Member) act) next {
	return func(now time.Time, t *task, e event) act {
		closed, waited := d.hall.Leave(now, t.name, t.ip)
		if waited && !e.isThere { // else a group of that name has come by another way
			return end(nil)
		}
		looks := act{do: look, then: d.leaving(waited, member)}
		if closed == nil {
			return looks
		}
		return act{do: made, over: closed.Over(), then: func(_ time.Time, _ *task, e event) act { // its group is being created
			if e.err != nil {
				return end(e.err)
			}
			return looks
		}}
	}
}

func (d *desk) leaving(waited bool, member func(time.Time, *task, *Group, *api.Member) act) next {
	return func(now time.Time, t *task, e event) act {
		err := e.err
		var m *api.Member
		if err == nil {
			d.noteSenders(e.group)
			err = ours(e.group)
			m = memberAt(e.group, t.ip)
		}
		switch {
		case waited && (err != nil || m == nil): // a group of that name that is not this host's
			return end(nil)
		case err == nil && m == nil:
			err = api.Errorf(api.NotFound, "%v is not in group %s", t.ip, t.name)
		}
		if kindOf(err) == api.NotFound { // the group has ended before, or another host's change has removed this one
			d.hall.HasLeft(t.name, t.ip)
		}
		if err != nil {
			return end(err)
		}
		return member(now, t, e.group, m)
	}
}

// leavesAlone ends the membership of one host. If the host's program has not heard yet that the
// group was created, it hears now that the host has left.
func (d *desk) leavesAlone(_ time.Time, t *task, _ *Group, m *api.Member) act {
	d.hall.HasLeft(t.name, t.ip)
	return d.drops(m, func(_ time.Time, _ *task, _ bool, err error) act { return end(err) })
}

// endsAll ends the membership of all. With tell the others hear with their next question that the
// group has ended; otherwise they are members that will make the group anew.
func (d *desk) endsAll(notify bool) func(time.Time, *task, *Group, *api.Member) act {
	return func(_ time.Time, t *task, g *Group, m *api.Member) act {
		if m.Role == groupfile.Receiver.String() {
			return end(api.Errorf(api.Forbidden, "%v only receives, so it cannot end group %s; it may leave", t.ip, t.name))
		}
		return act{do: read, then: func(now time.Time, t *task, e event) act {
			switch {
			case e.err != nil:
				return end(e.err)
			case e.file.Hosts != groupfile.HostsEnd:
				return end(api.Errorf(api.Forbidden, "group %s was not made by hosts, so they may leave it and not end it; rocast group rm ends it", t.name))
			}
			if notify { // before the others see that it is gone
				d.keep(now, endedBy(g, t.ip, "%s has ended group %s", t.ip, t.name))
			}
			d.hall.HasLeft(t.name, t.ip)
			return d.removes(e.from, func(_ time.Time, t *task, e event) act {
				if e.err == nil && notify {
					t.sayHost(zap.InfoLevel, "a host has ended its group")
				}
				return end(e.err)
			})
		}}
	}
}

// drops takes a member out of a group that runs, or removes the group if it cannot be without the
// member. The task holds the lock; gone says that the group was to be removed.
func (d *desk) drops(m *api.Member, then func(now time.Time, t *task, gone bool, err error) act) act {
	return act{do: read, then: func(now time.Time, t *task, e event) act {
		if e.err != nil {
			return then(now, t, false, e.err)
		}
		next := *e.file
		next.Receivers = slices.DeleteFunc(slices.Clone(e.file.Receivers), func(r groupfile.Member) bool { return r.IP == t.ip })
		if e.file.Source.IP == t.ip || m.Part == api.PartSource || listeners(&next) == 0 {
			return act{do: look, then: d.endsWith(e.from, then)}
		}
		return act{do: change, text: next.Text(), from: e.from, then: func(now time.Time, t *task, e event) act {
			if e.err == nil {
				t.sayHost(zap.InfoLevel, "a host has left")
			}
			return then(now, t, false, unlined(e.err))
		}}
	}}
}

// removes removes a group that is still from: somebody else may have made another one of its name
// meanwhile. The members of a group that stays do not hear that it has ended.
func (d *desk) removes(from Basis, then next) act {
	return act{do: remove, from: from, then: func(now time.Time, t *task, e event) act {
		if e.err != nil {
			delete(d.ended, t.name)
		}
		return then(now, t, e)
	}}
}

// endsWith removes a group, which is still from, with a member.
func (d *desk) endsWith(from Basis, then func(now time.Time, t *task, gone bool, err error) act) next {
	return func(now time.Time, t *task, e event) act {
		if e.err != nil {
			return then(now, t, false, e.err)
		}
		d.keepEnded(now, e.group, t.ip) // before the others see that it is gone
		return d.removes(from, func(now time.Time, t *task, e event) act {
			if e.err == nil {
				t.sayHost(zap.InfoLevel, "a host has left, and its group has ended")
			}
			return then(now, t, true, e.err)
		})
	}
}

// listeners counts the receivers besides the source.
func listeners(f *groupfile.File) int {
	n := len(f.Receivers)
	if f.Source.Role == groupfile.Both {
		n--
	}
	return n
}

// endedGroup is a group that has ended because of one of its members.
type endedGroup struct {
	api.HostGroup          // as the other members hear it
	members       []string // that hear it, by IP
	without       netip.Addr
	at            time.Time // when it ended
}

// keepEnded keeps what the members of a group hear that ends because a host leaves: that they can
// make it anew, or, if none of them can send, that it has ended.
func (d *desk) keepEnded(now time.Time, g *Group, host netip.Addr) {
	after := &endedGroup{HostGroup: d.describe(g), without: host}
	after.Members = slices.DeleteFunc(after.Members, func(m api.HostMember) bool { return m.IP == host.String() })
	isSender := func(m api.HostMember) bool { return m.Role != groupfile.Receiver.String() }
	switch {
	case !slices.ContainsFunc(after.Members, isSender):
		after = endedBy(g, host, "%s has left, and group %s has ended with it", host, g.Name)
	case len(after.Members) < 2: // it hears that there is no group when it sends next
		return
	default:
		for _, m := range after.Members {
			after.members = append(after.members, m.IP)
		}
		after.ClearToSend, after.Degraded = false, true
		after.Reason = fmt.Sprintf("%s has left, and the group could not be without it; the others make it anew when one of them sends", host)
	}
	d.keep(now, after)
}

// endedBy returns what the members of a group hear that has ended because of one of them.
func endedBy(g *Group, host netip.Addr, format string, args ...any) *endedGroup {
	after := &endedGroup{HostGroup: api.HostGroup{Name: g.Name, State: api.HostEnded, Reason: fmt.Sprintf(format, args...)}, without: host}
	for _, m := range g.Members {
		if m.IP != host.String() {
			after.members = append(after.members, m.IP)
		}
	}
	return after
}

// keep remembers for a while what the other members of a group that has ended are to hear.
func (d *desk) keep(now time.Time, after *endedGroup) {
	after.Version = versionOf(after.HostGroup)
	d.forgetEnded(now)
	if len(d.ended) < maxLeft {
		after.at = now
		d.ended[after.Name] = after
	}
}

// forgetEnded forgets the groups that have ended long ago.
func (d *desk) forgetEnded(now time.Time) {
	maps.DeleteFunc(d.ended, func(_ string, g *endedGroup) bool { return now.Sub(g.at) > keepLeft })
}

// endedFor returns the ended group of a name if the host was one of its other members, else nil.
func (d *desk) endedFor(now time.Time, name string, host netip.Addr) *endedGroup {
	d.forgetEnded(now)
	if g := d.ended[name]; g != nil && slices.Contains(g.members, host.String()) {
		return g
	}
	return nil
}

// unheard is the answer to a member that had not heard of the group before it ended. If the other
// members make the group again when one of them sends, the answer has their number.
func (g *endedGroup) unheard() (api.HostGroup, error) {
	if g.State == api.HostEnded {
		return g.HostGroup, nil
	}
	return api.HostGroup{}, api.Errorf(api.Stale, "%v has left, and group %s could not be without it; join it again, with %d members",
		g.without, g.Name, len(g.members))
}

// unlined removes the line from an error about a group file: nobody has seen the lines.
func unlined(err error) error {
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Line > 0 {
		return api.Errorf(api.BadRequest, "%s", e.Message)
	}
	return err
}

func kindOf(err error) api.Kind {
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
