package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
)

const (
	ringVA   = 0x10_0000
	ringRKey = 0x5106
)

// shape is what sender and replicas have agreed upon.
type shape struct {
	most  int // bytes of the longest block
	slots int // records for which a replica has memory
}

func (s shape) slotBytes() int                { return headerBytes + s.most }
func (s shape) ringBytes() int                { return s.slots * s.slotBytes() }
func (s shape) offset(number uint64) (at int) { return int(number%uint64(s.slots)) * s.slotBytes() }

// replica is a host that keeps a copy of the log on its disk. Senders write records into its ring.
// The replica appends them to its file, makes them durable, and only then says that it has them.
type replica struct {
	shape
	host *bed.Host
	path string

	log   *file
	ring  []byte
	pairs []*endpoint.QP // of the sender that it serves
	stop  context.CancelFunc
	done  chan struct{}
	ended error // of what serves, when it is done

	mu    sync.Mutex
	syncs []time.Duration // what fsync took
}

// start opens the log and the ring, as the program does when it starts.
func (r *replica) start() (err error) {
	if r.log, err = openFile(r.path, r.most); err != nil {
		return err
	}
	r.ring = make([]byte, r.ringBytes())
	return r.host.RNIC.Register(rnic.Region{VA: ringVA, RKey: ringRKey, Access: rnic.RemoteWrite, Bytes: r.ring})
}

// serve takes the records that come by a queue pair, and says by another one how many are stored.
func (r *replica) serve(from, back *endpoint.QP) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.pairs, r.stop, r.done, r.ended = []*endpoint.QP{from, back}, stop, done, nil
	go func() {
		defer close(done)
		if err := r.take(ctx, from, back); !errors.Is(err, context.Canceled) {
			r.ended = fmt.Errorf("replica %v: %w", r.host.IP, err)
		}
	}()
}

// take makes durable at once whatever has come while the disk was busy, so a slow disk costs time
// and not an fsync for each block.
func (r *replica) take(ctx context.Context, from, back *endpoint.QP) error {
	for {
		c, err := from.Wait(ctx)
		for ok := err == nil; ok; c, ok = from.Poll() {
			if c.Status != rnic.Success {
				return fmt.Errorf("its queue pair ended with %v", c.Status)
			}
			record := r.ring[r.offset(r.log.records()):][:r.slotBytes()]
			if err := errors.Join(r.log.append(record), from.PostRecv(0, nil)); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		began := time.Now()
		durable, err := r.log.sync()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.syncs = append(r.syncs, time.Since(began))
		r.mu.Unlock()
		for more := true; more; { // what was said before has arrived
			_, more = back.Poll()
		}
		if err := back.PostSendImm(0, nil, uint32(durable)); err != nil {
			return err
		}
	}
}

// rest ends what serves.
func (r *replica) rest() error {
	if r.stop == nil {
		return nil
	}
	r.stop()
	<-r.done
	r.stop = nil
	return r.ended
}

// die loses what a machine loses when its power fails in the middle of a write: the ring, the queue
// pairs, and the rest of the record.
func (r *replica) die() error {
	err := r.rest()
	for _, qp := range r.pairs {
		qp.Destroy()
	}
	r.host.RNIC.Deregister(ringRKey)
	return errors.Join(err, r.log.tear(), r.log.close())
}

// times are what fsync took since the last call.
func (r *replica) times() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.syncs
	r.syncs = nil
	return list
}
