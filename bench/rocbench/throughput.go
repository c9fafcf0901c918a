package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rocast/rocast/bench/hosts"
	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
)

func (b *bench) throughput(ctx context.Context, p part, s report.Setting) error {
	row := report.Row{Section: p.section, Setting: s}
	var able []*peer.Peer
	for _, c := range b.chosen(p.peers) {
		if why := excuse(c, s); why != "" {
			b.skip(c.Name+", "+s.String(), errors.New(why), false)
			continue
		}
		able = append(able, c)
		row.Cells = append(row.Cells, report.Cell{Peer: c.Name})
	}
	err := b.alternately(ctx, s.String(), able, p.rounds, func(i int, c *peer.Peer) error {
		sample, window, err := sample(ctx, c, s, p.span)
		if err != nil {
			return err
		}
		row.Cells[i].Window = window
		row.Cells[i].Samples = append(row.Cells[i].Samples, sample)
		return nil
	})
	b.out.Throughput = append(b.out.Throughput, row)
	return err
}

// sample measures one contestant once.
func sample(ctx context.Context, c *peer.Peer, s report.Setting, span time.Duration) (sample report.Sample, window int, err error) {
	st, err := raise(ctx, c, s, true)
	if err != nil {
		return sample, 0, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	stop := st.hosts.Stream()
	defer func() { err = errors.Join(err, stop()) }()
	if err := st.warm(ctx); err != nil {
		return sample, 0, err
	}
	from, err := st.reading()
	if err != nil {
		return sample, 0, err
	}
	select {
	case <-ctx.Done():
		return sample, 0, ctx.Err()
	case <-time.After(span):
	}
	to, err := st.reading()
	if err != nil {
		return sample, 0, err
	}
	return from.until(to, !c.InKernel), st.window, nil
}

// warm waits until every receiver gets copies.
func (st *stage) warm(ctx context.Context) error {
	for deadline := time.Now().Add(warmPatience); ; time.Sleep(time.Millisecond) {
		fewest := ^uint64(0)
		for _, n := range st.hosts.Stats().Copies {
			fewest = min(fewest, n)
		}
		switch {
		case fewest >= warmCopies+verified:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("a receiver got %d copies in %v", fewest, warmPatience)
		}
	}
}

// reading has all counters at one moment.
type reading struct {
	at                                          time.Time
	stats                                       hosts.Stats
	process, ingress, softirq, hosts, disturbed time.Duration
}

func (st *stage) reading() (r reading, err error) {
	r.at = time.Now()
	r.stats = st.hosts.Stats()
	delayed := st.forwarder.PIDs
	if st.peer.InKernel {
		delayed = append(slices.Clone(delayed), st.threads...)
	}
	for _, c := range []struct {
		into *time.Duration
		of   []int
		read func([]int) (time.Duration, error)
	}{
		{&r.process, st.forwarder.PIDs, lab.CPUTimes},
		{&r.ingress, st.threads, lab.CPUTimes},
		{&r.softirq, st.softirqs, lab.CPUTimes},
		{&r.hosts, []int{os.Getpid()}, lab.CPUTimes},
		{&r.disturbed, delayed, lab.Delays},
	} {
		if *c.into, err = c.read(c.of); err != nil {
			return r, err
		}
	}
	return r, nil
}

// until returns the sample between two readings. ingressBeside: the NAPI threads run on the hosts'
// CPU.
func (r *reading) until(to reading, ingressBeside bool) report.Sample {
	s := report.Sample{
		Seconds:    to.at.Sub(r.at).Seconds(),
		ProcessCPU: (to.process - r.process).Seconds(), KernelCPU: (to.ingress + to.softirq - r.ingress - r.softirq).Seconds(),
		HostsCPU: (to.hosts - r.hosts).Seconds(),
		Waited:   (to.stats.Waited - r.stats.Waited).Seconds(), Disturbed: (to.disturbed - r.disturbed).Seconds(),
		Sent: to.stats.Sent - r.stats.Sent, Resent: to.stats.Resent - r.stats.Resent,
		WentBack: to.stats.WentBack - r.stats.WentBack, Repeated: to.stats.Repeated - r.stats.Repeated,
		Answered: to.stats.Answered - r.stats.Answered, Heard: to.stats.Heard - r.stats.Heard,
	}
	if ingressBeside {
		s.HostsCPU += (to.ingress - r.ingress).Seconds()
	}
	for i := range r.stats.Copies {
		s.Copies += to.stats.Copies[i] - r.stats.Copies[i]
	}
	return s
}
