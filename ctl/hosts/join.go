package hosts

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// joins begins the question of a host that is to be a member.
func (d *desk) joins(_ time.Time, t *task, _ event) act {
	if t.seen == "" { // it joins anew; otherwise it asks again, because it has seen who had come
		d.hall.Forget(t.name, t.host)
	}
	return d.looks()
}

// looks begins with the group: there may be one now.
func (d *desk) looks() act {
	return act{do: look, then: func(now time.Time, t *task, e event) act {
		if e.err != nil || e.group.Hosts {
			return d.looked(now, t, e)
		}
		// etcd may say that there is a group before this box knows that hosts make it.
		return d.whenMade(t.name, func() act { return act{do: look, then: d.looked} })
	}}
}

// whenMade goes on after the group of a name has been created whose hosts have all come, if there
// is such a group.
func (d *desk) whenMade(name string, goOn func() act) act {
	party := d.hall.Party(name)
	if party == nil || !party.Closed {
		return goOn()
	}
	return act{do: made, over: party.Hosts[0].Over(), then: func(_ time.Time, _ *task, e event) act {
		if e.err != nil {
			return end(e.err)
		}
		return goOn()
	}}
}

// looked makes a host a member of a group that runs, or lets it wait for a group.
func (d *desk) looked(now time.Time, t *task, e event) act {
	host, err := t.host, e.err
	if kindOf(err) == api.NotFound && !host.Ready {
		return act{do: enter, then: d.enters}
	}
	if err == nil {
		err = ours(e.group)
	}
	if err != nil {
		return d.refuse(now, t, err)
	}
	d.noteSenders(e.group)
	if err := host.Shows(t.name, e.group.Secret); err != nil {
		return d.refuse(now, t, err)
	}
	m := memberAt(e.group, host.IP)
	is := m != nil && m.QPN == host.QPN && m.PSN == host.PSN
	switch {
	case host.Ready && !is:
		return d.refuse(now, t, api.Errorf(api.NotFound, "QP %d of %v is not in group %s; join again", host.QPN, host.IP, t.name))
	case host.Ready && m.Confirm:
		return d.confirms(now, t, m)
	case is:
		return d.follows(now, t, e)
	}
	if _, err := d.hall.Ended(now, t.name, host); err != nil {
		return end(err)
	}
	group := e.group
	return act{do: read, then: func(now time.Time, t *task, e event) act {
		err := e.err
		if err == nil {
			err = d.refuseLateSender(group, host)
		}
		if err == nil {
			err = host.Agrees(t.name, e.file.Policy)
		}
		switch {
		case err != nil:
			return end(err)
		case m != nil:
			return d.whenMade(t.name, func() act { return d.replaces(t, m) })
		}
		return d.comes(now, t, e)
	}}
}

// confirms records that a member's QP is ready. A source needs no confirmation.
func (d *desk) confirms(now time.Time, t *task, m *api.Member) act {
	text, err := json.Marshal(api.Confirmation{IP: m.IP, QPN: m.QPN, State: "RTS", PSN: &m.PSN})
	if err != nil {
		return d.refuse(now, t, err)
	}
	return act{do: confirm, text: text, then: d.follows}
}

// replaces lets a program take the place of another one of its host, which started again. While the
// group was being created, the hall did not know how the waiting of its hosts would end.
func (d *desk) replaces(t *task, m *api.Member) act {
	d.hall.Forget(t.name, t.host)
	d.hall.Replaced(t.name, t.ip)
	return d.drops(m, func(now time.Time, t *task, gone bool, err error) act {
		switch {
		case err != nil:
			return end(err)
		case gone:
			return act{do: enter, then: d.enters}
		}
		return act{do: read, then: d.comes}
	})
}

// comes adds a host to a group that runs.
func (d *desk) comes(_ time.Time, t *task, e event) act {
	if e.err != nil {
		return end(e.err)
	}
	host, file := t.host, e.file
	m, err := host.Member(file.Memory)
	if err == nil {
		err = d.roomFor(host.IP, e.known)
	}
	switch {
	case err != nil:
		return end(err)
	case m.Role == groupfile.Source:
		return end(api.Errorf(api.BadRequest, "group %s runs, and its source is %v; join with role receiver", t.name, file.Source.IP))
	case host.MTU < file.PathMTU:
		return end(api.Errorf(api.BadRequest, "the path MTU of %v is %d, and that of group %s is %d", host.IP, host.MTU, t.name, file.PathMTU))
	}
	m.RemoteQPN = file.QPN
	next := *file
	next.Receivers = append(slices.Clone(file.Receivers), m)
	return act{do: change, text: next.Text(), from: e.from, then: func(now time.Time, t *task, e event) act {
		if e.err != nil {
			return end(unlined(e.err))
		}
		t.sayHost(zap.InfoLevel, "a host has joined")
		return d.follows(now, t, e)
	}}
}

// ours refuses a group that hosts may not join.
func ours(g *Group) error {
	if g.Upper != nil || g.Root != "" {
		return api.Errorf(api.BadRequest, "group %s was created on another box; join it there", g.Name)
	}
	if !g.Hosts {
		return api.Errorf(api.Forbidden, "group %s was not made by hosts, so they cannot join it; take another name", g.Name)
	}
	return nil
}

// memberAt returns the member of a group at an address, or nil.
func memberAt(g *Group, ip netip.Addr) *api.Member {
	if at := slices.IndexFunc(g.Members, func(m api.Member) bool { return m.IP == ip.String() }); at >= 0 {
		return &g.Members[at]
	}
	return nil
}

// noteSenders remembers which members of a group have a role that sends.
func (d *desk) noteSenders(g *Group) {
	if d.senders[g.Name] == nil {
		d.senders[g.Name] = map[netip.Addr]bool{}
	}
	for _, m := range g.Members {
		if m.Role != groupfile.Receiver.String() {
			ip, _ := netip.ParseAddr(m.IP) // control wrote it
			d.senders[g.Name][ip] = true
		}
	}
}

// refuseLateSender refuses a host that comes later and would send, to memory that others have
// registered for those that they made the group with.
func (d *desk) refuseLateSender(g *Group, host *gather.Host) error {
	if host.Role != groupfile.Both.String() || d.senders[g.Name][host.IP] {
		return nil
	}
	return api.Errorf(api.Forbidden, "group %s runs, and hosts that come later only receive; join with role receiver, or when the group begins", g.Name)
}

// refuse answers with an error. A member whose group has ended hears of that instead, if the box
// remembers.
func (d *desk) refuse(now time.Time, t *task, err error) act {
	if kindOf(err) != api.NotFound || !t.host.Ready {
		return end(err)
	}
	after := d.endedFor(now, t.name, t.ip)
	switch {
	case after == nil:
		return end(err)
	case after.Version == t.seen:
		return act{do: outwait, then: func(time.Time, *task, event) act { return act{do: answer, group: after.HostGroup} }}
	}
	return act{do: answer, group: after.HostGroup}
}

// enters lets a host wait for the other hosts of a group. With the last one the group is created.
func (d *desk) enters(now time.Time, t *task, e event) act {
	if e.isThere { // created since the host asked for it
		return d.looks()
	}
	ended, err := d.hall.Ended(now, t.name, t.host)
	if err != nil {
		return end(err)
	}
	if after := d.endedFor(now, t.name, t.ip); ended && after != nil {
		group, err := after.unheard()
		return act{do: answer, group: group, err: err}
	}
	if err := d.roomFor(t.ip, e.known); err != nil {
		return end(err)
	}
	host := t.host.Anew()
	if d.isMadeAnew(now, t.name, host) {
		return d.waitsForTheOthers(now, t, e, host)
	}
	party, there, all, err := d.hall.Come(now, t.name, host)
	switch {
	case err != nil:
		return end(err)
	case all:
		return act{do: choose, party: party, then: d.chose(party, there)}
	case t.seen != "": // who came is told at first, and when the time is over: not each host of each other one
		return act{do: wait, over: there.Over(), then: d.waited(party, there)}
	}
	return d.waited(party, there)(now, t, e)
}

// waited answers a host that has waited for others: with who has come, or why it waits no more. If
// another question has created the group, the host looks at that.
func (d *desk) waited(party *gather.Party, there *gather.Host) next {
	return func(now time.Time, t *task, e event) act {
		defer d.hall.Answered(now, party, there, e.hungUp)
		switch {
		case there.Refusal() != nil:
			return end(there.Refusal())
		case party.Closed && d.hall.Party(t.name) != party:
			return d.looks()
		}
		return act{do: answer, group: gathering(t.name, party.Came())}
	}
}

func gathering(name string, came []string) api.HostGroup {
	answer := api.HostGroup{Name: name, State: api.HostGathering, Came: came}
	answer.Version = versionOf(answer)
	return answer
}

// isMadeAnew reports whether a host has to wait until the other members have made the group again
// that ended when this host left; it joins afterwards. The others wait for one member fewer. If all
// programs have started again, they name the same number of members as this host, and it makes the
// group with them.
func (d *desk) isMadeAnew(now time.Time, name string, host *gather.Host) bool {
	d.forgetEnded(now)
	after, party := d.ended[name], d.hall.Party(name)
	return after != nil && after.State == api.HostRunning && after.without == host.IP && (party == nil || party.Members != host.Members)
}

// waitsForTheOthers lets a host wait until the others have made its group anew.
func (d *desk) waitsForTheOthers(now time.Time, t *task, e event, host *gather.Host) act {
	d.hall.WaitsElsewhere(now, t.name, host)
	if t.seen != "" && !e.isOver {
		return act{do: other, then: func(time.Time, *task, event) act { return d.looks() }}
	}
	return act{do: answer, group: gathering(t.name, []string{t.ip.String()})}
}

// chose creates the group of a party, of which all hosts have come.
func (d *desk) chose(party *gather.Party, there *gather.Host) next {
	return func(now time.Time, t *task, e event) act {
		created := d.created(party, there)
		if e.err != nil {
			return created(now, t, e)
		}
		text, err := party.File(e.first, t.groupIP, d.freeQPN(e.taken), e.rkey&^(gather.MaxRegions-1))
		if err != nil {
			e.err = err
			return created(now, t, e)
		}
		return act{do: create, text: text, then: created}
	}
}

// created tells those who wait that their group is there, or why it is not.
func (d *desk) created(party *gather.Party, there *gather.Host) next {
	return func(now time.Time, t *task, e event) act {
		defer d.hall.Answered(now, party, there, e.hungUp)
		err := unlined(e.err)
		d.hall.Close(now, party, err)
		if err != nil {
			t.say(zap.WarnLevel, "hosts could not make a group", zap.Error(err))
			return end(err)
		}
		if d.ended[t.name] == nil { // the group is not made anew by those of one before
			delete(d.senders, t.name)
		}
		delete(d.ended, t.name)
		for _, host := range party.Hosts { // with their ports, so that nobody hears of each of them
			d.know(now, t.name, host)
		}
		t.say(zap.InfoLevel, "created by hosts", zap.Strings("hosts", party.Came()))
		return d.follows(now, t, e)
	}
}

// freeQPN returns a QPN that no group at the IP has. It is not that of a group before: packets of
// that one may be on their way.
func (d *desk) freeQPN(taken map[roce.QPN]bool) roce.QPN {
	for {
		if d.qpn++; d.qpn > maxHostQPN || d.qpn < minHostQPN {
			d.qpn = minHostQPN
		}
		if !taken[d.qpn] {
			return d.qpn
		}
	}
}

// roomFor refuses one more group of a host that is in too many.
func (d *desk) roomFor(host netip.Addr, known []Known) error {
	in, unconfirmed := 0, 0
	for _, g := range known {
		if g.File != nil && g.File.Hosts != groupfile.HostsNothing && slices.ContainsFunc(g.File.Members(), func(m groupfile.Member) bool { return m.IP == host }) {
			in++
			if len(g.Unconfirmed) > 0 {
				unconfirmed++
			}
		}
	}
	var err error
	switch {
	case in >= maxOfHost:
		err = api.Errorf(api.Unavailable, "%v is in %d groups already; let it leave some of them, or end some with rocast group rm", host, in)
	case unconfirmed >= maxUnconfirmed:
		err = api.Errorf(api.Unavailable, "%v is in %d groups of which members have not said that their QPs are ready; let them say so, or leave", host, unconfirmed)
	default:
		return nil
	}
	d.full(host)
	return err
}

// follows answers the program of a member with its group, as soon as the answer has another version
// than it has seen.
func (d *desk) follows(now time.Time, t *task, e event) act {
	if e.err != nil {
		return d.refuse(now, t, e.err)
	}
	p := d.know(now, t.name, t.host)
	p.asks, p.hungUp = p.asks+1, false
	t.asking = p
	return d.followed(now, t, e)
}

func (d *desk) followed(now time.Time, t *task, e event) act {
	answered := func() {
		p := t.asking
		p.asks, p.last, p.hungUp = p.asks-1, now, e.hungUp
	}
	switch {
	case kindOf(e.err) == api.NotFound:
		answered()
		return d.looks()
	case e.err != nil:
		answered()
		return end(e.err)
	}
	group := d.describe(e.group)
	if e.isOver || group.Version != t.seen {
		answered()
		return act{do: answer, group: group}
	}
	return act{do: follow, then: d.followed}
}

// describe says what the members of a group hear of it.
func (d *desk) describe(g *Group) api.HostGroup {
	a := api.HostGroup{
		Name: g.Name, State: api.HostRunning, IP: g.IP, QPN: g.QPN, MTU: g.MTU, Memory: g.Memory, ClearToSend: g.ClearToSend,
		Degraded: g.State == api.Failed || g.State == api.Degraded && !g.GoesOn, Reason: g.Reason,
	}
	if p := g.Policy; p != nil {
		if p.Ack != feedback.AckAll.String() {
			a.Ack = p.Ack
		}
		a.Evicts = p.Evict || p.OnFatal == feedback.FatalEvict.String()
	}
	for _, m := range g.Members {
		ip, _ := netip.ParseAddr(m.IP)
		known := api.HostMember{IP: m.IP, Role: m.Role}
		if p := d.programs[g.Name][ip]; p != nil && p.qpn == m.QPN {
			known.Port = p.port
		}
		a.Members = append(a.Members, known)
	}
	a.Version = versionOf(a)
	return a
}

// versionOf returns a word that differs if the answer does, except for the reason.
func versionOf(a api.HostGroup) string {
	a.Reason = ""
	text, _ := json.Marshal(a) // never fails
	sum := fnv.New64a()
	sum.Write(text)
	return fmt.Sprintf("%016x", sum.Sum64())
}
