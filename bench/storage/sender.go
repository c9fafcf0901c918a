package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rocast/rocast/bench/ways"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// patience is how long a sender waits for a replica that stores nothing while all others have
// stored everything. Then it goes on without that replica.
const patience = 2 * time.Second

// sender sends records to some replicas, and hears from each how many it has stored. The leader is
// one, and so is a replica that sends another one what that one lacks.
type sender struct {
	shape
	replicas []*replica
	way      *ways.Way
	acks     []*endpoint.QP // by which replicas say what they have stored
	ring     []byte         // records that replicas may still be sent
	first    uint64         // the number of the first record
	need     int            // replicas that have to store a block
	stop     context.CancelFunc
	all      sync.WaitGroup

	mu      sync.Mutex
	next    uint64   // the number of the next record
	stored  []uint64 // records that each replica has
	away    []bool   // replicas that are not waited for
	changed chan struct{}
	began   []time.Time // when each record was put
	took    []time.Duration
	wentOn  func(*replica) // called when a replica is not waited for any more
}

// openSender opens a way to the replicas, whose logs end with the record before the next one, and
// connections by which they answer. Its queue pairs have the numbers from settings.First on.
func openSender(ctx context.Context, s shape, from *bed.Host, to []*replica, next uint64, need int, first roce.QPN,
	by func(context.Context, ways.Settings) (*ways.Way, error)) (_ *sender, err error) {
	o := &sender{shape: s, replicas: to, ring: make([]byte, s.ringBytes()), first: next, next: next, need: need,
		stored: slices.Repeat([]uint64{next}, len(to)), away: make([]bool, len(to)), changed: make(chan struct{})}
	settings := ways.Settings{Source: from, MTU: pathMTU, First: first, Receives: s.slots,
		Target: ways.Target{VA: ringVA, RKey: ringRKey, Bytes: s.ringBytes()}}
	for _, r := range to {
		settings.Receivers = append(settings.Receivers, r.host)
	}
	if o.way, err = by(ctx, settings); err != nil {
		return nil, err
	}
	listening, stop := context.WithCancel(context.Background())
	o.stop = stop
	for i, r := range to {
		qpn := first + roce.QPN(1+len(to)+i)
		here, there, err := pair(ctx, from, r.host, qpn)
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		o.acks = append(o.acks, here, there)
		o.all.Go(func() { o.listen(listening, i, here) })
		r.serve(o.way.Receivers[i], there)
	}
	return o, nil
}

// pair connects two hosts. The first one has receives posted.
func pair(ctx context.Context, a, b *bed.Host, qpn roce.QPN) (here, there *endpoint.QP, err error) {
	if here, err = a.RNIC.NewQP(bed.QP(qpn, 0, pathMTU)); err != nil {
		return nil, nil, err
	}
	if there, err = b.RNIC.NewQP(bed.QP(qpn, 0, pathMTU)); err != nil {
		return nil, nil, err
	}
	for range rnic.Defaults().SendDepth {
		err = errors.Join(err, here.PostRecv(0, nil))
	}
	return here, there, errors.Join(err, ways.Connect(ctx, there, endpoint.Peer{IP: a.IP, QPN: qpn}, here, endpoint.Peer{IP: b.IP, QPN: qpn}))
}

// listen hears what a replica has stored.
func (o *sender) listen(ctx context.Context, i int, from *endpoint.QP) {
	for {
		c, err := from.Wait(ctx)
		if err != nil || c.Status != rnic.Success || from.PostRecv(0, nil) != nil {
			return
		}
		now := time.Now()
		o.mu.Lock()
		o.stored[i] += uint64(c.Imm - uint32(o.stored[i])) // numbers of more than 32 bits go on
		for n := o.first + uint64(len(o.took)); n < o.best(o.need); n++ {
			o.took = append(o.took, now.Sub(o.began[n-o.first]))
		}
		o.wake()
		o.mu.Unlock()
	}
}

// wake wakes those that wait. The caller holds the mutex.
func (o *sender) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// best is how many records so many replicas have.
func (o *sender) best(replicas int) uint64 {
	list := slices.Sorted(slices.Values(o.stored))
	return list[len(list)-replicas]
}

// put sends the record of a block as the next one. It returns when the record is under way: at
// first it waits until all replicas that are not away have stored what is in its place.
func (o *sender) put(ctx context.Context, before sum, block []byte) (sum, error) {
	began := time.Now()
	number := o.next
	if err := o.room(ctx, number); err != nil {
		return before, err
	}
	at := o.offset(number)
	record, s := seal(o.ring[at:][:o.slotBytes()], before, number, block)
	o.mu.Lock()
	o.next, o.began = number+1, append(o.began, began)
	o.mu.Unlock()
	_, err := o.way.WriteImm(ctx, record, at, uint32(number))
	return s, err
}

// room waits until a record has its place in all rings, and in the sender's own, from which a queue
// pair may send again what is not acknowledged.
func (o *sender) room(ctx context.Context, number uint64) error {
	if err := o.wait(ctx, func() bool { return o.hasRoom(number) }); err != nil {
		return err
	}
	over := int64(number-o.first) - int64(o.slots) + 1
	return o.way.WaitFor(ctx, uint64(max(over, 0)))
}

// hasRoom reports whether all replicas that are not away have stored what is in the place of a
// record. The caller holds the mutex.
func (o *sender) hasRoom(number uint64) bool {
	for i, n := range o.stored {
		if n+uint64(o.slots) <= number && !o.away[i] {
			return false
		}
	}
	return true
}

// waitStored waits until enough replicas have stored so many records.
func (o *sender) waitStored(ctx context.Context, records uint64) error {
	return o.wait(ctx, func() bool { return o.best(o.need) >= records })
}

// awaitStored waits until all replicas that are not away have stored everything.
func (o *sender) awaitStored(ctx context.Context) error {
	return o.wait(ctx, func() bool {
		for i, n := range o.stored {
			if n < o.next && !o.away[i] {
				return false
			}
		}
		return true
	})
}

// wait waits until ready, which is called with the mutex held, says yes.
func (o *sender) wait(ctx context.Context, ready func() bool) error {
	for {
		o.mu.Lock()
		yes, changed, before := ready(), o.changed, slices.Clone(o.stored)
		o.mu.Unlock()
		if yes {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the replicas have stored %d of %d blocks: %w", before, o.next, ctx.Err())
		case <-time.After(patience):
			o.goOn(before)
		}
	}
}

// goOn gives up replicas that have stored nothing more than before, if enough of the others have
// stored everything. If nobody has stored anything, the box or the leader's link is to blame.
func (o *sender) goOn(before []uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.best(o.need) < o.next {
		return
	}
	for i, n := range o.stored {
		if n == before[i] && n < o.next && !o.away[i] {
			o.away[i] = true
			if o.wentOn != nil {
				o.wentOn(o.replicas[i])
			}
		}
	}
	o.wake()
}

// times are how long blocks took until they were stored.
func (o *sender) times() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.took)
}

// close ends the way. Replicas that serve it rest.
func (o *sender) close() (err error) {
	for i, r := range o.replicas {
		if ended := r.rest(); !o.away[i] {
			err = errors.Join(err, ended)
		}
	}
	o.way.Close()
	for _, qp := range o.acks {
		qp.Destroy()
	}
	o.stop()
	o.all.Wait()
	return err
}

// bringUp lets a replica that has more send another one what that one lacks, up to a record.
func bringUp(ctx context.Context, donor, to *replica, until uint64, first roce.QPN) error {
	from := to.log.records()
	if from >= until {
		return nil
	}
	o, err := openSender(ctx, donor.shape, donor.host, []*replica{to}, from, 1, first, func(ctx context.Context, s ways.Settings) (*ways.Way, error) {
		return ways.Each(ctx, s, 1, nil)
	})
	if err != nil {
		return err
	}
	for before := to.log.newest(); err == nil && from < until; from++ {
		var record []byte
		if record, err = donor.log.read(from); err == nil {
			before, err = o.put(ctx, before, record[headerBytes:])
		}
	}
	if err == nil {
		err = o.waitStored(ctx, until)
	}
	return errors.Join(err, o.close())
}
