package gather

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
)

const (
	// MaxParties bounds the groups that wait for hosts, and maxOfHost those of them that one host
	// waits for: one host alone cannot keep all others out.
	MaxParties = 4096
	maxOfHost  = 64
	// Patience is how long a host counts that asks no more. Hosts ask again every api.MaxEventWait.
	Patience = 10 * time.Second
	// keepEnding is how long the hall keeps how a host's waiting ended. That is much longer than a
	// host takes from an answer to its next question. Each host has at most maxOfHost endings,
	// because it can come and leave by any number of names, and all together have maxEndings.
	keepEnding = 10 * time.Second
	maxEndings = 4096
)

// Party is a group that waits for hosts.
type Party struct {
	Name    string
	Hosts   []*Host // in the order in which they came
	Members int
	// Closed says that all have come, and that the group is being created.
	Closed bool
}

// Hall holds the parties. The zero value is ready for use.
type Hall struct {
	// Full is called when a host is refused because of a bound.
	Full func(host netip.Addr)

	parties map[string]*Party
	ended   []ending // the oldest first
}

// ending is a host that waits no more. It may hear why only with its next question.
type ending struct {
	name string
	host *Host
	why  error // nil: its group was created, or it waits elsewhere for it
	at   time.Time
}

// Party returns the party of a name, or nil.
func (l *Hall) Party(name string) *Party { return l.parties[name] }

// Come takes a question of a host. The first question adds the host to the party, and a later one
// says that the host still waits. there is the host as the party has it. all reports that the party
// is complete: the caller then creates the group and calls Close. After each Come without an error
// the caller calls Answered once.
func (l *Hall) Come(now time.Time, name string, h *Host) (p *Party, there *Host, all bool, err error) {
	l.expire(now)
	p = l.parties[name]
	if p == nil {
		if p, err = l.open(name, h); err != nil {
			return nil, nil, false, err
		}
	}
	at := p.at(h.IP)
	switch {
	case at >= 0 && p.Hosts[at].Is(h):
		there = p.Hosts[at]
		there.last, there.asks = now, there.asks+1
		return p, there, false, nil
	case p.Closed:
		return nil, nil, false, api.Errorf(api.Unavailable, "group %s is being created; join again", name)
	case p.Members != h.Members && (at < 0 || len(p.Hosts) > 1):
		return nil, nil, false, api.Errorf(api.BadRequest, "members is %d, and the hosts that came before (%v first) say %d; write the same at all hosts",
			h.Members, p.Hosts[0].IP, p.Members)
	}
	if err := p.fits(h, at); err != nil {
		return nil, nil, false, err
	}
	h.last, h.asks = now, 1
	l.Forget(name, h)
	if at >= 0 { // its program has started again
		l.end(now, name, p.Hosts[at], replaced(name, h.IP))
		close(p.Hosts[at].over)
		p.Hosts[at], p.Members = h, h.Members
	} else {
		p.Hosts = append(p.Hosts, h)
	}
	p.Closed = len(p.Hosts) == p.Members
	return p, h, p.Closed, nil
}

func (l *Hall) open(name string, h *Host) (*Party, error) {
	waits := 0
	for _, p := range l.parties {
		if slices.ContainsFunc(p.Hosts, func(o *Host) bool { return o.IP == h.IP }) {
			waits++
		}
	}
	if (waits >= maxOfHost || len(l.parties) >= MaxParties) && l.Full != nil {
		l.Full(h.IP)
	}
	switch {
	case waits >= maxOfHost:
		return nil, api.Errorf(api.Unavailable, "%v waits for %d groups already; let some of them begin first", h.IP, waits)
	case len(l.parties) >= MaxParties:
		return nil, api.Errorf(api.Unavailable, "%d groups wait for hosts already; let some of them begin first", len(l.parties))
	}
	p := &Party{Name: name, Members: h.Members}
	if l.parties == nil {
		l.parties = map[string]*Party{}
	}
	l.parties[name] = p
	return p, nil
}

// fits refuses a host that does not go together with the others. It replaces the one at.
func (p *Party) fits(h *Host, at int) error {
	senders, receivers := 0, 0
	for i, o := range append(slices.Clone(p.Hosts), h) {
		if i == at {
			continue
		}
		if err := h.Shows(p.Name, groupfile.SecretOf(o.Secret)); err != nil {
			return err
		}
		switch {
		case o.role == groupfile.Source && h.role == groupfile.Source && o != h:
			return api.Errorf(api.BadRequest, "%v is the source of group %s already; join with role receiver, or let all members that send have role both",
				o.IP, p.Name)
		case o.role != groupfile.Source && h.role != groupfile.Source && len(o.Regions) != len(h.Regions):
			return api.Errorf(api.BadRequest, "%v has %d regions, and %v has %d; all receivers have equally many", h.IP, len(h.Regions), o.IP, len(o.Regions))
		case !o.policy.Same(h.policy):
			return api.Errorf(api.BadRequest, "%v says policy %s, and %v says %s; write the same policy at all hosts of group %s, or at one alone",
				h.IP, h.Policy, o.IP, o.Policy, p.Name)
		case o.IP.Is4() != h.IP.Is4():
			return api.Errorf(api.BadRequest, "%v and %v are addresses of two families; a group has one", h.IP, o.IP)
		}
		if o.role != groupfile.Receiver {
			senders++
		}
		if o.role != groupfile.Source {
			receivers++
		}
	}
	if senders == 0 && receivers == p.Members {
		return api.Errorf(api.BadRequest, "all %d hosts of group %s are receivers; one has to join with role source or both", p.Members, p.Name)
	}
	return nil
}

// Answered ends a Come. left says that the host ended its connection before the answer.
func (l *Hall) Answered(now time.Time, p *Party, there *Host, left bool) {
	there.last, there.asks = now, there.asks-1
	if left && there.asks == 0 && !p.Closed && p.waits(there) {
		l.leave(p, there)
	}
}

func (l *Hall) leave(p *Party, h *Host) {
	close(h.over)
	p.Hosts = slices.DeleteFunc(p.Hosts, func(o *Host) bool { return o == h })
	if len(p.Hosts) == 0 && l.parties[p.Name] == p {
		delete(l.parties, p.Name)
	}
}

// end records why a host waits no more, for its waiting questions and for its next one; nil: its
// group was created. If the list is full, the oldest ending of this host is dropped, or the oldest
// of all.
func (l *Hall) end(now time.Time, name string, h *Host, why error) {
	h.refusal = why
	own := 0
	for _, e := range l.ended {
		if e.host.IP == h.IP {
			own++
		}
	}
	if own >= maxOfHost || len(l.ended) >= maxEndings {
		at := slices.IndexFunc(l.ended, func(e ending) bool { return own < maxOfHost || e.host.IP == h.IP })
		l.ended = slices.Delete(l.ended, at, at+1)
	}
	l.ended = append(l.ended, ending{name, h, why, now})
}

// Forget drops the record of how an earlier waiting of a host ended. It is called when the host
// joins again.
func (l *Hall) Forget(name string, h *Host) {
	l.ended = slices.DeleteFunc(l.ended, func(e ending) bool { return e.name == name && e.host.Is(h) })
}

// Ended reports whether the waiting of a host has ended since its last question, and why; nil: its
// group was created, or the host waits for it outside the hall.
func (l *Hall) Ended(now time.Time, name string, h *Host) (ended bool, why error) {
	for _, e := range l.ended {
		if e.name == name && e.host.Is(h) && now.Sub(e.at) <= keepEnding {
			return true, e.why
		}
	}
	return false, nil
}

// WaitsElsewhere records that a host waits for its group outside the hall. If the host leaves, or
// another program of it joins, its next question hears of it as in the hall.
func (l *Hall) WaitsElsewhere(now time.Time, name string, h *Host) {
	l.Forget(name, h)
	l.Replaced(name, h.IP)
	l.end(now, name, h, nil)
}

// expire removes the hosts that ask no more.
func (l *Hall) expire(now time.Time) {
	l.ended = slices.DeleteFunc(l.ended, func(e ending) bool { return now.Sub(e.at) > keepEnding })
	for _, p := range slices.Collect(maps.Values(l.parties)) {
		for _, h := range slices.Clone(p.Hosts) {
			if h.asks == 0 && !p.Closed && now.Sub(h.last) > Patience {
				l.leave(p, h)
			}
		}
	}
}

// Leave removes a waiting host, and reports whether the host was waiting. If its group is being
// created, Leave returns the host: it can leave when the creation is over.
func (l *Hall) Leave(now time.Time, name string, ip netip.Addr) (closed *Host, waited bool) {
	p := l.parties[name]
	if p == nil {
		return nil, false
	}
	at := p.at(ip)
	switch {
	case at < 0:
		return nil, false
	case p.Closed:
		return p.Hosts[at], false
	}
	l.end(now, name, p.Hosts[at], hasLeft(name, ip))
	l.leave(p, p.Hosts[at])
	return nil, true
}

// Close ends a party: its group was created, or why says why it could not be.
func (l *Hall) Close(now time.Time, p *Party, why error) {
	delete(l.parties, p.Name)
	for _, h := range p.Hosts {
		l.end(now, p.Name, h, why)
		close(h.over)
	}
}

// HasLeft records that a host has left its group. The program of the host may not have heard yet
// that the group was created.
func (l *Hall) HasLeft(name string, ip netip.Addr) { l.endAfter(name, ip, hasLeft(name, ip)) }

// Replaced records that another program of a host has taken the member's place in the group. The
// earlier program may not have heard yet that the group was created.
func (l *Hall) Replaced(name string, ip netip.Addr) { l.endAfter(name, ip, replaced(name, ip)) }

// endAfter gives a reason to the endings of a host that have none: the group was created, and now
// the host is not in it any more.
func (l *Hall) endAfter(name string, ip netip.Addr, why error) {
	for i := range l.ended {
		if e := &l.ended[i]; e.name == name && e.host.IP == ip && e.why == nil {
			e.why = why
		}
	}
}

func hasLeft(name string, ip netip.Addr) error {
	return api.Errorf(api.Stale, "%v has left group %s; join it again to be in it", ip, name)
}

func replaced(name string, ip netip.Addr) error {
	return api.Errorf(api.Stale, "another program of %v joins group %s now, so this one cannot", ip, name)
}

// at returns the index of the host with this IP, or -1.
func (p *Party) at(ip netip.Addr) int {
	return slices.IndexFunc(p.Hosts, func(h *Host) bool { return h.IP == ip })
}

// waits reports whether a host is still in the party.
func (p *Party) waits(there *Host) bool { return slices.Contains(p.Hosts, there) }

// Came returns the IPs of the hosts.
func (p *Party) Came() (ips []string) {
	for _, h := range p.Hosts {
		ips = append(ips, h.IP.String())
	}
	return ips
}
