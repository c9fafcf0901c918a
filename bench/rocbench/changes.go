package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/bench/hosts"
	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/bench/workload"
)

// clients is the number of requests that the daemon gets at a time.
const clients = 4

// changes measures the time to create and remove groups through the daemon, and the effect on a
// group whose source sends as fast as it can.
func (b *bench) changes(ctx context.Context) error {
	fmt.Fprintln(os.Stderr, "creating and removing groups")
	c, err := b.raiseDaemon(ctx)
	if err == nil {
		b.out.Changes, err = c.measure(ctx, b.plan.changes)
		err = errors.Join(err, c.close())
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	if err != nil {
		b.out.Changes = nil
		b.skip("rocastd, creating and removing groups", err, true)
	}
	return nil
}

// changer is the daemon with one group that carries traffic.
type changer struct {
	undo
	lab      *lab.Lab
	workload *workload.Workload
	daemon   *peer.Daemon
	hosts    *hosts.Hosts
}

func (b *bench) raiseDaemon(ctx context.Context) (c *changer, err error) {
	c = &changer{}
	if err = c.raise(ctx, b.bin, 1+b.plan.changes.groups); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *changer) raise(ctx context.Context, bin string, groups int) error {
	cpus, err := lab.SplitCPUs(1)
	if err != nil {
		return err
	}
	s := usual(func(*report.Setting) {})
	if c.lab, err = lab.New(lab.Options{Receivers: s.Receivers, MTU: 1500, Routed: true}); err != nil {
		return err
	}
	c.later(c.lab.Close)
	if c.workload, err = c.lab.Workload(s.Payload, groups); err != nil {
		return err
	}
	one := *c.workload
	one.Groups = 1
	// Start the daemon first: its programs determine how a veth pair hands frames over.
	if c.daemon, err = peer.StartDaemon(ctx, bin, c.lab.Box, c.lab.PortNames(), ""); err != nil {
		return err
	}
	c.later(c.daemon.Stop)
	c.hosts, err = hosts.Open(c.lab, hosts.Options{
		Workload: &one, CPU: cpus.Hosts, Rewriting: workload.All, Merges: true,
	})
	if err != nil {
		return err
	}
	c.later(c.hosts.Close)
	return c.daemon.CreateGroup(ctx, c.workload, 0)
}

func (c *changer) measure(ctx context.Context, plan changesPlan) (*report.Changes, error) {
	stop := c.hosts.Stream()
	changes := &report.Changes{Groups: plan.groups}
	err := c.during(ctx, plan, changes)
	return changes, errors.Join(err, stop())
}

func (c *changer) during(ctx context.Context, plan changesPlan, changes *report.Changes) (err error) {
	wait := func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(plan.span):
			return nil
		}
	}
	if _, err = c.running(wait); err != nil { // caches
		return err
	}
	if changes.Undisturbed, err = c.running(wait); err != nil {
		return err
	}
	changes.Disturbed, err = c.running(func() error {
		create, err := each(ctx, plan.groups, func(g int) error { return c.daemon.CreateGroup(ctx, c.workload, g) })
		if err != nil {
			return err
		}
		remove, err := each(ctx, plan.groups, func(g int) error { return c.daemon.RemoveGroup(ctx, g) })
		changes.Create, changes.Remove = create, remove
		return err
	})
	return err
}

// running measures the group with traffic during f.
func (c *changer) running(f func() error) (report.Running, error) {
	c.hosts.ResetLongest()
	from, began := c.hosts.Stats(), time.Now()
	err := f()
	to, seconds := c.hosts.Stats(), time.Since(began).Seconds()
	r := report.Running{
		Seconds: seconds, Resent: to.Resent - from.Resent, Longest: float64(to.Longest) / float64(time.Millisecond),
	}
	for i := range to.Copies {
		r.Copies += to.Copies[i] - from.Copies[i]
	}
	if err == nil && r.Copies == 0 {
		err = errors.New("the group that was to run meanwhile carried nothing")
	}
	return r, err
}

// each calls f for groups 1 to n, several at a time, and returns the time of all calls.
func each(ctx context.Context, n int, f func(g int) error) (report.LatencyQuantile, error) {
	took := make([]time.Duration, n)
	var all errgroup.Group
	all.SetLimit(clients)
	for i := range n {
		all.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			began := time.Now()
			err := f(1 + i)
			took[i] = time.Since(began)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return report.LatencyQuantile{}, err
	}
	return report.Quantiles(slices.Clone(took)), nil
}
