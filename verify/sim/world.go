package sim

import (
	"math/rand/v2"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// world is one run while it lasts. The next run uses its buffers again.
type world struct {
	s        *Scenario
	frameRNG *rand.Rand
	random   rand.PCG
	now      time.Duration
	took     time.Duration // when the last completion of a source came
	schedule schedule
	pool     pool

	hosts          []host
	longestSend    int // bytes
	group          *mft.Group
	membersChanged bool            // members have changed, and the core has not seen it
	cutDeaf        bool            // see Result
	hops           byte            // how often the next hops have changed
	memories       int             // how often the memory has changed
	generation     int             // of the leg that receivers share; 0: there was none
	generationTurn uint32          // the turn of which its edges map the packets
	opening        bool            // the switch comes up, and has no core yet
	mapped         dataplane.Frame // the frame that an edge maps
	active         int             // the host that the switch takes for the source
	notifying      *host           // the switch is handling a notification of this host
	box            box
	far            farBox
	turns          turns
	cut            bool // a turn began inside a message of the source before

	failure  *Failure
	tally    Tally
	carried  EngineCount
	hash     uint64
	events   uint64
	recorder *recorder
	wrap     func(*world, forwarder) forwarder // tests only
}

// begin makes the time, the frames and the faults of single frames of a run of s.
func (w *world) begin(s *Scenario) {
	w.s, w.now, w.took = s, 0, 0
	w.random.Seed(s.Seed, frameStream)
	w.frameRNG = rand.New(&w.random)
	w.schedule.reset()
	w.pool.reset()
	w.failure, w.tally, w.carried, w.hash, w.events = nil, Tally{}, EngineCount{}, hashBasis, 0
}

// open makes everything that a run of s needs.
func (w *world) open(s *Scenario) error {
	w.begin(s)
	w.reset(s)
	for len(w.hosts) < len(s.Hosts) {
		w.hosts = append(w.hosts, host{})
	}
	w.hosts = w.hosts[:len(s.Hosts)]
	for i := range w.hosts {
		if err := w.openHost(&w.hosts[i], i, &s.Hosts[i]); err != nil {
			return err
		}
	}
	w.far.down = 0
	w.far.toFar.reset(&s.FarLink.Down, 0, false)
	w.far.toFar.ends = atFar
	return w.openSwitch(false)
}

// reset forgets what the world knows of a group.
func (w *world) reset(s *Scenario) {
	w.box.reset()
	w.turns, w.cut = turns{old: w.turns.old}, false
	w.longestSend, w.membersChanged, w.cutDeaf, w.active, w.notifying, w.hops, w.memories, w.generation = longestSend(s), false, false, 0, nil, 0, 0, 0
	w.generationTurn, w.opening = 0, false
}

func longestSend(s *Scenario) (bytes int) {
	for i := range s.Hosts {
		for k := range s.Hosts[i].Messages {
			if m := &s.Hosts[i].Messages[k]; m.isSend() {
				bytes = max(bytes, m.Bytes)
			}
		}
	}
	return bytes
}

func (w *world) run() {
	w.play(w.judged, w.finish)
}

// judged handles an event, and counts all frames afterwards.
func (w *world) judged(e *event) {
	w.handle(e)
	w.checkConserved()
}

// play lets events happen until there are none, or an invariant does not hold.
func (w *world) play(handle func(*event), finish func()) {
	w.start(&w.hosts[0])
	for w.failure == nil {
		e, ok := w.schedule.next()
		if !ok {
			finish()
			return
		}
		if e.at > w.s.Limit {
			if w.allHang() {
				if h := &w.hosts[w.active]; !h.over() {
					w.checkHanging(h)
				}
			} else {
				w.fail(Ends, "not over in time: %s", w.progress())
			}
			return
		}
		w.happen(&e, handle)
	}
}

func (w *world) happen(e *event, handle func(*event)) {
	w.now = e.at
	w.events++
	w.mix(e)
	handle(e)
}

func (w *world) handle(e *event) {
	h := &w.hosts[e.host]
	switch e.kind {
	case atSwitch:
		h.toSwitch.arrive()
		w.forward(h, e.index)
	case atFarOfHost:
		h.toSwitch.arrive()
		w.atFar(h, e.index)
	case fromFar:
		h.fromFar.arrive()
		w.forward(h, e.index)
	case atFar:
		w.far.toFar.arrive()
		w.atFar(nil, e.index)
	case atHost:
		h.toHost.arrive()
		w.arriveAtHost(h, e.index)
	case transmit:
		h.sending = false
		w.pump(h)
	case expire:
		w.expired(h)
	case post:
		h.thinking = false
		w.postMore(h)
	case repost:
		h.owed++
		w.repay(h)
	case tick:
		w.ticked()
	case faultBegins:
		w.beginFault(int(e.index))
	case faultEnds:
		w.endFault(&w.s.Timed[e.index])
	case sharesAnew:
		w.publish()
	case confirms:
		w.confirm(h)
	case takesTurn, turnStored, turnBegins:
		w.atControl(e)
	default:
		w.atEngine(e)
	}
}

// over reports whether the programs of all sources have heard of everything.
func (w *world) over() bool {
	for i := range w.hosts {
		if !w.hosts[i].over() {
			return false
		}
	}
	return true
}

// hashBasis and hashPrime are those of FNV-1a for 64 bits.
const (
	hashBasis = 14695981039346656037
	hashPrime = 1099511628211
)

// mix adds an event to the hash of the run.
func (w *world) mix(e *event) {
	h := (w.hash ^ uint64(e.at)) * hashPrime
	h = (h ^ uint64(e.kind)<<32 ^ uint64(e.host)) * hashPrime
	w.hash = (h ^ uint64(w.hosts[0].highest)<<32 ^ uint64(w.pool.lent())) * hashPrime
}
