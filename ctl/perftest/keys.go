package perftest

import "context"

// key handles one key line of the client. The first key lines name the queue pairs of the client,
// in order. All later key lines repeat known keys: the client sends the whole set once more, and
// the first key whenever the sides wait for each other.
func (c *conversation) key(ctx context.Context, line []byte) error {
	if err := checkKeyLength(c.client.name, len(line)); err != nil {
		return err
	}
	k, err := parseKey(line)
	if err != nil {
		return refuse("%s sent something that %v", c.client.name, err)
	}
	if err := checkKey(c.client.name, c.client.addr, k); err != nil {
		return err
	}
	c.keys++
	q, err := c.queuePair(k)
	if err != nil {
		return err
	}
	if err := c.checkBeforeRun(); err != nil {
		return err
	}
	known := len(q.receivers) > 0
	if known && !c.running() {
		// This is the first repetition: the client has named all its queue pairs, and no side sends
		// data before this line is answered.
		if err := c.makeGroups(ctx); err != nil {
			return err
		}
	}
	if err := c.askKeys(ctx, q, known); err != nil {
		return err
	}
	return c.client.write(q.toClient(c.config.GroupIP).line())
}

// queuePair returns the queue pair with key k. It adds the queue pair if the client names k for the
// first time.
func (c *conversation) queuePair(k key) (*queuePair, error) {
	for _, q := range c.qps {
		if q.source == k {
			return q, nil
		}
		if q.source.QPN == k.QPN {
			return nil, refuse("%s changed its description of queue pair %#x; only a DC transport (-c) does that, "+
				"and a group connects RC queue pairs only", c.client.name, uint32(k.QPN))
		}
	}
	switch {
	case c.running():
		return nil, refuse("%s names queue pair %#x late, as latency tests with -q do; a group carries one "+
			"direction only, so run ib_write_bw or ib_send_bw", c.client.name, uint32(k.QPN))
	case len(c.qps) == MaxQPs:
		return nil, refuse("%s has more than the %d queue pairs that a run can have here; choose a smaller -q",
			c.client.name, MaxQPs)
	}
	q := &queuePair{groupQPN: c.nextQPN(), source: k}
	c.qps = append(c.qps, q)
	c.note(func(s *Session) { s.QPs = len(c.qps) })
	return q, nil
}

// askKeys forwards the key to the receivers and stores their keys. If their keys are already known,
// askKeys compares them.
func (c *conversation) askKeys(ctx context.Context, q *queuePair, known bool) error {
	answers, err := c.askAll(ctx, q.toReceiver(c.config.GroupIP).line())
	if err != nil {
		return err
	}
	for i, answer := range answers {
		r := c.receivers[i]
		k, err := parseKey(answer)
		if err != nil {
			return refuse("%s answered with something that %v; it does not run the same test as the client",
				r.name, err)
		}
		if err := checkKey(r.name, c.config.Receivers[i], k); err != nil {
			return err
		}
		if known {
			if k != q.receivers[i] {
				return c.otherQPs(r, k)
			}
			continue
		}
		for _, earlier := range c.qps[:len(c.qps)-1] {
			if earlier.receivers[i].QPN == k.QPN {
				return c.otherQPs(r, k)
			}
		}
		q.receivers = append(q.receivers, k)
	}
	return nil
}

// otherQPs is the refusal for a receiver that repeats a key too early or too late.
func (c *conversation) otherQPs(r *side, k key) error {
	return refuse("%s names queue pair %#x, which does not match the client's %d queue pairs; run the same test "+
		"with the same -q on all sides", r.name, uint32(k.QPN), len(c.qps))
}

// checkBeforeRun refuses ib_write_bw -b, --write_with_imm and -c UC. Without them the sides
// exchange all keys twice and one key a third time, and then exchange nothing until the run is
// over. With these options there is one more exchange before the run. On Soft-RoCE, an R_Key of 0
// shows that the client is a slow ib_send_bw and not a WRITE test.
func (c *conversation) checkBeforeRun() error {
	before := 2*len(c.qps) + 1
	if !c.isWrite || c.keys != before+1 || c.qps[0].receivers[0].RKey == 0 {
		return nil
	}
	if seen, ok := c.traffic(); !ok || seen.FromSource > 0 {
		return nil
	}
	return refuse("%s runs ib_write_bw with -b, --write_with_imm or -c UC, which look the same to rocast; a group carries RC in one "+
		"direction, so run it without these options", c.client.name)
}

// makeGroups creates one group for every queue pair.
func (c *conversation) makeGroups(ctx context.Context) error {
	for _, q := range c.qps {
		g := q.group(&c.config, c.mtu)
		if err := c.groups.Create(ctx, g); err != nil {
			return refuse("group %s cannot be made: %v", g.Name, err)
		}
		c.made = append(c.made, g.Name)
	}
	c.note(func(s *Session) { s.State, s.Groups = Running, c.made })
	return nil
}

// traffic returns the sum of the packet counts of the run's groups; ok is false if the data path
// has no counts.
func (c *conversation) traffic() (sum Traffic, ok bool) {
	for _, name := range c.made {
		t, has := c.groups.Traffic(name)
		if !has {
			return Traffic{}, false
		}
		sum.FromSource += t.FromSource
		sum.FromReceivers += t.FromReceivers
		sum.Refused += t.Refused
	}
	return sum, true
}
