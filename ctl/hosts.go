package ctl

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// Hosts makes groups of what hosts say about themselves, by the same ways as requests of the API
// do: Create, Update, Confirm, Remove. Its methods may be called from any goroutine.
type Hosts struct {
	c      *Controller
	config gather.Config

	// connect connects to a host's program and hangs up.
	connect func(context.Context, netip.AddrPort) error

	mu   sync.Mutex
	hall gather.Hall
	qpn  roce.QPN // of the newest group
	// programs are those of the members, by group. What a daemon before knew comes again with the
	// next question of each host.
	programs map[string]map[netip.Addr]*program
	feeds    map[string]*feed
	// senders are the hosts that have sent in a group since it was made, or since the daemon began:
	// they may come back with a role that sends.
	senders map[string]map[netip.Addr]bool
	// unconfirmed has since when the box knows that a member has not confirmed.
	unconfirmed map[waiting]time.Time
	// left are groups that have ended, for the members that were left.
	left map[string]*leftGroup
}

// waiting is a member that has not said that its QP is ready.
type waiting struct {
	group  string
	member groupfile.ID
}

// leftGroup is a group that has ended because of one of its members.
type leftGroup struct {
	api.HostGroup          // as the members hear it that are left
	members       []string // that hear it, by IP
	without       netip.Addr
	at            time.Time // when it ended
}

// NewHosts returns Hosts without a group.
func NewHosts(c *Controller, config gather.Config) *Hosts {
	var start [4]byte
	_, _ = rand.Read(start[:]) // never fails
	full := func(host netip.Addr) { c.Bounds.Met(bounds.HostGroups, host.String()) }
	return &Hosts{
		c: c, hall: gather.Hall{Full: full}, config: config, connect: connectTo,
		qpn:      roce.QPN(binary.BigEndian.Uint32(start[:]) % maxHostQPN),
		programs: map[string]map[netip.Addr]*program{}, feeds: map[string]*feed{}, left: map[string]*leftGroup{},
		senders: map[string]map[netip.Addr]bool{}, unconfirmed: map[waiting]time.Time{},
	}
}

const (
	// The QPNs of groups. 0 and 1 are QPs of management on every port, and the highest one is that
	// of multicast.
	minHostQPN = 2
	maxHostQPN = 1<<24 - 2
	// maxOfHost bounds the groups of one host that run, and maxUnconfirmed those of them of which a
	// member has not said that its QP is ready: one host alone cannot use up what the box has for
	// groups.
	maxOfHost      = 256
	maxUnconfirmed = 64
	// workWithin bounds what a question does besides waiting.
	workWithin = 10 * time.Second
	// keepLeft is how long members hear whom a group had that has ended. They are to ask about once
	// a second, and hear of it then.
	keepLeft = 10 * time.Minute
	// maxLeft bounds the groups that are kept so: hosts may make and leave any number of groups.
	maxLeft = 1024
)

// Join answers a host that is to be a member of a group. It waits until the answer has another
// version than seen, or until ctx is done.
func (h *Hosts) Join(ctx context.Context, host netip.Addr, name string, request api.HostRequest, seen string) (api.HostGroup, error) {
	if err := groupfile.CheckName(name); err != nil {
		return api.HostGroup{}, api.Errorf(api.BadRequest, "%v", err)
	}
	ip := h.config.GroupIP(host)
	if !ip.IsValid() {
		return api.HostGroup{}, api.Errorf(api.BadRequest, "your address is %v, and groupIPs of hosts: in rocastd.yaml has no address of its family", host)
	}
	waits := ctx
	ctx, done := working(waits)
	defer done()
	asking, err := gather.NewHost(host, request)
	if err == nil && !asking.Ready && asking.Role == groupfile.Source.String() {
		err = h.refuseFarSource(ctx, host)
	}
	if err != nil {
		return api.HostGroup{}, err
	}
	if seen == "" { // it joins anew; otherwise it asks again, because it has seen who had come
		h.mu.Lock()
		h.hall.Forget(name, asking)
		h.mu.Unlock()
	}
	for {
		group, err := h.member(ctx, name, asking)
		if kindOf(err) == api.NotFound && asking.Ready {
			if answer, ok := h.withoutGroup(waits, name, host, seen); ok {
				return answer, nil
			}
		}
		if err == nil && group == nil {
			var answer api.HostGroup
			if group, answer, err = h.wait(waits, name, asking.Anew(), ip, seen); answer.Name != "" {
				return answer, nil
			}
		}
		if err != nil {
			return api.HostGroup{}, err
		}
		if group != nil {
			answer, err := h.follow(waits, name, group, asking, seen)
			if kindOf(err) != api.NotFound {
				return answer, err
			}
		}
	}
}

// working returns a context for what a question does besides waiting: it goes on when the time to
// wait is over, for a bound of its own, and not when the host has hung up.
func working(waits context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(waits), workWithin)
	stop := context.AfterFunc(waits, func() {
		if !errors.Is(context.Cause(waits), context.DeadlineExceeded) {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// refuseFarSource refuses a source that is attached to another box, before anybody waits for it.
func (h *Hosts) refuseFarSource(ctx context.Context, host netip.Addr) error {
	if len(h.c.Neighbours) == 0 {
		return nil
	}
	through, err := h.behind(ctx, host)
	if err == nil && through != "" {
		err = api.Errorf(api.BadRequest, "%v is behind box %s, and a group begins at the box to which its source is attached; name box %[2]s at all hosts of the group",
			host, through)
	}
	return err
}

// behind returns the box by which a host is reached; "": the host is attached to this box.
func (h *Hosts) behind(ctx context.Context, host netip.Addr) (box string, err error) {
	m := groupfile.Member{IP: host}
	defer h.c.settle(ctx, []groupfile.Member{m})()
	through, err := h.c.through(&m, nil)
	if len(through) > 0 {
		box = through[0]
	}
	return box, err
}

// nearSender returns a sender of a party that is attached to this box. The group begins with it: a
// tree of boxes begins at the box of its first source.
func (h *Hosts) nearSender(ctx context.Context, party *gather.Party) (*gather.Host, error) {
	if len(h.c.Neighbours) == 0 {
		return party.Hosts[0], nil
	}
	far := ""
	for _, host := range party.Hosts {
		if host.Role == groupfile.Receiver.String() {
			continue
		}
		box, err := h.behind(ctx, host.IP)
		if box == "" || err != nil {
			return host, err
		}
		far = fmt.Sprintf("%v is behind box %s", host.IP, box)
	}
	return nil, api.Errorf(api.BadRequest, "no member of group %s that sends is attached to box %s (%s); name the box of a member that sends at all hosts of the group",
		party.Name, h.c.Box, far)
}

// ours refuses a group that hosts may not join.
func ours(g *api.Group) error {
	if g.Upper != nil || g.Root != "" {
		return api.Errorf(api.BadRequest, "group %s was created on another box; join it there", g.Name)
	}
	if !g.Hosts {
		return api.Errorf(api.Forbidden, "group %s was not made by hosts, so they cannot join it; take another name", g.Name)
	}
	return nil
}

// member makes a host a member of a group that runs, and returns the group. nil: there is no such
// group.
func (h *Hosts) member(ctx context.Context, name string, host *gather.Host) (*api.Group, error) {
	done, err := h.turn(ctx, name)
	if err != nil {
		return nil, err
	}
	defer done()
	g, err := h.group(name)
	if err == nil && !g.Hosts { // etcd may say that there is a group before this box knows that hosts make it
		if err := h.untilMade(ctx, name); err != nil {
			return nil, err
		}
		g, err = h.group(name)
	}
	switch {
	case kindOf(err) == api.NotFound && !host.Ready:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := ours(&g); err != nil {
		return nil, err
	}
	secret := h.noteSenders(&g)
	if err := host.Shows(name, secret); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(g.Members, func(m api.Member) bool { return m.IP == host.IP.String() })
	is := at >= 0 && g.Members[at].QPN == host.QPN && g.Members[at].PSN == host.PSN
	switch {
	case host.Ready && !is:
		return nil, api.Errorf(api.NotFound, "QP %d of %v is not in group %s; join again", host.QPN, host.IP, name)
	case host.Ready:
		return h.confirm(name, &g.Members[at])
	case is:
		return &g, nil
	}
	h.mu.Lock()
	_, err = h.hall.Ended(time.Now(), name, host)
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	file, from, err := h.c.running(ctx, name)
	if err == nil {
		err = h.refuseLateSender(&g, host)
	}
	if err == nil {
		err = host.Agrees(name, file.Policy)
	}
	if err != nil {
		return nil, err
	}
	if at >= 0 { // its program has started again
		if err := h.replace(ctx, name, host); err != nil {
			return nil, err
		}
		gone, err := h.remove(ctx, name, &g.Members[at])
		if err != nil || gone {
			return nil, err
		}
		if file, from, err = h.c.running(ctx, name); err != nil {
			return nil, err
		}
	}
	m, err := host.Member(file.Memory)
	if err == nil {
		err = h.roomFor(host.IP)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case m.Role == groupfile.Source:
		return nil, api.Errorf(api.BadRequest, "group %s runs, and its source is %v; join with role receiver", name, file.Source.IP)
	case host.MTU < file.PathMTU:
		return nil, api.Errorf(api.BadRequest, "the path MTU of %v is %d, and that of group %s is %d", host.IP, host.MTU, name, file.PathMTU)
	}
	m.RemoteQPN = file.QPN
	next := *file
	next.Receivers = append(slices.Clone(file.Receivers), m)
	g, err = h.c.update(ctx, name, next.Text(), from)
	if err != nil {
		return nil, unlined(err)
	}
	h.c.Log.Info("a host has joined", zap.String("group", name), zap.Stringer("host", host.IP))
	return &g, nil
}

// noteSenders remembers which members of a group have a role that sends, and returns the group's
// secret.
func (h *Hosts) noteSenders(g *api.Group) (secret groupfile.Secret) {
	if there := h.c.seen(g.Name); there != nil && there.wanted != nil {
		secret = there.wanted.HostsSecret
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.senders[g.Name] == nil {
		h.senders[g.Name] = map[netip.Addr]bool{}
	}
	for _, m := range g.Members {
		if m.Role != groupfile.Receiver.String() {
			h.senders[g.Name][addrOf(m.IP)] = true
		}
	}
	return secret
}

// refuseLateSender refuses a host that comes later and would send, to memory that others have
// registered for those that they made the group with.
func (h *Hosts) refuseLateSender(g *api.Group, host *gather.Host) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if host.Role != groupfile.Both.String() || h.senders[g.Name][host.IP] {
		return nil
	}
	return api.Errorf(api.Forbidden, "group %s runs, and hosts that come later only receive; join with role receiver, or when the group begins", g.Name)
}

// replace says that a program takes the place of another one of its host. While the group is being
// created, the hall does not know yet how the waiting of its hosts ends, so replace waits for that.
func (h *Hosts) replace(ctx context.Context, name string, host *gather.Host) error {
	if err := h.untilMade(ctx, name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hall.Forget(name, host)
	h.hall.Replaced(name, host.IP)
	return nil
}

// untilMade waits while a group is being created whose hosts have all come.
func (h *Hosts) untilMade(ctx context.Context, name string) error {
	h.mu.Lock()
	party := h.hall.Party(name)
	if party == nil || !party.Closed {
		h.mu.Unlock()
		return nil
	}
	made := party.Hosts[0].Over()
	h.mu.Unlock()
	select {
	case <-made:
		return nil
	case <-ctx.Done():
		return givenUp(ctx)
	}
}

// confirm records that a member's QP is ready. A source needs no confirmation.
func (h *Hosts) confirm(name string, m *api.Member) (*api.Group, error) {
	if !m.Confirm {
		g, err := h.group(name)
		return &g, err
	}
	text, err := json.Marshal(api.Confirmation{IP: m.IP, QPN: m.QPN, State: "RTS", PSN: &m.PSN})
	if err != nil {
		return nil, err
	}
	g, err := h.c.Confirm(name, text)
	return &g, err
}

// wait waits for the other hosts of a group. If all have come it creates the group and returns it.
// Otherwise it returns who has come, if that is not what the host has seen, or that the group was
// created and has ended since the host's last question. It returns neither if another question has
// created the group.
func (h *Hosts) wait(ctx context.Context, name string, host *gather.Host, ip netip.Addr, seen string) (*api.Group, api.HostGroup, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.c.Group(name); err == nil { // created since the host asked for it
		return nil, api.HostGroup{}, nil
	}
	ended, err := h.hall.Ended(time.Now(), name, host)
	if err != nil {
		return nil, api.HostGroup{}, err
	}
	if after := h.leftOf(name, host.IP); ended && after != nil {
		answer, err := after.unheard()
		return nil, answer, err
	}
	if err := h.roomFor(host.IP); err != nil {
		return nil, api.HostGroup{}, err
	}
	if h.isMadeAnew(name, host) {
		h.hall.WaitsElsewhere(time.Now(), name, host)
		return nil, h.waitForThoseLeft(ctx, name, host.IP, seen), nil
	}
	party, there, all, err := h.hall.Come(time.Now(), name, host)
	if err != nil {
		return nil, api.HostGroup{}, err
	}
	defer func() { h.hall.Answered(time.Now(), party, there, hungUp(ctx)) }()
	if all {
		g, err := h.create(ctx, party, ip)
		return g, api.HostGroup{}, err
	}
	if seen != "" { // who came is told at first, and when the time is over: not each host of each other one
		h.mu.Unlock()
		select {
		case <-there.Over():
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	switch {
	case there.Refusal() != nil:
		return nil, api.HostGroup{}, there.Refusal()
	case party.Closed && h.hall.Party(name) != party:
		return nil, api.HostGroup{}, nil
	}
	answer := api.HostGroup{Name: name, State: api.HostGathering, Came: party.Came()}
	answer.Version = versionOf(answer)
	return nil, answer, nil
}

// isMadeAnew says whether a host waits until the others have made the group anew that ended with
// it, to join then: those that are left wait for each other alone. Programs that have all started
// again say the same number of members, and it makes the group with them. h.mu is held.
func (h *Hosts) isMadeAnew(name string, host *gather.Host) bool {
	h.forgetLeft()
	left, party := h.left[name], h.hall.Party(name)
	return left != nil && left.State == api.HostRunning && left.without == host.IP && (party == nil || party.Members != host.Members)
}

// waitForThoseLeft answers a host that waits for a group that others make anew, when it is to ask
// again. Before that it returns no answer if the group may be there. h.mu is held before and after,
// but not meanwhile.
func (h *Hosts) waitForThoseLeft(ctx context.Context, name string, host netip.Addr, seen string) api.HostGroup {
	if seen != "" && ctx.Err() == nil {
		at := h.c.events.After(api.Place{}, name).Place
		h.mu.Unlock()
		defer h.mu.Lock()
		if _, err := h.c.Group(name); err != nil {
			look, cancel := context.WithTimeout(ctx, lookAtGroup)
			defer cancel()
			h.c.Events(look, at, name)
		}
		return api.HostGroup{}
	}
	answer := api.HostGroup{Name: name, State: api.HostGathering, Came: []string{host.String()}}
	answer.Version = versionOf(answer)
	return answer
}

// hungUp says whether a host has ended the connection of a question before it was answered.
func hungUp(ctx context.Context) bool { return errors.Is(context.Cause(ctx), context.Canceled) }

// roomFor refuses one more group of a host that is in too many.
func (h *Hosts) roomFor(host netip.Addr) error {
	in, unconfirmed := 0, 0
	for _, g := range h.c.allSeen() {
		if g.wanted != nil && g.wanted.Hosts != groupfile.HostsNothing && slices.ContainsFunc(g.wanted.Members(), func(m groupfile.Member) bool { return m.IP == host }) {
			in++
			if len(g.unconfirmed()) > 0 {
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
	h.c.Bounds.Met(bounds.HostGroups, host.String())
	return err
}

// unconfirmed returns the receivers whose programs have not said that their QPs are ready.
func (g *version) unconfirmed() (ids []groupfile.ID) {
	for i := range g.wanted.Receivers {
		if m := &g.wanted.Receivers[i]; m.Confirm && !g.past.IsConfirmed(m.ID()) {
			ids = append(ids, m.ID())
		}
	}
	return ids
}

// create creates the group of a party. h.mu is held before and after, but not meanwhile.
func (h *Hosts) create(ctx context.Context, party *gather.Party, ip netip.Addr) (*api.Group, error) {
	qpn := h.freeQPN(ip)
	var rkey [4]byte
	_, _ = rand.Read(rkey[:])
	// All hosts wait for this, so it goes on if the one that came last goes away.
	ctx = context.WithoutCancel(ctx)
	h.mu.Unlock() // who has come does not change any more
	var text []byte
	var g api.Group
	first, err := h.nearSender(ctx, party)
	if err == nil {
		text, err = party.File(first, ip, qpn, binary.BigEndian.Uint32(rkey[:])&^(gather.MaxRegions-1))
	}
	if err == nil {
		g, err = h.c.Create(ctx, text)
	}
	h.mu.Lock()
	err = unlined(err)
	h.hall.Close(time.Now(), party, err) // wakes those who wait
	if err != nil {
		h.c.Log.Warn("hosts could not make a group", zap.String("group", party.Name), zap.Error(err))
		return nil, err
	}
	if h.left[party.Name] == nil { // the group is not made anew by those of one before
		delete(h.senders, party.Name)
	}
	delete(h.left, party.Name)
	for _, host := range party.Hosts { // with their ports, so that nobody hears of each of them
		h.know(party.Name, host)
	}
	h.c.Log.Info("created by hosts", zap.String("group", party.Name), zap.Strings("hosts", party.Came()))
	return &g, nil
}

// freeQPN returns a QPN that no group at the IP has. It is not that of a group before: packets of
// that one may be on their way.
func (h *Hosts) freeQPN(ip netip.Addr) roce.QPN {
	taken := map[roce.QPN]bool{}
	for _, g := range h.c.Groups().Groups {
		if g.IP == ip.String() {
			taken[roce.QPN(g.QPN)] = true
		}
	}
	for {
		if h.qpn++; h.qpn > maxHostQPN || h.qpn < minHostQPN {
			h.qpn = minHostQPN
		}
		if !taken[h.qpn] {
			return h.qpn
		}
	}
}

// versionOf returns a word that differs if the answer does, except for the reason.
func versionOf(a api.HostGroup) string {
	a.Reason = ""
	text, _ := json.Marshal(a) // never fails
	sum := fnv.New64a()
	sum.Write(text)
	return fmt.Sprintf("%016x", sum.Sum64())
}

// Leave ends the membership of a host. The group ends with the member that is the source, with the
// one that was so first, and with the last receiver. The members that are left hear of it with
// their next question. If they can send to each other, they make the group anew when one of them
// sends; if none of them can send, it has ended for them too.
func (h *Hosts) Leave(ctx context.Context, host netip.Addr, name string) error {
	g, m, done, err := h.leaving(ctx, host, name)
	if g == nil || err != nil {
		return err
	}
	defer done()
	h.hasLeft(host, name)
	_, err = h.remove(ctx, name, m)
	return err
}

// hasLeft lets the question of a host hear that it has left its group, if that question does not
// know yet that the group was created.
func (h *Hosts) hasLeft(host netip.Addr, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hall.HasLeft(name, host)
}

// End ends the membership of all members. With tell the others hear with their next question that
// it has ended; otherwise they are members that will make the group anew.
func (h *Hosts) End(ctx context.Context, host netip.Addr, name string, tell bool) error {
	g, m, done, err := h.leaving(ctx, host, name)
	if g == nil || err != nil {
		return err
	}
	defer done()
	if m.Role == groupfile.Receiver.String() {
		return api.Errorf(api.Forbidden, "%v only receives, so it cannot end group %s; it may leave", host, name)
	}
	file, _, err := h.c.running(ctx, name)
	if err != nil {
		return err
	}
	if file.Hosts != groupfile.HostsEnd {
		return api.Errorf(api.Forbidden, "group %s was not made by hosts, so they may leave it and not end it; rocast group rm ends it", name)
	}
	if tell {
		h.keep(endedBy(g, host, "%s has ended group %s", host, name))
		h.c.Log.Info("a host has ended its group", zap.String("group", name), zap.Stringer("host", host))
	}
	h.hasLeft(host, name)
	return h.c.Remove(name)
}

// leaving returns a group that runs with the member that a host is there, and holds the group until
// done is called. It returns no group if the host only waited for the group, and waits no more.
func (h *Hosts) leaving(ctx context.Context, host netip.Addr, name string) (g *api.Group, m *api.Member, done func(), err error) {
	h.mu.Lock()
	closed, waited := h.hall.Leave(time.Now(), name, host)
	h.mu.Unlock()
	if _, err := h.c.Group(name); waited && err != nil { // else a group of that name has come by another way
		return nil, nil, nil, nil
	}
	if closed != nil { // its group is being created
		select {
		case <-closed.Over():
		case <-ctx.Done():
			return nil, nil, nil, givenUp(ctx)
		}
	}
	unlock, err := h.turn(ctx, name)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if kindOf(err) == api.NotFound { // the group has ended before, or another host's change has removed this one
			h.hasLeft(host, name)
		}
		if err != nil {
			unlock()
		}
	}()
	there, err := h.group(name)
	if err == nil {
		h.noteSenders(&there)
		err = ours(&there)
	}
	at := slices.IndexFunc(there.Members, func(m api.Member) bool { return m.IP == host.String() })
	switch {
	case waited && (err != nil || at < 0): // a group of that name that is not this host's
		unlock()
		return nil, nil, nil, nil
	case err != nil:
		return nil, nil, nil, err
	case at < 0:
		return nil, nil, nil, api.Errorf(api.NotFound, "%v is not in group %s", host, name)
	}
	return &there, &there.Members[at], unlock, nil
}

// remove takes a member out of a running group, or removes the group if it cannot be without the
// member.
func (h *Hosts) remove(ctx context.Context, name string, m *api.Member) (gone bool, err error) {
	host, err := netip.ParseAddr(m.IP)
	if err != nil {
		return false, err
	}
	file, from, err := h.c.running(ctx, name)
	if err != nil {
		return false, err
	}
	next := *file
	next.Receivers = slices.DeleteFunc(slices.Clone(file.Receivers), func(m groupfile.Member) bool { return m.IP == host })
	if file.Source.IP != host && m.Part != api.PartSource && listeners(&next) > 0 {
		_, err = h.c.update(ctx, name, next.Text(), from)
		if err == nil {
			h.c.Log.Info("a host has left", zap.String("group", name), zap.Stringer("host", host))
		}
		return false, unlined(err)
	}
	g, err := h.group(name)
	if err != nil {
		return false, err
	}
	h.leave(&g, host)
	h.c.Log.Info("a host has left, and its group has ended", zap.String("group", name), zap.Stringer("host", host))
	return true, h.c.Remove(name)
}

// leave keeps what the members of a group hear that ends because this one leaves: that they can
// make it anew, or, if none of them can send, that it has ended.
func (h *Hosts) leave(g *api.Group, host netip.Addr) {
	after := &leftGroup{HostGroup: h.describe(g), without: host}
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
	h.keep(after)
}

// endedBy returns what the members of a group hear that has ended because of one of them.
func endedBy(g *api.Group, host netip.Addr, format string, args ...any) *leftGroup {
	after := &leftGroup{HostGroup: api.HostGroup{Name: g.Name, State: api.HostEnded, Reason: fmt.Sprintf(format, args...)}, without: host}
	for _, m := range g.Members {
		if m.IP != host.String() {
			after.members = append(after.members, m.IP)
		}
	}
	return after
}

// keep remembers for a while what the members of a group hear that has ended.
func (h *Hosts) keep(after *leftGroup) {
	after.Version = versionOf(after.HostGroup)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetLeft()
	if len(h.left) < maxLeft {
		after.at = time.Now()
		h.left[after.Name] = after
	}
}

// forgetLeft forgets the groups that have ended long ago. h.mu is held.
func (h *Hosts) forgetLeft() {
	maps.DeleteFunc(h.left, func(_ string, g *leftGroup) bool { return time.Since(g.at) > keepLeft })
}

// leftOf returns the group of a name that has ended, if a host was a member and is left; else nil.
// h.mu is held.
func (h *Hosts) leftOf(name string, host netip.Addr) *leftGroup {
	h.forgetLeft()
	if g := h.left[name]; g != nil && slices.Contains(g.members, host.String()) {
		return g
	}
	return nil
}

// unheard answers a member that had not heard of the group before it ended. If the others make the
// group anew when one of them sends, they say how many they are.
func (g *leftGroup) unheard() (api.HostGroup, error) {
	if g.State == api.HostEnded {
		return g.HostGroup, nil
	}
	return api.HostGroup{}, api.Errorf(api.Stale, "%v has left, and group %s could not be without it; join it again, with %d members",
		g.without, g.Name, len(g.members))
}

// withoutGroup answers a member whose group has ended, with those that are left, as soon as that is
// another answer than seen.
func (h *Hosts) withoutGroup(ctx context.Context, name string, host netip.Addr, seen string) (api.HostGroup, bool) {
	h.mu.Lock()
	after := h.leftOf(name, host)
	h.mu.Unlock()
	if after == nil {
		return api.HostGroup{}, false
	}
	if after.Version == seen {
		<-ctx.Done()
	}
	return after.HostGroup, true
}

// listeners counts the receivers besides the source.
func listeners(f *groupfile.File) int {
	n := len(f.Receivers)
	if f.Source.Role == groupfile.Both {
		n--
	}
	return n
}

// turn waits until no other host changes the group.
func (h *Hosts) turn(ctx context.Context, name string) (done func(), err error) {
	unlock, _, err := h.c.names.lock(ctx, "hosts of "+name, "")
	return unlock, err
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
