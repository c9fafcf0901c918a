package rnic

import (
	"bytes"
	"testing"
	"time"
)

type responderCase struct {
	mtu         int // 0: 1024
	receives    int
	postedAfter time.Duration
	wrongKey    bool
	wrongPeer   bool
}

// Our responder gives every answer that rxe gave in a capture, byte for byte and in the same order,
// to the same requests.
func TestResponderAnswersAsRecorded(t *testing.T) {
	for name, c := range map[string]responderCase{
		"write_small": {},
		"write_q4":    {},
		"write_lat":   {},
		"m_write_200": {},
		"m_write_64k": {mtu: 4096},
		"m_odd":       {},
		"m_zero":      {},
		"m_writeimm":  {receives: 4},
		"m_sendimm":   {receives: 4},
		"send":        {receives: 5},
		"send_odd":    {receives: 5},
		"m_loss":      {},
		"m_sendloss":  {receives: 40},
		"m_ackloss":   {},
		"m_badkey":    {wrongKey: true},
		"m_rnr":       {receives: 3, postedAfter: 30 * time.Millisecond},
		"m_rnr_fail":  {},
		"m_wrongsrc":  {wrongPeer: true},
	} {
		t.Run(name, func(t *testing.T) { c.replay(t, name) })
	}
}

func (rc responderCase) replay(t *testing.T, name string) {
	if rc.mtu == 0 {
		rc.mtu = 1024
	}
	c := readConversation(t, name, rc.mtu, responderLink)
	region, want := c.region()
	if rc.wrongKey {
		region.RKey++
	}
	var memory Memory
	if err := memory.Register(region); err != nil {
		t.Fatal(err)
	}
	client := c.client
	if rc.wrongPeer {
		client.IP = c.server.IP.Next()
	}
	q := c.newQP(t, c.server, client, &memory, func(cfg *Config) { cfg.MinRNRTimer = 14 })
	rc.answer(t, q, c)
	if fails := rc.wrongKey || rc.wrongPeer; !fails && !bytes.Equal(region.Bytes, want) {
		t.Error("memory is not what was written")
	}
}

// answer gives q the requests in their order and compares each answer with the recorded one.
func (rc responderCase) answer(t *testing.T, q *QP, c *conversation) {
	var answers []*recorded
	for i := range c.frames {
		if r := &c.frames[i]; r.fromPeer {
			answers = append(answers, r)
		}
	}
	posted := 0
	for i := range c.frames {
		r := &c.frames[i]
		if r.fromPeer {
			continue
		}
		for ; r.at >= rc.postedAfter && posted < rc.receives; posted++ {
			if err := q.PostRecv(uint64(posted), make([]byte, 8192)); err != nil {
				t.Fatal(err)
			}
		}
		if len(answers) > 0 {
			q.ip.ID = answers[0].ipID()
		}
		reply := q.Receive(r.at, r.frame, nil)
		if reply == nil {
			continue
		}
		if len(answers) == 0 {
			t.Fatalf("frame %d (%s %#x): an answer that was not recorded", i, r.view.Opcode, r.psn())
		}
		if !bytes.Equal(reply, answers[0].frame) {
			t.Fatalf("frame %d (%s %#x): answered\n%x, recorded\n%x", i, r.view.Opcode, r.psn(), reply, answers[0].frame)
		}
		answers = answers[1:]
	}
	if len(answers) != 0 {
		t.Errorf("%d recorded answers were not given, the first at %v", len(answers), answers[0].at)
	}
}
