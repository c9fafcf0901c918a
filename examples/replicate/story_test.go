package replicate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

const replicas = 3

// soft is a Device of the lab.
type soft struct{ *bed.Host }

func (s soft) IP() netip.Addr { return s.Host.IP }

func (s soft) Open(o Settings) (QueuePair, error) {
	settings := bed.QP(o.QPN, o.PSN, o.MTU)
	settings.RetryCount = o.Retries
	if o.Depth > 0 {
		settings.RecvDepth = o.Depth
	}
	qp, err := s.RNIC.NewQP(settings)
	return softPair{qp}, err
}

type softPair struct{ *endpoint.QP }

func (p softPair) Connect(ctx context.Context, to Peer) error {
	return p.QP.Connect(ctx, endpoint.Peer(to))
}

func (p softPair) State() string { return p.QP.State().String() }

func (p softPair) Send(ctx context.Context, text []byte) error {
	if err := p.PostSend(0, text); err != nil {
		return err
	}
	_, _, err := p.Receive(ctx)
	return err
}

func (p softPair) Post(id uint64, buffer []byte) error { return p.PostRecv(id, buffer) }

func (p softPair) Receive(ctx context.Context) (id uint64, bytes int, err error) {
	c, err := p.Wait(ctx)
	if err == nil && c.Status != rnic.Success {
		err = errors.New(c.Status.String())
	}
	return c.WRID, int(c.Bytes), err
}

// story is one run: the stream, and what happens to it.
type story struct {
	out      io.Writer
	lab      *boxes.Single
	began    time.Time
	replicas []*Replica
	group    *Group

	mu      sync.Mutex
	more    *sync.Cond // broadcast when one of these changes
	way     client.Way
	turns   int // changes of the way
	causes  []error
	through uint64 // the last item that has got through
	enough  bool   // no more items are needed
}

func run(ctx context.Context, out io.Writer, program string) (err error) {
	s := &story{out: out, began: time.Now()}
	s.more = sync.NewCond(&s.mu)
	if s.lab, err = boxes.NewSingle(ctx, bed.Options{Hosts: 1 + replicas}, program); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.lab.Close()) }()
	if err := s.replicate(ctx); err != nil {
		return fmt.Errorf("%w\nrocastd's log:\n%s", err, s.lab.Daemon.Log())
	}
	return s.report()
}

// replicate runs the stream, and beside it what happens to it.
func (s *story) replicate(ctx context.Context) error {
	for _, host := range s.lab.Hosts[1:] {
		s.replicas = append(s.replicas, NewReplica(soft{host}))
	}
	api := s.lab.Daemon.Client()
	s.group = &Group{API: api, Name: "replicas", IP: s.lab.GroupIP(), Source: soft{s.lab.Hosts[0]}, Replicas: s.replicas}
	each, err := ConnectEach(ctx, soft{s.lab.Hosts[0]}, s.replicas)
	if err != nil {
		return err
	}
	defer each.Close()
	stream := &client.Stream[uint64]{
		Client: api, Group: s.group.Name, Multicast: s.group, Unicast: each, Changed: s.changed,
		Pace: client.Pace{First: 100 * time.Millisecond, Settled: 100 * time.Millisecond}, Within: 2 * time.Second,
	}
	tasks, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.more.Broadcast()
	})()
	tasks.Go(func() error { return stream.Run(ctx, s.items()) })
	tasks.Go(func() error { return s.happen(ctx) })
	return tasks.Wait()
}

// items yields the numbers of items until the story has ended. Each number that is asked for says
// that the item before has got through.
func (s *story) items() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for n, enough := uint64(1), false; !enough && yield(n); n++ {
			s.mu.Lock()
			s.through, enough = n, s.enough
			s.more.Broadcast()
			s.mu.Unlock()
		}
	}
}

// changed hears that the stream goes another way.
func (s *story) changed(to client.Way, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%4.1f s, after item %d: by %v", time.Since(s.began).Seconds(), s.through, to)
	if cause != nil {
		fmt.Fprintf(s.out, ": %v", cause)
		s.causes = append(s.causes, cause)
	}
	fmt.Fprintln(s.out)
	s.way = to
	s.turns++
	s.more.Broadcast()
}

// some items have to get through before the next thing happens.
const some = 100

// goes waits until the stream goes a way, and then, if items is set, for some items.
func (s *story) goes(ctx context.Context, by client.Way, items bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.way != by && ctx.Err() == nil {
		s.more.Wait()
	}
	for from := s.through; items && s.through < from+some && ctx.Err() == nil; {
		s.more.Wait()
	}
	return ctx.Err()
}

// happen kills the box and cuts a link while the stream runs. The stream hears of the first from
// its queue pair, which gives up, and of the second from the box: by then the queue pair tries for
// ever.
func (s *story) happen(ctx context.Context) error {
	link := func(state string) error {
		_, err := s.lab.Box.Exec("ip", "link", "set", s.lab.Hosts[replicas].Port.Name, state)
		return err
	}
	for _, step := range []func() error{
		func() error { return s.goes(ctx, client.Multicast, true) },
		s.lab.Daemon.Kill,
		func() error { return s.goes(ctx, client.Unicast, true) },
		func() error { s.group.Patient.Store(true); return s.lab.Daemon.Start(ctx, s.lab.Box) },
		func() error { return s.goes(ctx, client.Multicast, true) },
		func() error { return link("down") },
		func() error { return s.goes(ctx, client.Unicast, false) }, // which has no way to the last receiver, either
		func() error { return link("up") },
		func() error { return s.goes(ctx, client.Multicast, true) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enough = true
	return nil
}

// report says what each replica has, and returns an error if that is not each item once.
func (s *story) report() error {
	var errs []error
	for _, r := range s.replicas {
		errs = append(errs, r.check(s.through))
		fmt.Fprintf(s.out, "%v has applied %d items, and dropped %d that came again\n", r.device.IP(), r.applied, r.repeats)
	}
	if s.turns != 5 || len(s.causes) != 2 || !strings.Contains(s.causes[1].Error(), "is degraded") {
		errs = append(errs, fmt.Errorf("the stream has changed its way %d times, because of %q; due were 5 changes, the last "+
			"fallback because the group is degraded", s.turns, s.causes))
	}
	return errors.Join(errs...)
}
