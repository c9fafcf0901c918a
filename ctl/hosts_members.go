package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
)

const (
	// lookAtGroup is the longest time after which a group is looked at again without an event.
	lookAtGroup = time.Second
	// lookAtPrograms is the period for looking which programs of hosts have gone.
	lookAtPrograms = 5 * time.Second
	// silentProgram is how long a program may ask nothing before the box connects to it. It may be
	// busy with other things for any time: the host's kernel takes the connection.
	silentProgram = 30 * time.Second
	// confirmWithin is how long a member may take to say that its QP is ready. Programs do that at
	// once; a member that never does would keep its group waiting.
	confirmWithin = 2 * time.Minute
	// connectWithin bounds one such connection, and maxConnecting their number at one time.
	connectWithin = time.Second
	maxConnecting = 64
)

// program is the program of a member, as its questions show it.
type program struct {
	qpn, psn uint32
	port     uint16 // where it answers other members; 0: unknown
	asks     int    // questions that wait for an answer
	last     time.Time
	hungUp   bool // the last question ended by its connection, without an answer
}

// know returns the program of a member. h.mu is held.
func (h *Hosts) know(name string, host *gather.Host) *program {
	if h.programs[name] == nil {
		h.programs[name] = map[netip.Addr]*program{}
	}
	p := h.programs[name][host.IP]
	if p == nil || p.qpn != host.QPN || p.psn != host.PSN {
		p = &program{qpn: host.QPN, psn: host.PSN}
		h.programs[name][host.IP] = p
	}
	p.port, p.last = host.Port, time.Now()
	return p
}

// feed tells the questions about one group that wait when the group may have changed.
type feed struct {
	waiting int
	changed chan struct{} // closed at the next change
	stop    context.CancelFunc
}

// subscribe returns the feed of a group. One goroutine looks at the group, however many wait.
func (h *Hosts) subscribe(name string) (f *feed, done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f = h.feeds[name]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = &feed{changed: make(chan struct{}), stop: stop}
		h.feeds[name] = f
		go h.feed(ctx, name, f)
	}
	f.waiting++
	return f, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if f.waiting--; f.waiting == 0 {
			f.stop()
			delete(h.feeds, name)
		}
	}
}

// feed closes f.changed each time the answer about a group has another version, and when it has
// looked for the first time: the group may have ended since the question looked that waits.
func (h *Hosts) feed(ctx context.Context, name string, f *feed) {
	at, version := h.c.events.After(api.Place{}, name).Place, "not known yet"
	for ctx.Err() == nil {
		next := ""
		if g, err := h.c.Group(name); err == nil {
			next = h.describe(&g).Version
		}
		if next != version {
			h.mu.Lock()
			close(f.changed)
			f.changed = make(chan struct{})
			h.mu.Unlock()
			version = next
		}
		look, cancel := context.WithTimeout(ctx, lookAtGroup)
		at = h.c.Events(look, at, name).Place
		cancel()
	}
}

// follow answers the program of a member with its group, as soon as the answer has another version
// than seen.
func (h *Hosts) follow(ctx context.Context, name string, g *api.Group, host *gather.Host, seen string) (api.HostGroup, error) {
	h.mu.Lock()
	p := h.know(name, host)
	p.asks, p.hungUp = p.asks+1, false
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		p.asks, p.last, p.hungUp = p.asks-1, time.Now(), hungUp(ctx)
	}()
	answer := h.describe(g)
	if ctx.Err() != nil || answer.Version != seen {
		return answer, nil
	}
	f, done := h.subscribe(name)
	defer done()
	for {
		h.mu.Lock()
		changed := f.changed
		h.mu.Unlock()
		next, err := h.c.Group(name)
		if err != nil {
			return api.HostGroup{}, err
		}
		if answer = h.describe(&next); ctx.Err() != nil || answer.Version != seen {
			return answer, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// group returns a group with all its members.
func (h *Hosts) group(name string) (api.Group, error) {
	g, err := h.c.Group(name)
	if err == nil {
		h.addFar(&g)
	}
	return g, err
}

// addFar puts the members that are behind other boxes in the place of the ends of links. Where the
// source of the moment is behind a link, any member there that sends may be it.
func (h *Hosts) addFar(g *api.Group) {
	if len(g.Links) == 0 {
		return
	}
	there := h.c.seen(g.Name)
	if there == nil || there.wanted == nil {
		return
	}
	ends := map[string]string{} // the part of each link, by the address of its box
	var all []api.Member
	for _, m := range g.Members {
		if m.RemoteIP == "" {
			all = append(all, m)
		} else {
			ends[m.IP] = m.Part
		}
	}
	for _, m := range there.wanted.Members() {
		l := linkOf(there.links, m.ID())
		if l == nil || slices.ContainsFunc(all, func(known api.Member) bool { return known.IP == m.IP.String() }) {
			continue
		}
		far := member(&m, api.Reach{})
		if m.Role == groupfile.Both {
			far.Part = ends[l.Remote.IP]
		}
		all = append(all, far)
	}
	g.Members = all
}

func (h *Hosts) describe(g *api.Group) api.HostGroup {
	h.addFar(g)
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
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range g.Members {
		ip, _ := netip.ParseAddr(m.IP)
		known := api.HostMember{IP: m.IP, Role: m.Role}
		if p := h.programs[g.Name][ip]; p != nil && p.qpn == m.QPN {
			known.Port = p.port
		}
		a.Members = append(a.Members, known)
	}
	a.Version = versionOf(a)
	return a
}

// Run takes members out of their groups whose programs have ended without leaving, until ctx is
// done.
func (h *Hosts) Run(ctx context.Context) {
	ticker := time.NewTicker(lookAtPrograms)
	defer ticker.Stop()
	for {
		h.lookAtGroupIPs(ctx)
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			h.removeGone(ctx, now)
			h.removeUnconfirmed(ctx, now)
		}
	}
}

// lookAtGroupIPs finds out whether groups can have the IPs of the config, before a host asks for
// one. An IP that a group has is not looked at.
func (h *Hosts) lookAtGroupIPs(ctx context.Context) {
	taken := map[string]bool{}
	for _, g := range h.c.Groups().Groups {
		taken[g.IP] = true
	}
	bad := map[string]string{}
	for _, ip := range h.config.GroupIPs {
		if taken[ip.String()] {
			continue
		}
		if err := h.c.refuseHostsIP(ctx, ip); err != nil && ctx.Err() == nil {
			bad[ip.String()] = err.Error()
		}
	}
	was := map[string]string{}
	if p := h.c.badGroupIPs.Load(); p != nil {
		was = *p
	}
	for ip, why := range bad {
		if was[ip] != why {
			h.c.Log.Error("hosts cannot make groups with an IP of groupIPs in the config", zap.String("ip", ip), zap.String("reason", why))
		}
	}
	h.c.badGroupIPs.Store(&bad)
}

// refuseHostsIP refuses an IP that no group of hosts can have.
func (c *Controller) refuseHostsIP(ctx context.Context, ip netip.Addr) error {
	hop := c.NextHops.Track(ip)
	defer c.NextHops.Untrack(ip)
	var places []address.Place
	if hop.Interface != 0 {
		places = append(places, address.Place{IfIndex: hop.Interface, IP: ip})
	}
	if err := c.refuseIP(ctx, ip, places); err != nil {
		return err
	}
	if len(places) == 0 {
		return fmt.Errorf("ip %v is in no subnet of this box (%s); write an unused address of the subnet of the hosts", ip, hop.Reason)
	}
	return nil
}

// silent is a member whose program asks nothing.
type silent struct {
	group   string
	host    netip.Addr
	program *program
	port    uint16
}

// removeGone removes the members whose programs have gone: nobody listens where they listened. A
// program that goes on by single connections hangs up too, but listens. Of one that never said
// where it listens, the end of its connection has to do. A host that does not answer at all may
// come back, so its member stays.
func (h *Hosts) removeGone(ctx context.Context, now time.Time) {
	var working sync.WaitGroup
	defer working.Wait()
	turns := make(chan struct{}, maxConnecting)
	for _, s := range h.silentPrograms(now) {
		working.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if s.port == 0 || h.refuses(ctx, netip.AddrPortFrom(s.host, s.port)) {
				h.expire(ctx, s)
			}
		})
	}
}

// removeUnconfirmed removes the members that have not said for too long that their QPs are ready.
func (h *Hosts) removeUnconfirmed(ctx context.Context, now time.Time) {
	for _, w := range h.unconfirmedAt(now) {
		done, err := h.turn(ctx, w.group)
		if err != nil {
			return
		}
		h.expireUnconfirmed(ctx, w)
		done()
	}
}

// unconfirmedAt notes which members have not confirmed, and returns those that have had their time.
// In a group of an operator only members that have come by themselves count.
func (h *Hosts) unconfirmedAt(now time.Time) (late []waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := map[waiting]time.Time{}
	for _, g := range h.c.allSeen() {
		name := g.name
		if g.wanted == nil || g.branch != nil || g.wanted.Hosts == groupfile.HostsNothing {
			continue
		}
		for _, id := range g.unconfirmed() {
			w := waiting{name, id}
			if g.wanted.Hosts != groupfile.HostsEnd && h.programs[name][id.IP] == nil {
				continue
			}
			if since[w] = h.unconfirmed[w]; since[w].IsZero() {
				since[w] = now
			}
			if now.Sub(since[w]) >= confirmWithin {
				late = append(late, w)
			}
		}
	}
	h.unconfirmed = since
	return late
}

// expireUnconfirmed removes a member that has not confirmed. The group is held.
func (h *Hosts) expireUnconfirmed(ctx context.Context, w waiting) {
	there := h.c.seen(w.group)
	is := there != nil && there.wanted != nil && slices.Contains(there.unconfirmed(), w.member)
	g, err := h.group(w.group)
	at := slices.IndexFunc(g.Members, func(m api.Member) bool { return m.IP == w.member.IP.String() })
	if !is || err != nil || at < 0 {
		return // it has confirmed meanwhile, or left
	}
	h.c.Log.Warn("the program of a host has not said that its QP is ready, so its member is removed",
		zap.String("group", w.group), zap.Stringer("host", w.member.IP), zap.Duration("within", confirmWithin))
	if _, err := h.remove(ctx, w.group, &g.Members[at]); err != nil {
		h.c.Log.Error("could not remove a member that has not confirmed; it is tried again", zap.String("group", w.group), zap.Error(err))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.unconfirmed, w) // one that joins again has its own time
}

// silentPrograms returns the programs that are looked at, and forgets those of groups that have
// ended.
func (h *Hosts) silentPrograms(now time.Time) (list []silent) {
	running := map[string]bool{}
	for _, name := range h.c.seenNames() {
		running[name] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetLeft()
	maps.DeleteFunc(h.senders, func(name string, _ map[netip.Addr]bool) bool { return !running[name] && h.left[name] == nil })
	for name, programs := range h.programs {
		if !running[name] {
			delete(h.programs, name)
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

// refuses says whether a host says that nobody listens.
func (h *Hosts) refuses(ctx context.Context, at netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	return errors.Is(h.connect(ctx, at), unix.ECONNREFUSED)
}

func connectTo(ctx context.Context, at netip.AddrPort) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err == nil {
		err = conn.Close()
	}
	return err
}

// expire removes a member whose program has gone, unless it asks again.
func (h *Hosts) expire(ctx context.Context, s silent) {
	done, err := h.turn(ctx, s.group)
	if err != nil {
		return
	}
	defer done()
	h.mu.Lock()
	back := h.programs[s.group][s.host] != s.program || s.program.asks > 0 || s.port == 0 && !s.program.hungUp
	h.mu.Unlock()
	if back {
		return
	}
	g, err := h.group(s.group)
	if err != nil || ours(&g) != nil {
		return
	}
	at := slices.IndexFunc(g.Members, func(m api.Member) bool {
		return m.IP == s.host.String() && m.QPN == s.program.qpn && m.PSN == s.program.psn
	})
	if at >= 0 {
		h.c.Log.Warn("the program of a host has ended without leaving its group", zap.String("group", s.group), zap.Stringer("host", s.host))
		if _, err := h.remove(ctx, s.group, &g.Members[at]); err != nil {
			h.c.Log.Error("could not remove a member whose program has ended; it is tried again", zap.String("group", s.group), zap.Error(err))
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.programs[s.group][s.host] == s.program {
		delete(h.programs[s.group], s.host)
	}
}
