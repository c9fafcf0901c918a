package perftest

import (
	"context"
	"fmt"
	"time"
)

// departure is the end of a run: the sides of perftest hang up one after the other. After a normal
// run all sides hang up within a short time.
type departure struct {
	first     *side            // the side that hung up first
	limit     <-chan time.Time // fires when the other sides must have hung up
	receivers int              // that have hung up
}

func (d *departure) begin(first *side, within time.Duration) {
	if d.first == nil {
		d.first, d.limit = first, time.After(within)
	}
}

// noteGone notes that a receiver has hung up. Without receivers there is no run, and the client has
// only to read what it was sent before.
func (c *conversation) noteGone(r *side) {
	c.leaving.begin(r, c.limits.grace)
	if c.leaving.receivers++; c.leaving.receivers == len(c.receivers) {
		c.leaving.limit = time.After(min(c.limits.last, c.limits.grace))
	}
}

// next returns the next message of the client. If the client hangs up during a run, next returns
// kindDone, as for a farewell. While next waits, it watches all other sides.
func (c *conversation) next(ctx context.Context) (kind, []byte, error) {
	for {
		k, length := scan(c.client.rest)
		if length > 0 && len(c.client.rest) >= length {
			return k, c.client.take(length), nil
		}
		switch err := c.await(ctx); {
		case err == error(hungUp{c.client}) && c.running() && !c.client.isSilent():
			return kindDone, nil, nil
		case err != nil:
			return 0, nil, err
		}
	}
}

// await waits until the client has sent more bytes.
func (c *conversation) await(ctx context.Context) error {
	var late, look <-chan time.Time
	within := c.limits.answer
	if len(c.client.rest) > 0 {
		within = c.limits.part
	}
	if !c.running() || len(c.client.rest) > 0 {
		t := time.NewTimer(within)
		defer t.Stop()
		late = t.C
	}
	if c.running() {
		t := time.NewTicker(c.limits.watch)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case chunk, ok := <-c.client.in:
			if !ok {
				return hungUp{c.client}
			}
			c.client.rest = append(c.client.rest, chunk...)
			c.active.last = time.Now()
			c.expect()
			return nil
		case r := <-c.gone:
			c.noteGone(r)
		case <-c.leaving.limit:
			return hungUp{c.leaving.first}
		case <-look:
			if err := c.look(); err != nil {
				return err
			}
		case <-late:
			return fmt.Errorf("%s was silent for %v at its turn", c.client.name, within)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// activity is the last sign that a run is still active.
type activity struct {
	packets uint64 // packets of the source up to that time
	last    time.Time
}

// expect publishes when the run ends if its sides do not go on.
func (c *conversation) expect() {
	ends, unless := time.Now().Add(c.limits.answer), "its sides go on"
	if c.running() {
		ends, unless = c.active.last.Add(c.limits.idle), c.client.name+" sends"
	}
	c.expects(ends, unless)
}

// look reads the groups' counters during a run.
func (c *conversation) look() error {
	seen, _ := c.traffic()
	if seen.FromReceivers > 0 {
		return c.checkDirection()
	}
	if now := time.Now(); seen.FromSource != c.active.packets {
		c.active = activity{packets: seen.FromSource, last: now}
		c.expect()
	} else if now.Sub(c.active.last) > c.limits.idle {
		return fmt.Errorf("%s has sent nothing for %v, and others may wait for its receivers",
			c.client.name, c.limits.idle)
	}
	return nil
}

// checkDirection refuses tests whose receivers send requests too. The handshake does not show such
// tests.
func (c *conversation) checkDirection() error {
	if seen, _ := c.traffic(); seen.FromReceivers == 0 {
		return nil
	}
	return refuse("the receivers send data too, as latency tests, -b and --reversed make them; a group carries one " +
		"direction only, so run ib_write_bw or ib_send_bw without these")
}

// farewell handles the end of the client's messages. If every receiver hangs up too, the run has
// ended normally. A receiver that is still connected after the grace time has been abandoned by the
// client, unless it is only late behind the end of the run.
func (c *conversation) farewell(ctx context.Context) error {
	c.leaving.begin(c.client, c.limits.grace)
	for _, r := range c.receivers {
		select {
		case <-r.gone:
		case <-c.leaving.limit:
			if c.isThrough {
				return nil
			}
			return hungUp{c.leaving.first}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// explain adds to err the reason that the groups' counters show for the end of a run.
func (c *conversation) explain(err error) error {
	if !isHungUp(err) || !c.running() {
		return err
	}
	if err := c.checkDirection(); err != nil {
		return err
	}
	if seen, _ := c.traffic(); seen.Refused > 0 {
		return refuse("%v after %d requests that a group does not carry: READs, atomics, or memory that no "+
			"receiver named", err, seen.Refused)
	}
	err = fmt.Errorf("%w before the run was over", err)
	for _, name := range c.made {
		if saw := c.groups.Saw(name); saw != "" {
			return fmt.Errorf("%w; before that the box saw: %s", err, saw)
		}
	}
	return err
}
