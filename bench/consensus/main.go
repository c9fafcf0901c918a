// Command consensus is an example of a program that uses package client: leaders write a log to
// three replicas, as P4CE has it (Dulong et al., ICDCS 2024). A leader writes each entry once, to a
// group with ack: quorum 2, and the entry is decided when the leader's write completes. Replicas do
// nothing for it.
//
// Two hosts lead in turn. Each leader has a group of its own, with a queue pair at each replica and
// a key (R_Key) for its writes. A replica has its log registered under the key of one leader. When
// another leader asks for permission, the replica registers the log under that leader's key. What
// the old leader still writes is refused with NAK remote access: the replica is evicted from the
// old leader's group (on-fatal: evict). The second such NAK ends the old leader's queue pair,
// because two of three replicas refuse. A program over libibverbs calls ibv_reg_mr and
// ibv_dereg_mr, or takes away the access flags of the queue pair.
//
// A new leader takes the permission of at least two replicas, and goes on with the newest of their
// logs. It writes again, to all of them, what the logs do not have in common. Each entry has a
// checksum over all entries before, so what an earlier leader left behind is never taken for an
// entry that follows. A replica that has lost its memory gives no permission before it has
// everything again.
//
// The command makes its own lab. It changes the leader, kills a replica, lets it come back, and
// says what each of these takes. It also plays crashes: a seed draws whether the leader, a replica
// with its memory, the box, or two of these crash while up to 126 entries are under way. With every
// other seed the links lose 0.5 % of the packets. One replica at a time loses its memory: more than
// that no quorum of three survives. Without the box, a leader that has waited for the group for
// 20 ms writes to each replica by a connection of its own, and counts by itself. At the end a
// checker looks for entries that were lost, changed or reordered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rocast/rocast/bench/site"
	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/lossy"
)

func main() {
	bin := flag.String("bin", "build", "directory of rocastd")
	rounds := flag.Int("rounds", 10, "how often the leader changes, and a replica dies")
	seeds := flag.Uint64("seeds", 3, "how many sequences of crashes are drawn")
	first := flag.Uint64("seed", 1, "the first of them")
	file := flag.String("figures", "", "measure entries per second and latency too, and write all figures to this file as JSON")
	mbit := flag.Int("mbit", 4, "rate of the links while that is measured, Mbit/s")
	short := flag.Bool("short", false, "measure for less than a minute")
	flag.Parse()
	if *rounds < 1 {
		fmt.Println("FAIL: -rounds has to be at least 1")
		os.Exit(1)
	}
	ctx, stop := site.UntilSignal()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	program := filepath.Join(*bin, "rocastd")
	failovers, err := run(ctx, os.Stdout, program, *rounds, *first, *seeds)
	if err == nil && *file != "" {
		var f *figures
		if f, err = measure(ctx, os.Stdout, program, newPlan(*mbit*1_000_000, *short)); err == nil {
			f.Failover = failovers
			err = f.save(*file)
		}
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

const (
	leaders  = 2
	replicas = 3
	some     = 100 // entries that are decided between two things that happen
)

// story is one run.
type story struct {
	*site.Lab
	out      io.Writer
	replicas []*replica
	checker  checker
	now      *leader
	op       uint64

	// What was measured.

	setups   []time.Duration // of a group, with its queue pairs
	changes  []time.Duration // from the decision to lead to the first entry, with a new group
	takes    []time.Duration // the same, if the group is there before
	writes   []time.Duration // from a write to its completion
	losses   []time.Duration // the longest one of these while a replica died
	returns  []time.Duration // from its return to an entry that it has, and everything before
	outages  []time.Duration // from the crash of the box until what was under way is decided
	backs    []time.Duration // from the crash of the box until the group has everything again
	anew     int             // leaders that began anew, because too few replicas could follow the group
	drawn    int             // crashes that were drawn
	open     int             // entries that were not decided when something crashed
	refusals []string        // how the leaders before heard that they are not leaders any more
}

func run(ctx context.Context, out io.Writer, program string, rounds int, seed, seeds uint64) (_ []failover, err error) {
	s, err := open(ctx, out, program)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	err = s.all(ctx, rounds)
	for n := seed; err == nil && n < seed+seeds; n++ {
		err = s.suffer(ctx, n, crashesOfASeed)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nrocastd's log:\n%s", err, s.Daemon.Log())
	}
	s.report()
	return s.failovers(), nil
}

// open builds the lab, and makes the first host the leader.
func open(ctx context.Context, out io.Writer, program string) (_ *story, err error) {
	s := &story{out: out, checker: checker{decided: map[uint64]uint64{}}}
	if s.Lab, err = site.Open(ctx, leaders+replicas, program); err != nil {
		return nil, err
	}
	for _, h := range s.Hosts[leaders:] {
		r := &replica{host: h, memory: make([]byte, logBytes), seats: map[uint64]*seat{}}
		if r.link, err = lossy.Attach(h.End, 1, 0); err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.replicas = append(s.replicas, r)
	}
	if _, err = s.lead(ctx); err == nil {
		err = s.decide(ctx, some)
	}
	if err != nil {
		err = errors.Join(err, s.close())
	}
	return s, err
}

func (s *story) close() (err error) {
	for _, r := range s.replicas {
		err = errors.Join(err, r.link.Close())
	}
	return errors.Join(err, s.Lab.Close())
}

func (s *story) all(ctx context.Context, rounds int) error {
	for i := range rounds {
		if err := s.change(ctx); err != nil {
			return fmt.Errorf("leader change %d: %w", i+1, err)
		}
		if err := s.crash(ctx, crash{name: "the box", box: true}, rand.New(rand.NewPCG(uint64(i), 1))); err != nil {
			return fmt.Errorf("crash %d of the box: %w", i+1, err)
		}
		if err := s.lose(ctx, s.replicas[i%replicas]); err != nil {
			return fmt.Errorf("loss %d: %w", i+1, err)
		}
	}
	return s.check(ctx)
}

// decide lets the leader decide n entries.
func (s *story) decide(ctx context.Context, n int) error {
	for range n {
		s.op++
		began := time.Now()
		if err := s.now.decide(ctx, s.op); err != nil {
			return err
		}
		s.writes = append(s.writes, time.Since(began))
	}
	return nil
}

// lead makes the other host the leader of the next term, and returns the leader before.
func (s *story) lead(ctx context.Context) (old *leader, err error) {
	old = s.now
	next := &leader{api: s.Daemon.Client(), groupIP: s.GroupIP(), replicas: s.replicas, checker: &s.checker, term: 1}
	if old != nil {
		next.term = old.term + 1
	}
	next.host = s.Hosts[next.term%leaders]
	began := time.Now()
	if err := next.stand(ctx); err != nil {
		return old, err
	}
	stands := time.Now()
	if err := next.take(ctx); err != nil {
		return old, err
	}
	s.now = next
	if err := s.decide(ctx, 1); err != nil {
		return old, err
	}
	if old != nil {
		s.setups = append(s.setups, stands.Sub(began))
		s.changes, s.takes = append(s.changes, time.Since(began)), append(s.takes, time.Since(stands))
	}
	return old, nil
}

// late is how many entries a leader writes that is none any more.
const late = 5

// change changes the leader. The one before does not know: it goes on, and is refused.
func (s *story) change(ctx context.Context) error {
	old, err := s.lead(ctx)
	if err != nil {
		return err
	}
	first := len(old.log)
	for range late {
		s.op++
		if err := old.append(ctx, s.op); err != nil && !errors.Is(err, errFenced) {
			return err
		}
	}
	if err := old.awaitDecided(ctx, 0); !errors.Is(err, errFenced) || old.decided != first {
		return fmt.Errorf("the leader before has decided entries up to %d instead of %d: %v", old.decided, first, err)
	}
	for range replicas + 1 - quorum { // so many have to refuse
		e, err := old.next(ctx, func(e client.Event) bool { return e.Kind == api.MemberRefused })
		if err != nil {
			return err
		}
		if at := old.index(*e.PSN); at != first {
			return fmt.Errorf("%s refused entry %d, not %d", e.Member, at, first)
		}
		s.refusals = append(s.refusals, e.Cause)
	}
	if err := old.retire(ctx); err != nil {
		return err
	}
	return s.decide(ctx, some)
}

// lose kills a replica, which loses its log, and lets it come back.
func (s *story) lose(ctx context.Context, r *replica) error {
	before := len(s.writes)
	if err := s.decide(ctx, some/2); err != nil {
		return err
	}
	r.die()
	if err := s.decide(ctx, some/2); err != nil {
		return err
	}
	s.losses = append(s.losses, slices.Max(s.writes[before:]))
	began := time.Now()
	if err := s.comeBack(ctx, r); err != nil {
		return err
	}
	s.returns = append(s.returns, time.Since(began))
	return s.decide(ctx, some)
}

// comeBack lets a replica join again, and returns when it has everything.
func (s *story) comeBack(ctx context.Context, r *replica) error {
	if err := s.now.rejoin(ctx, r); err != nil {
		return err
	}
	for s.now.joining != nil {
		if err := s.decide(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// check waits until all replicas have caught up, and looks for what is lost or in another order.
func (s *story) check(ctx context.Context) error {
	for _, r := range s.replicas {
		if err := s.follow(ctx, r, len(s.now.log)); err != nil {
			return err
		}
	}
	for _, r := range s.replicas { // also what was decided meanwhile
		for len(r.log()) < len(s.now.log) {
			if err := pause(ctx); err != nil {
				return fmt.Errorf("%v has %d of %d entries: %w", r.host.IP, len(r.log()), len(s.now.log), err)
			}
		}
		if err := s.checker.check(r.log()); err != nil {
			return fmt.Errorf("%v: %w", r.host.IP, err)
		}
	}
	return nil
}

func (s *story) report() {
	print := func(what string, times []time.Duration) {
		fmt.Fprintf(s.out, "%-62s p50 %7.2f ms, worst %7.2f ms, of %d\n", what, ms(median(times)), ms(slices.Max(times)), len(times))
	}
	print("leader change, with a group that is made then", s.changes)
	print("leader change, with a group that stands by", s.takes)
	print("an entry, from the write to its completion", s.writes)
	print("the longest such time while a replica dies", s.losses)
	print("a replica that lost everything has everything again", s.returns)
	print("the box crashes, and what was under way is decided", s.outages)
	print("the box crashes, starts again, and the group has everything", s.backs)
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "%d crashes were drawn, and %d entries were not decided when something crashed; %d leaders began anew\n", s.drawn, s.open, s.anew)
	}
	fmt.Fprintf(s.out, "%d entries are in all %d logs, none lost, none in another order\n", len(s.now.log), replicas)
	fmt.Fprintf(s.out, "what a leader before hears of each replica: %s\n", s.refusals[0])
}

func median(times []time.Duration) time.Duration {
	times = slices.Sorted(slices.Values(times))
	return times[len(times)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
