package client

import "time"

// Way is how a stream's items reach its receivers.
type Way uint8

const (
	Unicast   Way = iota // by a connection to each receiver
	Multicast            // by the group
)

func (w Way) String() string { return [...]string{"unicast", "multicast"}[w] }

// Signal is something that a Fallback has to hear.
type Signal uint8

const (
	Tick        Signal = iota // time has passed
	SendFailed                // an item did not get through by multicast
	WentBad                   // the group is degraded
	WentWell                  // the group is no longer degraded, or was created again
	ProbeWorked               // the group was tried, and works
	ProbeFailed               // it does not
)

// Pace bounds how often a Fallback tries multicast again. The zero value of a field is its default.
type Pace struct {
	First   time.Duration // from falling back to the first probe; 1s
	Most    time.Duration // the pause doubles with each failure up to this one; 1m
	Settled time.Duration // multicast that has worked for so long: the next pause is First again; 30s
}

func (p Pace) withDefaults() Pace {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&p.First, time.Second}, {&p.Most, time.Minute}, {&p.Settled, 30 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	p.Most = max(p.Most, p.First)
	return p
}

// Order is what a program has to do after a signal.
type Order struct {
	Way   Way
	Probe bool      // begin a probe; there is no other one under way
	Look  time.Time // when to tick; zero: no tick is needed
}

// Fallback decides when a program sends by multicast and when by one connection for each receiver.
// It reads no clock and does nothing itself: a program tells it what happens, and does what it
// orders. A [Stream] does so for one stream of items.
//
// It begins with unicast and a probe at once. Multicast that fails or becomes bad is left at once,
// and comes back only by a probe that works. Probes, and returns that do not last, are as far apart
// as Pace says, so a group that works and fails in turn does not make the program go to and fro.
type Fallback struct {
	pace    Pace
	way     Way
	probing bool
	spoiled bool // the group became bad while it was probed
	pause   time.Duration
	look    time.Time // of the next probe
	since   time.Time // of multicast
}

// NewFallback returns a Fallback whose first Step orders a probe.
func NewFallback(p Pace) *Fallback { return &Fallback{pace: p.withDefaults()} }

// Step takes a signal.
func (f *Fallback) Step(now time.Time, s Signal) Order {
	switch s {
	case SendFailed, WentBad:
		f.spoiled = s == WentBad || f.spoiled
		if f.way == Multicast {
			f.fall(now)
		}
	case WentWell:
		f.spoiled = false
	case ProbeWorked, ProbeFailed:
		if !f.probing {
			break
		}
		f.probing = false
		if s == ProbeWorked && !f.spoiled {
			f.way, f.since = Multicast, now
		} else {
			f.wait(now)
		}
	}
	order := Order{Way: f.way}
	if f.way == Unicast && !f.probing {
		if order.Look = f.look; !now.Before(f.look) {
			f.probing, f.spoiled = true, false
			order.Probe, order.Look = true, time.Time{}
		}
	}
	return order
}

// fall leaves multicast.
func (f *Fallback) fall(now time.Time) {
	if now.Sub(f.since) >= f.pace.Settled {
		f.pause = 0
	}
	f.way = Unicast
	f.wait(now)
}

// wait puts the next probe off, twice as long as the last time.
func (f *Fallback) wait(now time.Time) {
	f.pause = min(max(f.pace.First, 2*f.pause), f.pace.Most)
	f.look = now.Add(f.pause)
}
