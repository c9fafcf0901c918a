package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocast/rocast/bench/beside"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
)

// method is a way to bring messages to receivers.
type method struct {
	name      string
	receivers int
	group     bool
	shares    bool                                     // all its receivers share the copies
	keys      string                                   // of the group's file
	schedule  func(hosts, bytes int) relaying.Schedule // of a message
	ahead     func(bytes int) int                      // as in transfer
}

// Names that several sections use.
const (
	nameRocast  = "rocast to 3"
	nameOne     = "1 unicast"
	nameThree   = "3 unicasts"
	nameTree    = "binomial tree"
	namePipe    = "binomial pipeline (RDMC)"
	nameChain   = "chain, 4 slices"
	keyShipped  = "" // of the group file: nothing but what a group needs
	blockBytes  = 64 << 10
	mostBlocks  = 256
	aheadInPipe = 2
)

// rocast is a group.
func rocast(name, keys string) *method {
	return &method{name: name, receivers: receivers, group: true, keys: keys, ahead: anyNumber,
		schedule: func(hosts, _ int) relaying.Schedule {
			s := relaying.Schedule{Blocks: 1, Sends: make([][]relaying.Send, hosts)}
			s.Sends[0] = []relaying.Send{{To: toAll, Block: 0}}
			return s
		}}
}

// unicast has one connection to each receiver.
func unicast(name string, receivers int) *method {
	return &method{name: name, receivers: receivers, schedule: whole(relaying.Unicast), ahead: anyNumber}
}

// tree is the binomial tree. A host sends a long message to one host after the other: to both at a
// time, each would have it when both have it.
func tree() *method {
	return &method{name: nameTree, receivers: receivers, schedule: whole(relaying.Binomial), ahead: func(bytes int) int {
		if bytes > blockBytes {
			return 1
		}
		return 0
	}}
}

// chain passes a message on in slices of at least one packet.
func chain(name string, slices int) *method {
	return &method{name: name, receivers: receivers, ahead: anyNumber, schedule: func(hosts, bytes int) relaying.Schedule {
		return relaying.Shape(relaying.Chain).Schedule(hosts, max(1, min(slices, bytes/pathMTU)))
	}}
}

// pipeline is RDMC's binomial pipeline with blocks of 64 KiB.
func pipeline() *method {
	return &method{name: namePipe, receivers: receivers, ahead: func(int) int { return aheadInPipe },
		schedule: func(hosts, bytes int) relaying.Schedule {
			return relaying.Pipeline(hosts, max(1, min(mostBlocks, bytes/blockBytes)))
		}}
}

func whole(how relaying.Shape) func(hosts, bytes int) relaying.Schedule {
	return func(hosts, _ int) relaying.Schedule { return how.Schedule(hosts, 1) }
}

func anyNumber(int) int { return 0 }

// job is what a method is measured with.
type job struct {
	bytes  int // of a message
	posted int
	plain  bool
	span   time.Duration // how long the source sends
	least  int           // messages that it sends at least
	drain  time.Duration // how long it may take after the span until all have everything
}

// sample is a method's figures for one job.
type sample struct {
	load
	seconds     float64
	messages    int
	told, acked []time.Duration
	resent      uint64
}

var errSlow = errors.New("not everything was delivered in time")

// measure runs a job by a method, over a new group if it is one. Nothing else runs at the site.
func (s *site) measure(ctx context.Context, m *method, j job) (r sample, err error) {
	if !m.group {
		return s.run(ctx, m, s.mesh, j)
	}
	qps, remove, err := s.group(ctx, m.keys)
	if err != nil {
		return r, err
	}
	if m.shares {
		err = beside.Sharing(ctx, m.receivers, func(ctx context.Context) (api.Group, error) { return s.daemon.Group(ctx, groupName) })
	}
	if err == nil {
		r, err = s.run(ctx, m, qps, j)
	}
	return r, errors.Join(err, remove())
}

func (s *site) run(ctx context.Context, m *method, qps []map[int]*endpoint.QP, j job) (r sample, err error) {
	for _, h := range s.hosts[1:] {
		h.RNIC.Freeze(func() { clear(h.memory[:j.bytes*j.posted]) })
	}
	t := newTransfer(m, s.hosts, qps, j.bytes, j.posted)
	t.plain = j.plain
	source := s.hosts[0].RNIC
	resent := source.Counters()
	before, err := s.clocks()
	if err != nil {
		return r, err
	}
	limited, cancel := context.WithTimeout(ctx, j.span+j.drain)
	defer cancel()
	if err := t.run(limited, func(posted int) bool { return time.Since(before.at) < j.span || posted < j.least }); err != nil {
		return r, err
	}
	if r.load, err = s.since(before); err != nil {
		return r, err
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if !t.whole() {
		return r, fmt.Errorf("%s, %d bytes: %w: %d of %d messages in %v", m.name, j.bytes, errSlow, t.done, len(t.posts), j.span+j.drain)
	}
	after := source.Counters()
	r.seconds, r.messages, r.told, r.acked = t.over.Sub(before.at).Seconds(), t.done, t.told, t.acked
	r.resent = after.Get(rnic.FramesRetransmitted) - resent.Get(rnic.FramesRetransmitted)
	return r, t.verify()
}

// goodput is in bits per second, at each receiver.
func (r *sample) goodput(bytes int) float64 { return float64(r.messages*bytes) * 8 / r.seconds }
