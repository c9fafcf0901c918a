package rnic

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

type requesterCase struct {
	mtu    int // 0: 1024
	config func(*Config)
	// statuses of the completions, the last one repeated; nil: all succeed
	statuses []Status
}

// Our requester sends every request that rxe sent in a capture, byte for byte and in the same
// order, when it gets the same responses.
func TestRequesterSendsAsRecorded(t *testing.T) {
	retries := func(retryCount, rnrRetry uint8) func(*Config) {
		return func(c *Config) { c.RetryCount, c.RNRRetry = retryCount, rnrRetry }
	}
	for name, c := range map[string]requesterCase{
		"write_small":   {},
		"write_q4":      {},
		"write_lat":     {},
		"write_loss":    {},
		"write_ackloss": {},
		"send":          {},
		"send_odd":      {},
		"m_write_200":   {},
		"m_write_64k":   {mtu: 4096},
		"m_odd":         {},
		"m_zero":        {},
		"m_writeimm":    {},
		"m_sendimm":     {},
		"m_loss":        {},
		"m_sendloss":    {},
		"m_ackloss":     {},
		"m_rnr":         {},
		"m_rnr_fail":    {config: retries(7, 2), statuses: []Status{RNRRetryExceeded}},
		"m_badkey":      {statuses: []Status{RemoteAccess, WRFlushed}},
		"m_dead":        {config: retries(3, 7), statuses: []Status{RetryExceeded, WRFlushed}},
		"m_wrongsrc":    {config: retries(2, 7), statuses: []Status{RetryExceeded}},
	} {
		t.Run(name, func(t *testing.T) { c.replay(t, name) })
	}
}

func (rc requesterCase) replay(t *testing.T, name string) {
	if rc.mtu == 0 {
		rc.mtu = 1024
	}
	c := readConversation(t, name, rc.mtu, requesterLink)
	q := c.newQP(t, c.client, c.server, nil, func(cfg *Config) {
		cfg.Timeout = 12
		if c.silent { // the port derives from both QPNs, and the capture shows only one of them
			cfg.UDPSrcPort = c.frames[0].view.UDPSrcPort(c.frames[0].frame)
		}
		if rc.config != nil {
			rc.config(cfg)
		}
	})
	for i, m := range c.messages {
		if err := m.post(q, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	search := explanation{frames: c.frames}
	end := search.explain(q, 0, nil)
	if end == nil {
		t.Fatal(search.failure)
	}
	end.Tick(end.NextDeadline()) // the silence behind the capture
	rc.checkCompletions(t, end, len(c.messages))
}

func (rc requesterCase) checkCompletions(t *testing.T, q *QP, messages int) {
	t.Helper()
	for i := range messages {
		want := Success
		if n := len(rc.statuses); n > 0 {
			want = rc.statuses[min(i, n-1)]
		}
		if c, ok := q.Poll(); !ok || c.Status != want || c.WRID != uint64(i) {
			t.Errorf("completion %d: %v, %v; want %v", i, ok, c, want)
		}
	}
	if v, any := q.Violation(); any {
		t.Error(v)
	}
}

// explanation searches for a way in which our requester sends what was recorded. The capture does
// not tell when rxe's completer took a response that the tap had seen, nor when its timer, which is
// rounded to jiffies, ran out. So a response may be taken some packets late, and a timer that has
// run out may be noticed late.
type explanation struct {
	frames  []recorded
	tried   int
	reached int // the furthest frame that is explained
	failure string
}

// maxTries bounds the search. A requester that behaves as rxe needs little more than one try for
// each frame.
const maxTries = 20_000

// explain goes on at frame i with the responses that q has not taken yet. It returns the queue pair
// as it is at the end, or nil.
func (e *explanation) explain(q *QP, i int, waiting []*recorded) *QP {
	for ; i < len(e.frames) && e.frames[i].fromPeer; i++ {
		waiting = append(slices.Clip(waiting), &e.frames[i])
	}
	if i == len(e.frames) {
		return e.take(q, waiting)
	}
	r := &e.frames[i]
	for taken := len(waiting); taken >= 0; taken-- {
		for _, timer := range []bool{false, true} {
			next := e.take(q, waiting[:taken])
			if timer {
				if next.NextDeadline() > r.at {
					continue
				}
				next.Tick(r.at)
			}
			if !e.sends(next, i) {
				continue
			}
			if end := e.explain(next, i+1, waiting[taken:]); end != nil {
				return end
			}
		}
	}
	return nil
}

// take returns a copy of q that has taken these responses.
func (e *explanation) take(q *QP, responses []*recorded) *QP {
	c := *q
	c.req.queue.slots = slices.Clone(q.req.queue.slots)
	c.completions.slots = slices.Clone(q.completions.slots)
	for _, r := range responses {
		c.Receive(r.at, r.frame, nil)
	}
	return &c
}

// sends reports whether the next packet of q is frame i.
func (e *explanation) sends(q *QP, i int) bool {
	if e.tried++; e.tried > maxTries {
		return false
	}
	r := &e.frames[i]
	q.ip.ID = r.ipID()
	frame := q.Transmit(r.at, nil)
	if bytes.Equal(frame, r.frame) {
		return true
	}
	if i >= e.reached {
		e.reached = i
		e.failure = fmt.Sprintf("frame %d (%s %#x at %v): no timing makes our requester send it; it sends\n%x\nrecorded\n%x",
			i, r.view.Opcode, r.psn(), r.at, frame, r.frame)
	}
	return false
}
