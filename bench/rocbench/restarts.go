package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/internal/testlab"
)

const (
	// firstCopyPatience bounds the time until a daemon that starts again forwards.
	firstCopyPatience = 20 * time.Second
	lookForCopyEvery  = 200 * time.Microsecond
)

// restarts kills the daemon while the source of a group sends as fast as it can, and measures what
// a start costs and when the first copy comes.
func (b *bench) restarts(ctx context.Context) error {
	for _, groups := range b.plan.restarts.groups {
		fmt.Fprintf(os.Stderr, "killing and starting the daemon, %d groups\n", groups)
		c := &changer{}
		err := c.raise(ctx, b.bin, groups)
		if err == nil && groups > 1 {
			_, err = each(ctx, groups-1, func(g int) error { return c.daemon.CreateGroup(ctx, c.workload, g) })
		}
		r := report.Restarts{Groups: groups}
		if err == nil {
			stop := c.hosts.Stream()
			for range b.plan.restarts.rounds {
				var one report.Restart
				if one, err = c.restart(ctx); err != nil {
					break
				}
				r.Rounds = append(r.Rounds, one)
			}
			err = errors.Join(err, stop())
		}
		err = errors.Join(err, c.close())
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err != nil {
			b.skip(fmt.Sprintf("rocastd, killing and starting it with %d groups", groups), err, true)
			continue
		}
		b.out.Restarts = append(b.out.Restarts, r)
	}
	return nil
}

// restart kills the daemon and starts it again.
func (c *changer) restart(ctx context.Context) (r report.Restart, err error) {
	began := time.Now()
	if err := c.daemon.Kill(); err != nil {
		return r, err
	}
	before := c.copies()
	first := make(chan time.Duration, 1)
	go func() {
		for c.copies() == before && time.Since(began) < firstCopyPatience {
			time.Sleep(lookForCopyEvery)
		}
		first <- time.Since(began)
	}()
	err = c.daemon.Restart(ctx)
	cpu, errCPU := testlab.CPUTime(c.daemon.PID())
	away := <-first
	if err = errors.Join(err, errCPU); err == nil && c.copies() == before {
		err = fmt.Errorf("no copy came within %v", firstCopyPatience)
	}
	return report.Restart{FirstCopy: milliseconds(away), CPU: milliseconds(cpu)}, err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// copies returns how many copies have come to the receivers.
func (c *changer) copies() (n uint64) {
	for _, of := range c.hosts.Stats().Copies {
		n += of
	}
	return n
}
