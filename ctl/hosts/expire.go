package hosts

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
)

const (
	// silentProgram is how long a program may ask nothing before the box connects to it. It may be
	// busy with other things for any time: the host's kernel takes the connection.
	silentProgram = 30 * time.Second
	// confirmWithin is how long a member may take to say that its QP is ready. Programs do that at
	// once; a member that never does would keep its group waiting.
	confirmWithin = 2 * time.Minute
)

// program is the program of a member, as its questions show it.
type program struct {
	qpn, psn uint32
	port     uint16 // where it answers other members; 0: unknown
	asks     int    // questions that wait for an answer
	last     time.Time
	hungUp   bool // the last question ended by its connection, without an answer
}

// know returns the program of a member.
func (d *desk) know(now time.Time, name string, host *gather.Host) *program {
	if d.programs[name] == nil {
		d.programs[name] = map[netip.Addr]*program{}
	}
	p := d.programs[name][host.IP]
	if p == nil || p.qpn != host.QPN || p.psn != host.PSN {
		p = &program{qpn: host.QPN, psn: host.PSN}
		d.programs[name][host.IP] = p
	}
	p.port, p.last = host.Port, now
	return p
}

// silent is a member whose program asks nothing.
type silent struct {
	group   string
	host    netip.Addr
	program *program
	port    uint16
}

// silentPrograms returns the programs that are looked at, and forgets those of groups that have
// ended.
func (d *desk) silentPrograms(now time.Time, known []Known) (list []silent) {
	running := map[string]bool{}
	for _, g := range known {
		running[g.Name] = true
	}
	d.forgetEnded(now)
	maps.DeleteFunc(d.senders, func(name string, _ map[netip.Addr]bool) bool { return !running[name] && d.ended[name] == nil })
	for name, programs := range d.programs {
		if !running[name] {
			delete(d.programs, name)
			continue
		}
		for host, p := range programs {
			patience := silentProgram
			if p.hungUp {
				patience = gather.Patience
			}
			if p.asks == 0 && now.Sub(p.last) > patience && (p.hungUp || p.port != 0) {
				p.last = now // it is looked at again after this time
				list = append(list, silent{group: name, host: host, program: p, port: p.port})
			}
		}
	}
	return list
}

// expires removes a member whose program has gone, unless it asks again.
func (d *desk) expires(s silent) next {
	isIt := func() bool { return d.programs[s.group][s.host] == s.program }
	forget := func() act {
		if isIt() {
			delete(d.programs[s.group], s.host)
		}
		return end(nil)
	}
	looked := func(_ time.Time, t *task, e event) act {
		if !isIt() || s.program.asks > 0 || s.port == 0 && !s.program.hungUp { // it is back
			return end(nil)
		}
		if e.err != nil || ours(e.group) != nil {
			return end(nil)
		}
		m := memberAt(e.group, s.host)
		if m == nil || m.QPN != s.program.qpn || m.PSN != s.program.psn {
			return forget()
		}
		t.sayHost(zap.WarnLevel, "the program of a host has ended without leaving its group")
		return d.drops(m, func(_ time.Time, t *task, _ bool, err error) act {
			if err != nil {
				t.say(zap.ErrorLevel, "could not remove a member whose program has ended; it is tried again", zap.Error(err))
				return end(nil)
			}
			return forget()
		})
	}
	return func(time.Time, *task, event) act { return act{do: look, then: looked} }
}

// waiting is a member that has not said that its QP is ready.
type waiting struct {
	group  string
	member groupfile.ID
}

// lateToConfirm records since when members have not confirmed, and returns the members whose time
// to confirm is over. In a group that an operator created, only members that joined by themselves
// count.
func (d *desk) lateToConfirm(now time.Time, known []Known) (late []waiting) {
	since := map[waiting]time.Time{}
	for _, g := range known {
		if g.File == nil || g.IsBranch || g.File.Hosts == groupfile.HostsNothing {
			continue
		}
		for _, id := range g.Unconfirmed {
			w := waiting{g.Name, id}
			if g.File.Hosts != groupfile.HostsEnd && d.programs[g.Name][id.IP] == nil {
				continue
			}
			if since[w] = d.unconfirmed[w]; since[w].IsZero() {
				since[w] = now
			}
			if now.Sub(since[w]) >= confirmWithin {
				late = append(late, w)
			}
		}
	}
	d.unconfirmed = since
	return late
}

// lapses removes a member that has not confirmed in time.
func (d *desk) lapses(w waiting) next {
	looked := func(_ time.Time, t *task, e event) act {
		var m *api.Member
		if e.err == nil && slices.Contains(e.group.Unconfirmed, w.member) {
			m = memberAt(e.group, w.member.IP)
		}
		if m == nil {
			return end(nil) // it has confirmed meanwhile, or left
		}
		t.sayHost(zap.WarnLevel, "the program of a host has not said that its QP is ready, so its member is removed", zap.Duration("within", confirmWithin))
		return d.drops(m, func(_ time.Time, t *task, _ bool, err error) act {
			if err != nil {
				t.say(zap.ErrorLevel, "could not remove a member that has not confirmed; it is tried again", zap.Error(err))
				return end(nil)
			}
			delete(d.unconfirmed, w) // one that joins again has its own time
			return end(nil)
		})
	}
	return func(time.Time, *task, event) act { return act{do: look, then: looked} }
}
