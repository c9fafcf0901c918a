package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rocast/rocast/bench/ways"
	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

const (
	pathMTU   = 1024
	quorum    = 2 // replicas that have to store a block
	groupName = "storage"
)

// leader writes the log. Each time the replicas change, it has another group with other queue
// pairs, so that nothing that was sent to the old ones reaches the new ones.
type leader struct {
	shape
	api      *client.Client
	copies   string // the key of the group file, or nothing
	groupIP  netip.Addr
	host     *bed.Host
	replicas []*replica

	qpn  roce.QPN // the next one that no queue pair of this lab has
	mu   sync.Mutex
	to   *sender
	last sum // of the newest record
}

// qpns are the queue pair numbers that a sender may use.
const qpns = 0x20

func (l *leader) numbers() roce.QPN {
	l.qpn += qpns
	return l.qpn
}

// open makes the group of all replicas, whose logs are the same. Two of three are enough for an
// acknowledgement, so the box goes on without one, and sends it later what it may have missed.
func (l *leader) open(ctx context.Context) (err error) {
	first := uint64(0)
	if log := l.replicas[0].log; log != nil {
		first = log.records()
	}
	l.to, err = openSender(ctx, l.shape, l.host, l.replicas, first, quorum, l.numbers(), l.group)
	return err
}

func (l *leader) group(ctx context.Context, s ways.Settings) (*ways.Way, error) {
	create := func(ctx context.Context, file []byte) error {
		_, err := l.api.CreateGroup(ctx, file)
		return err
	}
	return ways.Group(ctx, s, groupName, l.groupIP, fmt.Sprintf("ack: quorum %d\n%s", min(quorum, len(s.Receivers)), l.copies), create, nil)
}

// close ends the group.
func (l *leader) close(ctx context.Context) error {
	_, err := l.api.RemoveGroup(ctx, groupName)
	return errors.Join(l.to.close(), err)
}

// put appends a block to the log. It returns when the block is under way.
func (l *leader) put(ctx context.Context, block []byte) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, err = l.to.put(ctx, l.last, block)
	return err
}

// restored is what the return of a replica took.
type restored struct {
	had, has uint64        // records when it came back, and when it was whole
	took     time.Duration // all of it
	pause    time.Duration // in which no block could be put
}

// restore brings a replica back, which has only what is on its disk. Another replica sends it most
// of what it lacks while the log grows; then the log stands still for as long as the last few
// blocks and another group take.
func (l *leader) restore(ctx context.Context, r *replica) (done restored, err error) {
	began := time.Now()
	if err := r.start(); err != nil {
		return done, err
	}
	donor := l.donor(r)
	done.had = r.log.records()
	for r.log.records()+uint64(l.slots) < donor.log.records() {
		if err := bringUp(ctx, donor, r, donor.log.records(), l.numbers()); err != nil {
			return done, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	paused := time.Now()
	if err := l.to.awaitStored(ctx); err != nil {
		return done, err
	}
	if err := bringUp(ctx, donor, r, donor.log.records(), l.numbers()); err != nil {
		return done, err
	}
	if r.log.newest() != l.last {
		return done, fmt.Errorf("replica %v has another log than the leader", r.host.IP)
	}
	err = errors.Join(l.close(ctx), l.open(ctx))
	done.has, done.took, done.pause = r.log.records(), time.Since(began), time.Since(paused)
	return done, err
}

// donor is another replica that has as much as any.
func (l *leader) donor(except *replica) (best *replica) {
	for _, r := range l.replicas {
		if r != except && (best == nil || r.log.records() > best.log.records()) {
			best = r
		}
	}
	return best
}
