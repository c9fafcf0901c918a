package perftest

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/rocast/rocast/roce"
)

// conversation is one run: it has one client and the perftest servers of all receivers. It begins
// with the first byte of the client and ends when the last side has hung up. One goroutine runs all
// its steps.
type conversation struct {
	config  Config
	groups  Groups
	limits  limits
	nextQPN func() roce.QPN
	note    func(change func(*Session)) // publishes new facts about the run

	client    *side
	connected time.Time
	expects   func(ends time.Time, unless string) // publishes when the run ends
	holds     func()                              // publishes that this is the run that is on
	holder    func() *side                        // the client of the run that is on; nil: none is
	slot      chan struct{}                       // the token of service.slot
	hasSlot   bool
	receivers []*side    // parallel to config.Receivers
	gone      chan *side // receivers, in the order in which they hang up

	isWrite bool // the client is probably ib_write_bw; see hear
	mtu     mtu
	qps     []*queuePair // in the order in which the client names them
	keys    int          // key lines that the client has sent
	made    []string     // names of the groups that exist
	// reports: the sides have told each other their results. isThrough: they have met once more,
	// which is the last thing that they do before they hang up.
	reports, isThrough bool
	leaving            departure
	active             activity
	pumps              sync.WaitGroup
}

// run returns nil if the run ended normally, a refusal if no group can carry the run, and otherwise
// the error that ended the run.
func (c *conversation) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{c.hear, c.takeSlot, c.meet, c.cycleBuffer, c.cacheLine, c.pathMTU, c.converse} {
		switch err := step(ctx); {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return c.explain(err)
		}
	}
	return nil
}

func (c *conversation) running() bool { return len(c.made) > 0 }

// hear waits until the client has sent a perftest message, before meet connects to the receivers.
// The server of each receiver accepts only one connection, and a port scanner must not use up that
// connection.
func (c *conversation) hear(ctx context.Context) error {
	message, err := c.client.read(ctx, versionBytes, c.limits.version, nil)
	if err != nil {
		return err
	}
	// ib_write_bw sleeps one second after it connects, before it sends its first message. The other
	// tools do not sleep.
	c.isWrite = time.Since(c.connected) >= c.limits.sleep
	version, err := parseVersion(message)
	if err != nil {
		return refuse("%s %v", c.client.name, err)
	}
	c.note(func(s *Session) { s.Version = version })
	return nil
}

// takeSlot waits until the previous run is over. A perftest client waits for an answer without a
// time limit. Meanwhile the client of that run is asked whether it is still there, and so is this
// one: a host that died without a word would keep the others out, or use up the servers.
func (c *conversation) takeSlot(ctx context.Context) error {
	select {
	case c.slot <- struct{}{}:
		c.hasSlot = true
		c.holds()
		return nil
	default:
	}
	c.note(func(s *Session) { s.State = Waiting })
	asking := time.NewTicker(c.limits.ask)
	for {
		select {
		case c.slot <- struct{}{}:
			c.hasSlot = true
			c.holds()
			c.note(func(s *Session) { s.State = Handshaking })
			return nil
		case <-asking.C:
			c.client.ask()
			if other := c.holder(); other != nil {
				other.ask()
			}
		case <-c.client.gone:
			return hungUp{c.client}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// meet connects to the receivers and exchanges version messages.
func (c *conversation) meet(ctx context.Context) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	answers, err := c.askAll(ctx, versionMessage())
	if err != nil {
		return err
	}
	for i, answer := range answers {
		if _, err := parseVersion(answer); err != nil {
			return refuse("%s %v", c.receivers[i].name, err)
		}
	}
	return c.client.write(versionMessage())
}

// ask forwards a message to one receiver and returns the receiver's answer. The answer has the
// length of the message.
func (c *conversation) ask(ctx context.Context, r *side, message []byte) ([]byte, error) {
	if err := c.sendTo(r, message); err != nil {
		return nil, err
	}
	return r.read(ctx, len(message), c.limits.answer, c.client)
}

func (c *conversation) sendTo(r *side, message []byte) error {
	if r.spokeUp() {
		return refuse("%s spoke before its turn; it does not run the same test as the client", r.name)
	}
	return r.write(message)
}

// askAll forwards a message to every receiver and returns their answers. Each answer has the length
// of the message.
func (c *conversation) askAll(ctx context.Context, message []byte) ([][]byte, error) {
	c.expect()
	for _, r := range c.receivers {
		if err := c.sendTo(r, message); err != nil {
			return nil, err
		}
	}
	answers := make([][]byte, len(c.receivers))
	for i, r := range c.receivers {
		answer, err := r.read(ctx, len(message), c.limits.answer, c.client)
		if err != nil {
			return nil, err
		}
		answers[i] = answer
	}
	return answers, nil
}

func (c *conversation) cycleBuffer(ctx context.Context) error { return c.sysData(ctx) }
func (c *conversation) cacheLine(ctx context.Context) error   { return c.sysData(ctx) }

// sysData exchanges one of the two numbers by which perftest spreads its accesses over a buffer.
// Each side continues with the larger one of its own number and the number that it receives. The
// client gets the smallest number of the receivers, so that the client accesses no address beyond
// the buffer of any receiver.
func (c *conversation) sysData(ctx context.Context) error {
	message, err := c.client.read(ctx, sysDataBytes, c.limits.answer, nil)
	if err != nil {
		return err
	}
	answers, err := c.askAll(ctx, message)
	if err != nil {
		return err
	}
	return c.client.write(smallest(answers))
}

func smallest(answers [][]byte) []byte {
	return slices.MinFunc(answers, func(a, b []byte) int {
		return int(int32(binary.BigEndian.Uint32(a))) - int(int32(binary.BigEndian.Uint32(b)))
	})
}

// pathMTU finds the smallest path MTU. Every side uses the smaller one of its own path MTU and the
// path MTU that it receives. The receivers are therefore asked in turn, each with the smallest path
// MTU so far. If a receiver lowers the path MTU, the receivers before it keep a larger one, but no
// packet will be that large.
func (c *conversation) pathMTU(ctx context.Context) error {
	message, err := c.client.read(ctx, mtuBytes, c.limits.answer, nil)
	if err != nil {
		return err
	}
	if c.mtu, err = parseMTU(message); err != nil {
		return refuse("%s %v", c.client.name, err)
	}
	for i, r := range c.receivers {
		answer, err := c.ask(ctx, r, c.mtu.message())
		if err != nil {
			return err
		}
		its, err := parseMTU(answer)
		switch {
		case err != nil:
			return refuse("%s %v", r.name, err)
		case its < c.mtu && i > 0:
			return refuse("%s has path MTU %d and %s settled on %d before; start all with -m %d",
				r.name, its.bytes(), c.receivers[i-1].name, c.mtu.bytes(), its.bytes())
		}
		c.mtu = min(c.mtu, its)
	}
	c.note(func(s *Session) { s.PathMTU = c.mtu.bytes() })
	return c.client.write(c.mtu.message())
}

// converse forwards key lines and reports until the first side leaves, and then waits until the
// other sides leave. Sides that are through leave when they like: a busy host takes its time.
func (c *conversation) converse(ctx context.Context) error {
	for {
		k, message, err := c.next(ctx)
		switch {
		case c.isThrough && isHungUp(err):
			return nil
		case err != nil:
			return err
		case k == kindDone:
			return c.farewell(ctx)
		case k == kindKey:
			err = c.key(ctx, message)
			c.isThrough = c.reports
		default:
			err = c.report(ctx, message)
			c.reports, c.isThrough = true, false
		}
		if err != nil {
			return err
		}
	}
}

// report forwards one number of a report. The numbers of the receivers have no meaning, because a
// receiver measures nothing; perftest reads all of them nevertheless.
func (c *conversation) report(ctx context.Context, message []byte) error {
	if !c.running() {
		return refuse("%s sent something that is not a key line, where perftest sends one", c.client.name)
	}
	answers, err := c.askAll(ctx, message)
	if err != nil {
		return err
	}
	return c.client.write(answers[0])
}
