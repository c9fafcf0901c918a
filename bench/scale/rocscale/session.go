package main

import (
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"github.com/rocast/rocast/bench/scale"
	"github.com/rocast/rocast/feedback"
)

// session is one run of all experiments.
type session struct {
	short    bool
	seed     uint64
	sections []section

	events    uint64
	took      time.Duration // of CPU, in runs
	peakBytes uint64        // of memory
}

// experiment is one table, or some that belong together.
type experiment struct {
	name string
	run  func(*session) error
}

var experiments = []experiment{
	{"sizes", (*session).sizes}, {"loss", (*session).loss}, {"share", (*session).share}, {"legs", (*session).legs},
	{"load", (*session).load}, {"copies", (*session).copies}, {"panels", (*session).panels}, {"hpl", (*session).hpl},
	{"reads", (*session).reads}, {"training", (*session).training}, {"state", (*session).state},
}

func newSession(short bool, seed uint64) *session { return &session{short: short, seed: seed} }

// pick returns the value for the form of the run.
func pick[T any](s *session, short, full T) T {
	if s.short {
		return short
	}
	return full
}

const (
	kilo = 1 << 10
	mega = 1 << 20
	giga = 1_000_000_000 // bits per second
)

// The networks of the papers.
func (s *session) cepheus() scale.Config { return s.config(scale.FatTree(16), 100*giga) }
func (s *session) gleam() scale.Config   { return s.config(scale.Pods64(), 200*giga) }
func (s *session) mcRDMA() scale.Config  { return s.config(scale.FatTree(6), 100*giga) }

func (s *session) config(shape scale.Shape, rate int64) scale.Config {
	c := scale.Papers(shape, rate)
	c.Seed = s.seed
	return c
}

// cpuTime returns the CPU time of the process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("rocscale: " + err.Error()) // the arguments are right
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// members draws a source and receivers from the hosts of a network.
func (s *session) members(c *scale.Config, receivers int) (source int, others []int) {
	drawn := rand.New(rand.NewPCG(s.seed, uint64(receivers))).Perm(c.Hosts())
	return drawn[0], drawn[1 : 1+receivers]
}

// play runs a network until a time.
func (s *session) play(n *scale.Net, until scale.Time) (over bool, err error) {
	before, began := n.Events(), cpuTime()
	over, err = n.Run(until)
	s.took += cpuTime() - began
	s.events += n.Events() - before
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.peakBytes = max(s.peakBytes, m.Sys)
	return over, err
}

// patience is a simulated time in which every transfer ends.
const patience = 1000 * scale.Second

// transfer is a group, or programs without multicast, that bring something to all receivers.
type transfer interface {
	Began() scale.Time
	Arrived() scale.Time
}

// multicast sends bytes to receivers over a new network, and returns how long it took.
func (s *session) multicast(c scale.Config, p feedback.Policy, receivers int, bytes int64) (n *scale.Net, g *scale.Group, err error) {
	source, others := s.members(&c, receivers)
	return s.multicastTo(c, p, source, others, bytes)
}

func (s *session) multicastTo(c scale.Config, p feedback.Policy, source int, others []int, bytes int64) (n *scale.Net, g *scale.Group, err error) {
	if n, err = scale.New(c); err != nil {
		return nil, nil, err
	}
	if g, err = n.NewGroup(source, others, p); err != nil {
		return nil, nil, err
	}
	g.Send(n, bytes)
	return n, g, s.finish(n)
}

// finish lets everything arrive.
func (s *session) finish(n *scale.Net) error {
	if _, err := s.play(n, patience); err != nil {
		return err
	}
	return n.Finish(patience)
}

func seconds(t transfer) float64 { return (t.Arrived() - t.Began()).Seconds() }

// micros writes a number of seconds in microseconds.
func micros(seconds float64) float64 { return seconds * 1e6 }
