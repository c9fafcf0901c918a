package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/rocast/rocast/bench/ways"
	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

const (
	quorum    = 2 // of three replicas
	groupVA   = 1 << 32
	groupRKey = 0xc0c0
	firstQPN  = 0x100 // of the groups; each leader has another one
	retained  = 1024  // packets that the box keeps for a replica
	attempts  = 100   // that it makes, in at least that many tenths of a second, before it gives up
	// soon is how long a leader waits for the group before it writes to each replica by itself. An
	// entry takes the group about a millisecond.
	soon = 20 * time.Millisecond
)

// leader writes entries to all replicas by a group. Each term has a leader of its own.
type leader struct {
	api      *client.Client
	host     *bed.Host
	groupIP  netip.Addr
	replicas []*replica
	checker  *checker

	term    uint64
	seats   map[*replica]*seat
	way     *ways.Way // to the group; its message n is the entry base + n
	psn     roce.PSN  // of its first packet
	base    int       // the place of the entry in its first packet
	posted  int       // the place behind the last entry that was given to the group
	direct  int       // the place behind the last entry that a quorum has by connections to each
	away    bool      // the group lacks entries that a quorum has by connections
	decided int       // the place behind the last entry that clients know to be decided
	log     []entry
	memory  []byte        // the log as replicas have it
	events  client.Cursor // where this leader's events begin
	joining *replica      // has a new seat, and lacks what came before its first packet
}

func (l *leader) group() string { return fmt.Sprintf("term-%d", l.term) }
func (l *leader) qpn() roce.QPN { return firstQPN + roce.QPN(l.term) }

// stand makes the group of a leader: a seat at each replica, and the queue pair. Until it takes
// over its keys open nothing, so an earlier leader may go on meanwhile.
func (l *leader) stand(ctx context.Context) error {
	l.seats, l.psn, l.memory = map[*replica]*seat{}, roce.PSN(rand.Uint32N(1<<24)), make([]byte, logBytes)
	for _, r := range l.replicas {
		s, err := r.sit(l.term)
		if err != nil {
			return err
		}
		l.seats[r] = s
	}
	settings := bed.QP(l.qpn(), l.psn, pathMTU)
	qp, err := l.host.RNIC.NewQP(settings)
	if err != nil {
		return err
	}
	l.way = ways.New(1, ways.Target{VA: groupVA, RKey: groupRKey, Bytes: logBytes}, nil, qp)
	if _, err := l.api.CreateGroup(ctx, l.file(l.replicas)); err != nil {
		return err
	}
	for _, s := range l.seats {
		if err := s.connect(ctx, l.groupIP, l.qpn()); err != nil {
			return err
		}
	}
	at, err := l.api.EventsAfter(ctx, client.Cursor{}, l.group(), 0)
	if err != nil {
		return err
	}
	l.events = at.Cursor
	if _, err := l.api.WaitClear(ctx, l.group()); err != nil {
		return err
	}
	return qp.Connect(ctx, endpoint.Peer{IP: l.groupIP, QPN: l.qpn()})
}

// file describes the group. Two replicas of three are enough, and a replica that refuses leaves.
// The box keeps packets for a replica that does not answer, and tries for some seconds.
func (l *leader) file(members []*replica) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nack: quorum %d\n", l.group(), l.groupIP, l.qpn(), pathMTU, quorum)
	fmt.Fprintf(&b, "repair-window: %d\nrepair-attempts: %d\nrepair-timer-cap: 100ms\n", retained, attempts)
	fmt.Fprintf(&b, "memory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n", groupVA, logBytes, groupRKey)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", l.host.IP, l.qpn(), l.psn)
	for _, r := range members {
		s := l.seats[r]
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
			r.host.IP, s.qpn, s.psn, logVA, logBytes, s.rkey)
	}
	return []byte(b.String())
}

// take makes this leader the only one. It asks the replicas for their permission; with that of a
// quorum no earlier leader can decide anything any more, and one of the logs has everything that
// was decided. What the logs do not have in common is written again, as entries of this term.
func (l *leader) take(ctx context.Context) error {
	var logs [][]entry
	var refused error
	for _, r := range l.replicas {
		log, err := r.grant(l.term)
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		logs = append(logs, log)
	}
	if len(logs) < quorum {
		return fmt.Errorf("only %d replicas follow: %w", len(logs), refused)
	}
	l.base = common(logs)
	l.decided, l.posted = l.base, l.base
	log := newest(logs)
	for _, e := range log[:l.base] {
		l.note(e)
	}
	for _, e := range log[l.base:] {
		if err := l.decide(ctx, e.op); err != nil {
			return err
		}
	}
	return nil
}

func (l *leader) note(e entry) {
	l.log = append(l.log, e)
	copy(l.memory[entryBytes*int(e.index):], e.bytes())
}

// errFenced says that too few replicas follow this leader: another one has taken over. A leader
// hears it as the NAK of the replica without which there is no quorum any more.
var errFenced = errors.New("the replicas follow another leader")

// append writes an entry behind the log, and does not wait for it: several may be under way.
func (l *leader) append(ctx context.Context, op uint64) error {
	if len(l.log) == logEntries {
		return errors.New("the log is full")
	}
	l.note(after(l.log, l.term, op))
	return l.fill(ctx)
}

// fill gives the group the entries for which its queue pair has room.
func (l *leader) fill(ctx context.Context) error {
	for l.posted < len(l.log) && l.way.HasRoom() {
		at := entryBytes * l.posted
		if _, err := l.way.Write(ctx, l.memory[at:at+entryBytes], at); err != nil {
			return fenced(err)
		}
		l.posted++
	}
	return nil
}

// awaitDecided waits until a quorum has all entries of this leader, except the last few that may be
// under way. Clients hear of those that are decided, also if the leader finds out that it leads no
// more.
func (l *leader) awaitDecided(ctx context.Context, underWay int) error {
	err := l.reach(ctx, len(l.log)-underWay)
	return errors.Join(l.notify(ctx), err)
}

// reach waits until a quorum has the entries below a place: by the group, or, where that takes too
// long, by a connection to each replica. The group gets every entry all the same: what goes both
// ways is the same bytes at the same place.
func (l *leader) reach(ctx context.Context, index int) error {
	for l.away || index > l.complete() {
		if err := l.fill(ctx); err != nil {
			return err
		}
		within := soon
		if l.away {
			within = 0
		}
		brief, cancel := context.WithTimeout(ctx, within)
		err := l.way.WaitFor(brief, uint64(l.posted-l.base))
		cancel()
		var ended *ways.Ended
		switch {
		case err == nil:
			l.away = l.posted < len(l.log)
			continue
		case ctx.Err() != nil || errors.As(err, &ended):
			return fenced(err)
		case index <= l.complete():
			return nil
		}
		err = l.writeToEach(ctx)
		if errors.Is(err, errFenced) {
			return err
		}
		l.away = err == nil // without a quorum of connections, only the group can help
	}
	return nil
}

// complete is the place behind the last entry that a quorum has.
func (l *leader) complete() int { return max(l.base+int(l.way.Complete()), l.direct) }

// writeToEach writes to each replica what it lacks of the log, and returns when a quorum has the
// whole log. A replica that follows another leader refuses that too.
func (l *leader) writeToEach(ctx context.Context) error {
	ctx, enough := context.WithCancel(ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer enough()
	outcomes := make(chan error, len(l.replicas))
	for _, r := range l.replicas {
		if r.lost || r.away {
			outcomes <- fmt.Errorf("replica %v does not answer", r.host.IP)
			continue
		}
		writers.Go(func() { outcomes <- l.send(ctx, r, common([][]entry{r.log(), l.log}), len(l.log)) })
	}
	var failed error
	have := 0
	for range l.replicas {
		err := fenced(<-outcomes)
		if err == nil {
			have++
		}
		if have == quorum {
			l.direct = len(l.log)
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// back waits until a quorum has everything by the group.
func (l *leader) back(ctx context.Context) error {
	for {
		if err := l.fill(ctx); err != nil {
			return err
		}
		if err := l.way.WaitFor(ctx, uint64(l.posted-l.base)); err != nil {
			return fenced(err)
		}
		if l.posted == len(l.log) {
			l.away = false
			return nil
		}
	}
}

// notify tells clients what is decided.
func (l *leader) notify(ctx context.Context) error {
	complete := l.complete()
	if err := l.bringUp(ctx); err != nil {
		return err
	}
	for ; l.decided < complete; l.decided++ {
		l.checker.decide(l.log[l.decided])
	}
	return nil
}

// fenced is errFenced if a replica has refused this leader.
func fenced(err error) error {
	var ended *ways.Ended
	if errors.As(err, &ended) && ended.Status == rnic.RemoteAccess {
		return errFenced
	}
	return err
}

// decide appends an entry to the log, and returns when a quorum has it.
func (l *leader) decide(ctx context.Context, op uint64) error {
	if err := l.append(ctx, op); err != nil {
		return err
	}
	return l.awaitDecided(ctx, 0)
}

// next waits for the next event of this leader's group that is wanted.
func (l *leader) next(ctx context.Context, wanted func(client.Event) bool) (client.Event, error) {
	for {
		events, err := l.api.EventsAfter(ctx, l.events, l.group(), 10*time.Second)
		if err != nil {
			return client.Event{}, err
		}
		for _, e := range events.Events {
			l.events.Run, l.events.Seq = events.Cursor.Run, e.Seq
			if wanted(e) {
				return e, nil
			}
		}
		l.events = events.Cursor
	}
}

// index is the index of the entry that went with a packet.
func (l *leader) index(psn uint32) int { return l.base + int(roce.PSN(psn).Sub(l.psn)) }

// rejoin makes a replica a member again, with a new seat: its old one lacks what the group no
// longer has. It gets the next entry that is decided, and what comes after.
func (l *leader) rejoin(ctx context.Context, r *replica) error {
	var others []*replica
	for _, other := range l.replicas {
		if other != r {
			others = append(others, other)
		}
	}
	if _, err := l.api.UpdateGroup(ctx, l.group(), l.file(others)); err != nil {
		return err
	}
	r.endSeat(l.term)
	s, err := r.restart(l.term)
	if err != nil {
		return err
	}
	l.seats[r] = s
	if err := s.connect(ctx, l.groupIP, l.qpn()); err != nil {
		return err
	}
	l.joining = r
	_, err = l.api.UpdateGroup(ctx, l.group(), l.file(l.replicas))
	return err
}

// bringUp gives a replica that has joined what came before. Until the replica has that, nothing
// that it acknowledges may count: an entry is decided only when every replica of its quorum has the
// whole log up to there.
func (l *leader) bringUp(ctx context.Context) error {
	r := l.joining
	if r == nil {
		return nil
	}
	if m, err := l.member(ctx, r); err != nil || m.Part == "joining" {
		return err // it acknowledges nothing before it has joined
	}
	joined, err := l.next(ctx, func(e client.Event) bool { return e.Kind == api.MemberJoined && e.Member == r.host.IP.String() })
	if err != nil {
		return err
	}
	from, to := common([][]entry{r.log(), l.log}), l.index(*joined.PSN)
	if err := l.send(ctx, r, from, to); err != nil {
		return err
	}
	l.joining, r.lost = nil, false
	return nil
}

// member is what the box says of a replica.
func (l *leader) member(ctx context.Context, r *replica) (client.Member, error) {
	group, err := l.api.Group(ctx, l.group())
	for _, m := range group.Members {
		if m.IP == r.host.IP.String() {
			return m, err
		}
	}
	return client.Member{}, errors.Join(err, fmt.Errorf("%v is not in group %s", r.host.IP, l.group()))
}

// send writes some entries to one replica, by a connection that is made for that.
func (l *leader) send(ctx context.Context, r *replica, from, to int) error {
	if from >= to {
		return nil
	}
	own, psn := 2+roce.QPN(rand.Uint32N(1<<23)), roce.PSN(rand.Uint32N(1<<24))
	there, err := r.host.RNIC.NewQP(bed.QP(own, 0, pathMTU))
	if err != nil {
		return err
	}
	defer there.Destroy()
	here, err := l.host.RNIC.NewQP(bed.QP(own, psn, pathMTU))
	if err != nil {
		return err
	}
	defer here.Destroy()
	err = errors.Join(there.Connect(ctx, endpoint.Peer{IP: l.host.IP, QPN: own, PSN: psn}), here.Connect(ctx, endpoint.Peer{IP: r.host.IP, QPN: own}))
	if err != nil {
		return err
	}
	text := l.memory[from*entryBytes : to*entryBytes]
	if err := here.PostWrite(0, text, rnic.Remote{VA: logVA + uint64(from*entryBytes), RKey: l.seats[r].rkey}); err != nil {
		return err
	}
	c, err := here.Wait(ctx)
	if err == nil && c.Status != rnic.Success {
		err = fmt.Errorf("%v cannot be written to: %w", r.host.IP, &ways.Ended{Status: c.Status})
	}
	return err
}

// retire removes what a leader has made.
func (l *leader) retire(ctx context.Context) error {
	l.way.Close()
	for _, r := range l.replicas {
		r.endSeat(l.term)
	}
	_, err := l.api.RemoveGroup(ctx, l.group())
	return err
}
