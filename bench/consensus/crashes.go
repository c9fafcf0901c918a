package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/rocast/rocast/bench/ways"
	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

const (
	crashesOfASeed = 6
	// patience bounds a seed. It takes some seconds, most of them for rocastd to start, and more on
	// a busy machine.
	patience = 3 * time.Minute
	// underWay is how many entries may be under way when something crashes.
	underWay = 64
	// lossyPerMillion is how many packets of a million each replica's link loses, with every other
	// seed.
	lossyPerMillion = 5000
)

// crash is what may crash, while entries are under way.
type crash struct {
	name                 string
	leader, replica, box bool
}

var crashes = []crash{
	{name: "the leader", leader: true},
	{name: "a replica", replica: true},
	{name: "the box", box: true},
	{name: "the leader and a replica", leader: true, replica: true},
	{name: "the box and a replica", box: true, replica: true},
	{name: "the leader and the box", leader: true, box: true},
}

// suffer lets something crash several times, as a seed draws it, and then looks for entries that
// were lost, changed, or put in another order.
func (s *story) suffer(ctx context.Context, seed uint64, times int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	draw := rand.New(rand.NewPCG(seed, 0))
	loss := lossyPerMillion * int(seed%2)
	lose := func(perMillion int) (err error) {
		for _, r := range s.replicas {
			err = errors.Join(err, r.link.Lose(perMillion))
		}
		return err
	}
	if err := lose(loss); err != nil {
		return err
	}
	began := time.Now()
	var drawn []string
	for i := range times {
		c := crashes[draw.IntN(len(crashes))]
		s.drawn++
		drawn = append(drawn, c.name)
		if err := s.crash(ctx, c, draw); err != nil {
			return fmt.Errorf("seed %d, crash %d, of %s: %w", seed, i+1, c.name, err)
		}
	}
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	fmt.Fprintf(s.out, "seed %d, %d of a million packets lost, %4.1f s: %s\n", seed, loss, time.Since(began).Seconds(), strings.Join(drawn, ", "))
	return lose(0)
}

// appends lets the leader write n entries, without waiting for them.
func (s *story) appends(ctx context.Context, n int) error {
	for range n {
		s.op++
		if err := s.now.append(ctx, s.op); err != nil {
			return err
		}
	}
	return nil
}

// crash lets something crash while entries are under way, and some further entries be decided.
func (s *story) crash(ctx context.Context, c crash, draw *rand.Rand) error {
	if err := s.appends(ctx, 1+draw.IntN(underWay)); err != nil {
		return err
	}
	if err := s.now.awaitDecided(ctx, draw.IntN(underWay)); err != nil { // some are decided
		return err
	}
	var dead *replica
	if c.replica {
		dead = s.replicas[draw.IntN(replicas)]
		dead.die()
	}
	s.open += len(s.now.log) - s.now.complete()
	began := time.Now()
	if c.box {
		if err := s.Daemon.Kill(); err != nil {
			return err
		}
	}
	if c.leader {
		if err := s.now.crash(ctx); err != nil {
			return err
		}
	} else if err := s.appends(ctx, draw.IntN(underWay)); err != nil { // it does not know
		return err
	}
	if c.box && !c.leader { // it goes on by connections to each replica
		if err := s.now.awaitDecided(ctx, 0); err != nil {
			return err
		}
		if dead == nil {
			s.outages = append(s.outages, time.Since(began))
		}
	}
	if c.box {
		if err := s.Daemon.Start(ctx, s.Box); err != nil {
			return err
		}
	}
	if c.leader {
		if err := s.replace(ctx); err != nil {
			return err
		}
	}
	if err := s.goOn(ctx, func(ctx context.Context) error { return errors.Join(s.now.back(ctx), s.now.notify(ctx)) }); err != nil {
		return err
	}
	if c == (crash{name: c.name, box: true}) {
		s.backs = append(s.backs, time.Since(began))
	}
	return s.goOn(ctx, func(ctx context.Context) error {
		if dead != nil && dead.lost {
			if err := s.comeBack(ctx, dead); err != nil {
				return err
			}
		}
		return s.decide(ctx, some)
	})
}

// replace lets the other host lead, and removes the group and the seats of the leader before.
func (s *story) replace(ctx context.Context) error {
	old, err := s.lead(ctx)
	if err != nil {
		return err
	}
	return old.retire(ctx)
}

// goOn does what the leader has to do. If one replica has lost its log, and the box what it kept
// for another one, no two replicas can follow the group. The group's queue pair ends, or nothing is
// decided any more, because the box cannot know that the dead replica will not answer. The leader
// knows that, and the box says that the other replica is behind. Then there is another leader,
// which finds the whole log at one of the replicas.
func (s *story) goOn(ctx context.Context, do func(context.Context) error) error {
	followed, stop := context.WithCancelCause(ctx)
	lost := map[string]bool{} // the leader's connections to their programs have ended
	for _, r := range s.replicas {
		if r.lost {
			lost[r.host.IP.String()] = true
		}
	}
	var watch sync.WaitGroup
	watch.Go(func() { stop(s.now.tooFew(followed, lost)) })
	err := do(followed)
	why := context.Cause(followed)
	stop(nil)
	watch.Wait()
	var ended *ways.Ended
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case !errors.As(err, &ended) && !errors.Is(why, errTooFew):
		return errors.Join(err, why)
	}
	s.anew++
	fmt.Fprintf(s.out, "a leader begins anew: %v; %s\n", cmp.Or(why, err), s.members(ctx))
	if err := s.replace(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// errTooFew says that nothing is decided any more by the group of this leader.
var errTooFew = errors.New("too few replicas can follow")

// tooFew returns errTooFew when the box has said of so many replicas that they get no more data
// that, beside those that have lost their logs, no quorum is left.
func (l *leader) tooFew(ctx context.Context, lost map[string]bool) error {
	var at client.Cursor
	for wait := time.Duration(0); ; wait = api.MaxEventWait {
		events, err := l.api.EventsAfter(ctx, at, l.group(), wait)
		if err != nil {
			return err
		}
		at = events.Cursor
		group, err := l.api.Group(ctx, l.group())
		if err != nil {
			return err
		}
		follow := len(l.replicas) - len(lost)
		for _, m := range group.Members {
			if m.State == api.LeftOut && !lost[m.IP] {
				follow--
			}
		}
		if follow < quorum {
			return errTooFew
		}
	}
}

// members says what the box knows of the replicas, and what they have.
func (s *story) members(ctx context.Context) string {
	var list []string
	for _, r := range s.replicas {
		m, err := s.now.member(ctx, r)
		if err != nil {
			return err.Error()
		}
		list = append(list, fmt.Sprintf("%v is %s and has %d of %d entries", r.host.IP, m.Part, len(r.log()), len(s.now.log)))
	}
	return strings.Join(list, ", ")
}

// crash ends a leader in the middle of what it does. Its clients know everything that the box had
// acknowledged to it by then.
func (l *leader) crash(ctx context.Context) error {
	l.way.Close()
	return l.notify(ctx)
}

// follow waits until a replica has as many entries. If the box no longer has what the replica
// lacks, the leader lets it come back. The box learns that from a replica that has left several
// packets unanswered, so entries go on while the replica stands still.
func (s *story) follow(ctx context.Context, r *replica, entries int) error {
	for before := -1; ; {
		has := len(r.log())
		if has >= entries {
			return nil
		}
		m, err := s.now.member(ctx, r)
		switch {
		case err != nil:
		case m.State == api.LeftOut:
			err = s.comeBack(ctx, r)
		case has == before:
			err = s.decide(ctx, 1)
		}
		before = has
		if err == nil {
			err = pause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%v has %d of %d entries: %w", r.host.IP, has, entries, err)
		}
	}
}

// pause is the time between two looks.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}
