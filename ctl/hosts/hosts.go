package hosts

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

const (
	// workWithin bounds what a question does between two times of waiting.
	workWithin = 10 * time.Second
	// lookAtGroup is the longest time after which a group is looked at again without an event.
	lookAtGroup = time.Second
	// lookAtPrograms is the period for looking which programs of hosts have gone.
	lookAtPrograms = 5 * time.Second
	// connectWithin bounds one connection to a program, and maxConnecting their number at one time.
	connectWithin = time.Second
	maxConnecting = 64
)

// Control is what hosts need of control. Its methods may be called from any goroutine, and their
// errors are as a client hears them.
type Control interface {
	// Lock waits until no other host changes a group. It may change it until done.
	Lock(ctx context.Context, name string) (done func(), err error)
	Group(name string) (Group, error)
	// Known returns what is known of each group of this box.
	Known() []Known
	// QPNs returns the QPNs that groups have at an IP.
	QPNs(ip netip.Addr) map[roce.QPN]bool
	// Create makes the group of a text.
	Create(ctx context.Context, text []byte) (Group, error)
	// Running returns the file of a group that runs. It is not to be changed.
	Running(ctx context.Context, name string) (*groupfile.File, Basis, error)
	// Update gives a group the file text, if it is still the one from which text was made.
	Update(ctx context.Context, name string, text []byte, from Basis) (Group, error)
	Confirm(name string, request []byte) (Group, error)
	// Remove ends a group, if it is still the one that Running has told of.
	Remove(name string, from Basis) error
	// Behind returns the box by which a host is reached; "": the host is attached to this box.
	Behind(ctx context.Context, host netip.Addr) (box string, err error)
	// Now returns the place of the newest event of a group, and Await the one after an event that
	// follows a place, or when ctx is done.
	Now(name string) api.Cursor
	Await(ctx context.Context, name string, at api.Cursor) api.Cursor
	// RefuseIP refuses an IP that no group of hosts can have, unless a group has it. BadIPs says
	// which of the IPs are such, and why.
	RefuseIP(ctx context.Context, ip netip.Addr) error
	BadIPs(why map[string]string)
}

// Options are what Hosts work with.
type Options struct {
	Control Control
	Config  gather.Config
	// Box is this box's name. HasNeighbours: hosts may be behind other boxes.
	Box           string
	HasNeighbours bool
	Log           *zap.Logger
	Bounds        *bounds.Book
}

// Hosts makes groups of what hosts say about themselves. Its methods may be called from any
// goroutine.
type Hosts struct {
	Options

	// connect connects to a host's program and hangs up.
	connect func(context.Context, netip.AddrPort) error

	mu            sync.Mutex // held during a step
	desk          desk
	subscriptions map[string]*subscription
}

// New returns Hosts without a group.
func New(o Options) *Hosts {
	var start [4]byte
	_, _ = rand.Read(start[:]) // never fails
	full := func(host netip.Addr) { o.Bounds.Met(bounds.HostGroups, host.String()) }
	return &Hosts{
		Options: o, connect: connectTo, subscriptions: map[string]*subscription{},
		desk: newDesk(o.Box, roce.QPN(binary.BigEndian.Uint32(start[:])%maxHostQPN), full),
	}
}

// Join answers a host that is to be a member of a group. It waits until the answer has another
// version than seen, or until ctx is done.
func (h *Hosts) Join(ctx context.Context, host netip.Addr, name string, request api.HostRequest, seen string) (api.HostGroup, error) {
	if err := groupfile.CheckName(name); err != nil {
		return api.HostGroup{}, api.Errorf(api.BadRequest, "%v", err)
	}
	ip := h.Config.GroupIP(host)
	if !ip.IsValid() {
		return api.HostGroup{}, api.Errorf(api.BadRequest, "your address is %v, and groupIPs of hosts: in rocastd.yaml has no address of its family", host)
	}
	work, done := working(ctx)
	defer done()
	asking, err := gather.NewHost(host, request)
	if err == nil && !asking.Ready && asking.Role == groupfile.Source.String() {
		err = h.refuseFarSource(work, host)
	}
	if err != nil {
		return api.HostGroup{}, err
	}
	return h.run(ctx, &task{name: name, ip: host, host: asking, groupIP: ip, seen: seen, then: h.desk.joins}, begin)
}

// Leave ends the membership of a host. The group ends with the member that is the source, with the
// one that was so first, and with the last receiver. The members that are left hear of it with
// their next question. If they can send to each other, they make the group anew when one of them
// sends; if none of them can send, it has ended for them too.
func (h *Hosts) Leave(ctx context.Context, host netip.Addr, name string) error {
	_, err := h.run(ctx, &task{name: name, ip: host, then: h.desk.leaves(h.desk.leavesAlone)}, enter)
	return err
}

// End ends the membership of all members. With tell the others hear with their next question that
// it has ended; otherwise they are members that will make the group anew.
func (h *Hosts) End(ctx context.Context, host netip.Addr, name string, notify bool) error {
	_, err := h.run(ctx, &task{name: name, ip: host, then: h.desk.leaves(h.desk.endsAll(notify))}, enter)
	return err
}

// working returns a context for the work of a question from now on. The context may outlive the end
// of the waiting time, and ends after workWithin, or when the host hangs up.
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
	if !h.HasNeighbours {
		return nil
	}
	through, err := h.Control.Behind(ctx, host)
	if err == nil && through != "" {
		err = api.Errorf(api.BadRequest, "%v is behind box %s, and a group begins at the box to which its source is attached; name box %[2]s at all hosts of the group",
			host, through)
	}
	return err
}

// nearSender returns a sender of a party that is attached to this box. The group begins with it: a
// tree of boxes begins at the box of its first source.
func (h *Hosts) nearSender(ctx context.Context, party *gather.Party) (*gather.Host, error) {
	if !h.HasNeighbours {
		return party.Hosts[0], nil
	}
	far := ""
	for _, host := range party.Hosts {
		if !host.Sends() {
			continue
		}
		box, err := h.Control.Behind(ctx, host.IP)
		if box == "" || err != nil {
			return host, err
		}
		far = fmt.Sprintf("%v is behind box %s", host.IP, box)
	}
	return nil, api.Errorf(api.BadRequest, "no member of group %s that sends is attached to box %s (%s); name the box of a member that sends at all hosts of the group",
		party.Name, h.Box, far)
}

// run does what a task is to do until it has an answer. waits bounds the waiting. Where no host
// asks, waits bounds the work too; otherwise the work has workWithin after each waiting, so a host
// that has waited for long has as much time as one that came last.
func (h *Hosts) run(waits context.Context, t *task, first do) (api.HostGroup, error) {
	r := running{Hosts: h, task: t, waits: waits}
	defer func() { r.worked() }()
	defer r.release()
	defer r.endFollow()
	r.works()
	a := act{do: first}
	for {
		e := r.does(&a)
		if a.do.waits() {
			r.worked()
			r.works()
		}
		if a = h.step(waits, t, a.do, e); a.do == answer {
			return a.group, a.err
		}
		if !a.do.keepsLock() {
			r.release()
		}
		if a.do != follow {
			r.endFollow()
		}
	}
}

// step lets the desk decide. Whether there is a group for which a host would wait is looked at
// under the same lock: a group that comes into being meanwhile wakes only those who wait already.
func (h *Hosts) step(waits context.Context, t *task, did do, e event) act {
	e.isOver, e.hungUp = waits.Err() != nil, hungUp(waits)
	h.mu.Lock()
	if did == enter {
		_, err := h.Control.Group(t.name)
		e.isThere = err == nil
	}
	a := h.desk.step(time.Now(), t, e)
	h.mu.Unlock()
	for _, s := range t.says {
		h.Log.Log(s.level, s.message, s.fields...)
	}
	t.says = nil
	return a
}

// hungUp reports whether a host has ended the connection of a question before it was answered.
func hungUp(ctx context.Context) bool { return errors.Is(context.Cause(ctx), context.Canceled) }

// running is a task with what it holds.
type running struct {
	*Hosts
	*task
	work, waits context.Context
	worked      context.CancelFunc // ends work
	unlock      func()             // of the name; nil: the task has no lock

	changed      <-chan struct{} // of the subscription that the task follows
	subscription *subscription
}

// works begins the time for what comes before the next waiting.
func (r *running) works() {
	if r.work, r.worked = r.waits, func() {}; r.host != nil {
		r.work, r.worked = working(r.waits)
	}
}

func (r *running) release() {
	if r.unlock != nil {
		r.unlock()
		r.unlock = nil
	}
}

// does carries an act out.
func (r *running) does(a *act) (e event) {
	control := r.Control
	switch a.do {
	case enter:
		if r.host != nil {
			e.known = control.Known()
		}
	case look:
		if r.unlock == nil {
			if r.unlock, e.err = control.Lock(r.work, r.name); e.err != nil {
				return e
			}
		}
		e.group, e.err = grouped(control.Group(r.name))
	case read:
		if e.file, e.from, e.err = control.Running(r.work, r.name); r.host != nil {
			e.known = control.Known()
		}
	case change:
		e.group, e.err = grouped(control.Update(r.work, r.name, a.text, a.from))
	case confirm:
		e.group, e.err = grouped(control.Confirm(r.name, a.text))
	case remove:
		e.err = control.Remove(r.name, a.from)
	case made:
		select {
		case <-a.over:
		case <-r.work.Done():
			e.err = givenUp(r.work)
		}
	case choose:
		var rkey [4]byte
		_, _ = rand.Read(rkey[:]) // never fails
		e.rkey, e.taken = binary.BigEndian.Uint32(rkey[:]), control.QPNs(r.groupIP)
		e.first, e.err = r.nearSender(context.WithoutCancel(r.waits), a.party)
	case create: // all hosts wait for this, so it goes on if the one that came last goes away
		e.group, e.err = grouped(control.Create(context.WithoutCancel(r.waits), a.text))
	case wait:
		select {
		case <-a.over:
		case <-r.waits.Done():
		}
	case other:
		r.awaitGroup()
	case follow:
		return r.awaitChange()
	case outwait:
		<-r.waits.Done()
	}
	return e
}

func grouped(g Group, err error) (*Group, error) { return &g, err }

// givenUp is the error for a request that ended while it waited for others.
func givenUp(ctx context.Context) error {
	return api.Errorf(api.Internal, "the request ended before it was done (%v); nothing has changed", ctx.Err())
}

// awaitGroup waits for what happens to a group that is not there.
func (r *running) awaitGroup() {
	at := r.Control.Now(r.name)
	if _, err := r.Control.Group(r.name); err == nil {
		return
	}
	look, cancel := context.WithTimeout(r.waits, lookAtGroup)
	defer cancel()
	r.Control.Await(look, r.name, at)
}

// awaitChange waits until the group may have changed since the last look, and looks at it.
func (r *running) awaitChange() (e event) {
	if r.subscription == nil {
		r.subscription = r.subscribe(r.name)
	} else {
		select {
		case <-r.changed:
		case <-r.waits.Done():
		}
	}
	r.mu.Lock()
	r.changed = r.subscription.changed
	r.mu.Unlock()
	e.group, e.err = grouped(r.Control.Group(r.name))
	return e
}

func (r *running) endFollow() {
	if r.subscription != nil {
		r.unsubscribe(r.name, r.subscription)
		r.subscription = nil
	}
}

// subscription tells the questions about one group that wait when the group may have changed.
type subscription struct {
	waiting int
	changed chan struct{} // closed at the next change
	stop    context.CancelFunc
}

// subscribe returns the subscription to a group. One goroutine looks at the group, however many
// questions wait.
func (h *Hosts) subscribe(name string) *subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.subscriptions[name]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = &subscription{changed: make(chan struct{}), stop: stop}
		h.subscriptions[name] = f
		go h.tend(ctx, name, f)
	}
	f.waiting++
	return f
}

func (h *Hosts) unsubscribe(name string, f *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.stop()
		delete(h.subscriptions, name)
	}
}

// tend closes f.changed each time the answer about a group has another version, and once after its
// first look, because the group may have changed between the question's look and that one.
func (h *Hosts) tend(ctx context.Context, name string, f *subscription) {
	at, version := h.Control.Now(name), "not known yet"
	for ctx.Err() == nil {
		next := ""
		g, err := h.Control.Group(name)
		h.mu.Lock()
		if err == nil {
			next = h.desk.describe(&g).Version
		}
		if next != version {
			close(f.changed)
			f.changed = make(chan struct{})
			version = next
		}
		h.mu.Unlock()
		look, cancel := context.WithTimeout(ctx, lookAtGroup)
		at = h.Control.Await(look, name, at)
		cancel()
	}
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
// one.
func (h *Hosts) lookAtGroupIPs(ctx context.Context) {
	bad := map[string]string{}
	for _, ip := range h.Config.GroupIPs {
		if err := h.Control.RefuseIP(ctx, ip); err != nil && ctx.Err() == nil {
			bad[ip.String()] = err.Error()
		}
	}
	h.Control.BadIPs(bad)
}

// removeGone removes the members whose programs have ended: the host refuses a connection to the
// port where the program listened. A program that goes on by single connections has ended its
// questions too, but still listens. A program that never named a port counts as ended when its
// connection ends. A host that does not answer at all may come back, so its member stays.
func (h *Hosts) removeGone(ctx context.Context, now time.Time) {
	known := h.Control.Known()
	h.mu.Lock()
	list := h.desk.silentPrograms(now, known)
	h.mu.Unlock()
	var working sync.WaitGroup
	defer working.Wait()
	slots := make(chan struct{}, maxConnecting)
	for _, s := range list {
		working.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if s.port == 0 || h.refuses(ctx, netip.AddrPortFrom(s.host, s.port)) {
				h.expire(ctx, s)
			}
		})
	}
}

// expire removes a member whose program has gone, unless it asks again.
func (h *Hosts) expire(ctx context.Context, s silent) {
	_, _ = h.run(ctx, &task{name: s.group, ip: s.host, then: h.desk.expires(s)}, begin)
}

// removeUnconfirmed removes the members that have not said for too long that their QPs are ready.
func (h *Hosts) removeUnconfirmed(ctx context.Context, now time.Time) {
	known := h.Control.Known()
	h.mu.Lock()
	late := h.desk.lateToConfirm(now, known)
	h.mu.Unlock()
	for _, w := range late {
		if ctx.Err() != nil {
			return
		}
		_, _ = h.run(ctx, &task{name: w.group, ip: w.member.IP, then: h.desk.lapses(w)}, begin)
	}
}

// refuses reports whether a host says that nobody listens.
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
