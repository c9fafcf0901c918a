package sim

import (
	"math/rand/v2"
	"time"

	"github.com/rocast/rocast/bench/rnic"
	"github.com/rocast/rocast/mft"
)

// world is one run while it lasts. Its buffers are used again by the next one.
type world struct {
	s        *Scenario
	frameRNG *rand.Rand
	random   rand.PCG
	now      time.Duration
	took     time.Duration // until the last completion of the source
	schedule schedule
	pool     pool
	plan     plan
	group    *mft.Group

	source    source
	receivers []receiver
	box       box
	place     int   // the packet of the source that the switch saw last
	told      claim // what was acknowledged to it so far
	image     []byte

	failure  *Failure
	tally    Tally
	hash     uint64
	events   uint64
	recorder *recorder
	wrap     func(*world, forwarder) forwarder // tests only
}

// open makes everything for a run of s.
func (w *world) open(s *Scenario) error {
	w.s, w.now, w.took, w.place, w.told = s, 0, 0, nowhere, claim{acked: -1}
	w.random.Seed(s.Seed, frameStream)
	w.frameRNG = rand.New(&w.random)
	w.schedule.reset()
	w.pool.reset()
	w.plan.lay(s)
	w.failure, w.tally, w.hash, w.events = nil, Tally{}, hashBasis, 0
	w.box.reset()
	if err := w.openSwitch(false); err != nil {
		return err
	}
	if err := w.openSource(); err != nil {
		return err
	}
	for len(w.receivers) < len(s.Receivers) {
		w.receivers = append(w.receivers, receiver{})
	}
	w.receivers = w.receivers[:len(s.Receivers)]
	for i := range w.receivers {
		if err := w.openReceiver(&w.receivers[i], i+1, &s.Receivers[i]); err != nil {
			return err
		}
	}
	return nil
}

// run lets things happen until nothing does, or an invariant is broken.
func (w *world) run() {
	w.postMore()
	for w.failure == nil {
		e, ok := w.schedule.next()
		if !ok {
			w.finish()
			return
		}
		if e.at > w.s.Limit {
			w.fail(Ends, "not over: %d of %d messages posted, %d ended", w.source.posted, len(w.s.Messages), w.source.ended)
			return
		}
		w.now = e.at
		w.events++
		w.mix(&e)
		w.handle(&e)
		w.checkConserved()
	}
}

func (w *world) handle(e *event) {
	host := int(e.host)
	switch e.kind {
	case atSwitch:
		w.arrive(w.linkTo(host))
		w.toSwitchFrom(host, e.index)
	case atHost:
		w.arrive(w.linkFrom(host))
		if host == 0 {
			w.toSource(e.index)
		} else {
			w.toReceiver(&w.receivers[host-1], e.index)
		}
	case transmit:
		w.source.sending = false
		w.pump()
	case expire:
		w.expired()
	case post:
		w.source.thinking = false
		w.postMore()
	case repost:
		w.reposted(&w.receivers[host-1])
	case tick:
		w.ticked()
	case begin:
		w.begin(int(e.index))
	case end:
		w.end(&w.s.Timed[e.index])
	}
}

func (w *world) arrive(l *link) {
	l.flying--
	l.delivered++
}

// begin starts timed fault number k.
func (w *world) begin(k int) {
	f := &w.s.Timed[k]
	w.tally[f.Kind].Times++
	if w.recorder != nil {
		w.recorder.note(w.now, "%v of %s begins", f.Kind, hostName(f.Host))
	}
	switch f.Kind {
	case SwitchCrash:
		w.box.down++
		w.place = nowhere
	case ReceiverCrash:
		w.receivers[f.Host-1].crashed = true
	case KeyLost:
		r := &w.receivers[f.Host-1]
		r.keyLost = true
		for region := range max(1, w.s.Regions) {
			r.regions.Deregister(w.keyOf(r.number, region).RKey)
		}
	default:
		w.afflict(f, 1)
	}
	if f.For > 0 {
		w.schedule.add(event{at: w.now + f.For, kind: end, index: int32(k)})
	}
}

// end ends a timed fault.
func (w *world) end(f *Timed) {
	if w.recorder != nil {
		w.recorder.note(w.now, "%v of %s ends", f.Kind, hostName(f.Host))
	}
	switch f.Kind {
	case SwitchCrash:
		if w.box.down--; w.box.down > 0 {
			return
		}
		if err := w.openSwitch(true); err != nil {
			panic("sim: restart the switch: " + err.Error()) // it started once
		}
	default:
		w.afflict(f, -1)
	}
	if f.Kind == RNRStorm {
		w.repostOwed(&w.receivers[f.Host-1])
	}
}

// afflict begins (1) or ends (-1) what a host suffers.
func (w *world) afflict(f *Timed, n int) {
	switch to, from := w.linkTo(f.Host), w.linkFrom(f.Host); f.Kind {
	case Burst:
		to.burst += n
		from.burst += n
	case Cut:
		to.cut += n
		from.cut += n
	case SlowHost:
		from.slow += n
	case RNRStorm:
		w.receivers[f.Host-1].storm += n
	}
}

// hashBasis and hashPrime are FNV-1a's for 64 bits.
const (
	hashBasis = 14695981039346656037
	hashPrime = 1099511628211
)

// mix adds an event to the run's hash.
func (w *world) mix(e *event) {
	h := (w.hash ^ uint64(e.at)) * hashPrime
	h = (h ^ uint64(e.kind)<<32 ^ uint64(e.host)) * hashPrime
	w.hash = (h ^ uint64(w.source.highest)<<32 ^ uint64(w.pool.lent())) * hashPrime
}

// Result is what a run gave.
type Result struct {
	Failure *Failure // nil: all invariants held
	Status  rnic.Status
	Took    time.Duration // simulated, until the source's program had heard of everything
	Events  uint64
	Hash    uint64 // of all events, in order
	Tally   Tally
	Source  rnic.Counters
}

// Runner plays scenarios, one after the other. It is for one goroutine.
type Runner struct{ w world }

// NewRunner returns a runner.
func NewRunner() *Runner { return new(Runner) }

// Run plays s. The error is a scenario that cannot be set up.
func (r *Runner) Run(s Scenario) (Result, error) {
	w := &r.w
	if err := w.open(&s); err != nil {
		return Result{}, err
	}
	w.run()
	return Result{
		Failure: w.failure, Status: w.source.status, Took: w.took, Events: w.events, Hash: w.hash, Tally: w.tally,
		Source: *w.source.qp.Counters(),
	}, nil
}
