package perftest

import (
	"context"
	"fmt"
	"time"
)

// departure is the end of a run as it comes: perftest's sides hang up one after the other, within moments if they mean
// it.
type departure struct {
	first *side            // who went first
	limit <-chan time.Time // when the others are to have followed
}

func (d *departure) begin(first *side, within time.Duration) {
	if d.first == nil {
		d.first, d.limit = first, time.After(within)
	}
}

// next is the client's next message. Its hanging up while a run is on is as good as a farewell. Meanwhile all others are
// watched.
func (c *conversation) next(ctx context.Context) (kind, []byte, error) {
	for {
		k, length := scan(c.client.rest)
		if length > 0 && len(c.client.rest) >= length {
			return k, c.client.take(length), nil
		}
		switch err := c.await(ctx); {
		case err == error(hungUp{c.client}) && c.running():
			return kindDone, nil, nil
		case err != nil:
			return 0, nil, err
		}
	}
}

// await waits until the client has sent more.
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
			return nil
		case r := <-c.gone:
			c.leaving.begin(r, c.limits.grace)
		case <-c.leaving.limit:
			return hungUp{c.leaving.first}
		case <-look:
			if err := c.look(); err != nil {
				return err
			}
		case <-late:
			return fmt.Errorf("%s was silent for %v when it was its turn", c.client.name, within)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// activity is when a run showed last that it goes on.
type activity struct {
	packets uint64 // of the source, by then
	last    time.Time
}

// look looks at the groups' counters while a run is on.
func (c *conversation) look() error {
	seen, _ := c.traffic()
	if seen.FromReceivers > 0 {
		return c.checkDirection()
	}
	if now := time.Now(); seen.FromSource != c.active.packets {
		c.active = activity{packets: seen.FromSource, last: now}
	} else if now.Sub(c.active.last) > c.limits.idle {
		return fmt.Errorf("%s has sent nothing for %v, and others may wait for its receivers", c.client.name, c.limits.idle)
	}
	return nil
}

// checkDirection refuses what the handshake does not show: tests whose receivers send as well.
func (c *conversation) checkDirection() error {
	if seen, _ := c.traffic(); seen.FromReceivers == 0 {
		return nil
	}
	return refuse("the receivers send data too, as latency tests, -b and --reversed make them; a group carries one direction only, so run ib_write_bw or ib_send_bw without these")
}

// leave is for when the client has said its last word. If every receiver hangs up as well, that was the end of the run;
// who is still there a moment later has been left alone.
func (c *conversation) leave(ctx context.Context) error {
	c.leaving.begin(c.client, c.limits.grace)
	for _, r := range c.receivers {
		select {
		case <-r.gone:
		case <-c.leaving.limit:
			return hungUp{c.leaving.first}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// explain adds what the groups' counters tell about a run that broke off.
func (c *conversation) explain(err error) error {
	if !isHungUp(err) || !c.running() {
		return err
	}
	if err := c.checkDirection(); err != nil {
		return err
	}
	if seen, _ := c.traffic(); seen.Refused > 0 {
		return refuse("%v after %d requests that a group does not carry: READs, atomics, or memory no receiver gave", err, seen.Refused)
	}
	return fmt.Errorf("%w before the run was over", err)
}
