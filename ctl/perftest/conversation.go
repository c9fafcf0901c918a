package perftest

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/rocast/rocast/roce"
)

// conversation is one run: one client, all receivers' servers, from the first byte to the last hang-up. One goroutine
// goes through it.
type conversation struct {
	config  Config
	groups  Groups
	limits  limits
	nextQPN func() roce.QPN
	note    func(change func(*Session)) // publishes what is known of the run

	client    *side
	connected time.Time
	turn      chan struct{} // see service
	hasTurn   bool
	receivers []*side    // parallel to config.Receivers
	gone      chan *side // receivers in the order of their hanging up

	isWrite bool // the client is ib_write_bw for all one can tell
	mtu     mtu
	qps     []*queuePair // in the order the client names them
	keys    int          // key lines the client sent
	made    []string     // groups
	leaving departure
	active  activity
	pumps   sync.WaitGroup
}

// run returns nil when the run ended as its sides meant it to, a refusal when it cannot be a group's, and else what
// went wrong.
func (c *conversation) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{c.hear, c.takeTurn, c.meet, c.cycleBuffer, c.cacheLine, c.pathMTU, c.converse} {
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

// hear waits for a client that speaks perftest: the receivers' servers take one connection each, which is not to be spent on
// a program that only looks at the port.
func (c *conversation) hear(ctx context.Context) error {
	message, err := c.client.read(ctx, versionBytes, c.limits.version, nil)
	if err != nil {
		return err
	}
	// ib_write_bw sleeps a second between connecting and speaking, the other tools do not.
	c.isWrite = time.Since(c.connected) >= c.limits.sleep
	version, err := parseVersion(message)
	if err != nil {
		return refuse("%s %v", c.client.name, err)
	}
	c.note(func(s *Session) { s.Version = version })
	return nil
}

// takeTurn waits until the run before is over. perftest's clients wait for an answer as long as it takes.
func (c *conversation) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		c.hasTurn = true
		return nil
	default:
	}
	c.note(func(s *Session) { s.State = Waiting })
	select {
	case c.turn <- struct{}{}:
		c.hasTurn = true
		c.note(func(s *Session) { s.State = Handshaking })
		return nil
	case <-c.client.gone:
		return hungUp{c.client}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// meet connects to the receivers and exchanges versions.
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

// ask passes a message on to one receiver and takes its answer, which is as long.
func (c *conversation) ask(ctx context.Context, r *side, message []byte) ([]byte, error) {
	if err := c.tell(r, message); err != nil {
		return nil, err
	}
	return r.read(ctx, len(message), c.limits.answer, c.client)
}

func (c *conversation) tell(r *side, message []byte) error {
	if r.spokeUp() {
		return refuse("%s spoke before it was its turn; it runs another test than the client", r.name)
	}
	return r.write(message)
}

// askAll passes a message on to every receiver and takes their answers, which are as long.
func (c *conversation) askAll(ctx context.Context, message []byte) ([][]byte, error) {
	for _, r := range c.receivers {
		if err := c.tell(r, message); err != nil {
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

// sysData passes on one of the two numbers by which perftest spreads its accesses over a buffer. Each side goes on with
// the larger of its own and what it is told. The client is told the receivers' smallest, so that it reaches beyond no
// receiver's buffer.
func (c *conversation) sysData(ctx context.Context) error {
	message, err := c.client.read(ctx, sysDataBytes, c.limits.answer, nil)
	if err != nil {
		return err
	}
	answers, err := c.askAll(ctx, message)
	if err != nil {
		return err
	}
	return c.client.write(slices.MinFunc(answers, func(a, b []byte) int {
		return int(int32(binary.BigEndian.Uint32(a))) - int(int32(binary.BigEndian.Uint32(b)))
	}))
}

// pathMTU finds the smallest. Every side takes the smaller of its own and what it is told, so the receivers are asked one
// after the other, each with the smallest so far. If one lowers it, those before it have settled on more, which the
// packets will not have.
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
			return refuse("%s has path MTU %d and %s settled on %d before; start all with -m %d", r.name, its.bytes(), c.receivers[i-1].name, c.mtu.bytes(), its.bytes())
		}
		c.mtu = min(c.mtu, its)
	}
	c.note(func(s *Session) { s.PathMTU = c.mtu.bytes() })
	return c.client.write(c.mtu.message())
}

// converse passes key lines and reports on until the first side leaves, and sees the others leave.
func (c *conversation) converse(ctx context.Context) error {
	for {
		k, message, err := c.next(ctx)
		switch {
		case err != nil:
			return err
		case k == kindDone:
			return c.leave(ctx)
		case k == kindKey:
			err = c.key(ctx, message)
		default:
			err = c.report(ctx, message)
		}
		if err != nil {
			return err
		}
	}
}

// report passes one number on. Those of the receivers mean nothing, they have measured nothing; perftest reads them all
// the same.
func (c *conversation) report(ctx context.Context, message []byte) error {
	if !c.running() {
		return refuse("%s sent something that is no key line, where perftest sends one", c.client.name)
	}
	answers, err := c.askAll(ctx, message)
	if err != nil {
		return err
	}
	return c.client.write(answers[0])
}
