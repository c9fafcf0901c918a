package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
)

const (
	// probePause is the pause between two probes.
	probePause = 100 * time.Microsecond
	// silence is longer than any forwarder spins before it blocks.
	silence = 5 * time.Millisecond
)

// latency probes all contestants n times in each round, after a pause each.
func (b *bench) latency(ctx context.Context, payload int, pause time.Duration, n int) error {
	plan := b.plan.latency
	if plan.rounds == 0 {
		return nil
	}
	s := usual(func(s *report.Setting) { s.Payload = payload })
	what := fmt.Sprintf("latency, %d bytes, %v between packets", payload, pause)
	var able []*peer.Peer
	var rows []report.Latency
	for _, c := range b.chosen(plan.peers) {
		if why := excuse(c, s); why != "" {
			b.skip(c.Name+", "+what, errors.New(why), false)
			continue
		}
		able = append(able, c)
		rows = append(rows, report.Latency{Peer: c.Name, Payload: payload, Receivers: s.Receivers, Pause: int(pause.Microseconds())})
	}
	err := b.alternately(ctx, what, able, plan.rounds, func(i int, c *peer.Peer) error {
		latencies, err := probe(ctx, c, s, pause, n)
		if err != nil {
			return err
		}
		rows[i].Rounds = append(rows[i].Rounds, report.LatencyRound{
			Probes: len(latencies), LatencyQuantile: report.Quantiles(latencies),
		})
		return nil
	})
	b.out.Latency = append(b.out.Latency, rows...)
	return err
}

func probe(ctx context.Context, c *peer.Peer, s report.Setting, pause time.Duration, n int) (latencies []time.Duration, err error) {
	st, err := raise(ctx, c, s, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := st.hosts.Probe(n/10, pause); err != nil { // caches and branch predictors
		return nil, err
	}
	return st.hosts.Probe(n, pause)
}
