package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rocast/rocast/bench/machine"
	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
)

// bench is one run.
type bench struct {
	plan  plan
	bin   string // directory of rocastd
	peers []*peer.Peer
	out   report.Report
}

func newBench(p plan, bin string, only []string) (*bench, error) {
	b := &bench{plan: p, bin: bin, peers: peer.All}
	if only != nil {
		if b.peers = peer.Named(only...); len(b.peers) != len(only) {
			return nil, fmt.Errorf("%q names a contestant that there is not", only)
		}
	}
	b.out = report.Report{Form: b.plan.form, Began: time.Now(), Machine: machine.Describe(bin)}
	for _, p := range b.peers {
		if !b.plan.has(p.Name) {
			continue
		}
		b.out.Peers = append(b.out.Peers, report.Peer{
			Name: p.Name, What: p.What, Rewrites: p.Rewriting.String(), Merges: p.Merges,
		})
	}
	return b, nil
}

// measure runs the plan. It leaves out the settings that a contestant cannot do. An error is one of
// the benchmark itself.
func (b *bench) measure(ctx context.Context) error {
	for _, p := range b.plan.throughput {
		for _, s := range p.settings {
			if err := b.throughput(ctx, p, s); err != nil {
				return err
			}
		}
	}
	for _, payload := range b.plan.latency.payloads {
		if err := b.latency(ctx, payload, probePause, b.plan.latency.probes); err != nil {
			return err
		}
	}
	if err := b.latency(ctx, usual(func(*report.Setting) {}).Payload, silence, b.plan.latency.silent); err != nil {
		return err
	}
	if b.plan.changes.groups > 0 {
		if err := b.changes(ctx); err != nil {
			return err
		}
	}
	if err := b.restarts(ctx); err != nil {
		return err
	}
	b.out.Seconds = time.Since(b.out.Began).Seconds()
	b.out.Summarize()
	return nil
}

// alternately calls f once for each round and contestant. Each round begins with another
// contestant. A contestant that fails is left out of later rounds. The parameter what names the
// measurement.
func (b *bench) alternately(ctx context.Context, what string, peers []*peer.Peer, rounds int, f func(i int, p *peer.Peer) error) error {
	out := make([]bool, len(peers))
	for round := range rounds {
		for k := range peers {
			i := (k + round) % len(peers)
			if out[i] {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, round %d of %d: %s\n", what, round+1, rounds, peers[i].Name)
			err := f(i, peers[i])
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			if err != nil {
				out[i] = true
				b.skip(peers[i].Name+", "+what, err, true)
			}
		}
	}
	return nil
}

// skip records a measurement that did not run.
func (b *bench) skip(what string, why error, failed bool) {
	fmt.Fprintf(os.Stderr, "left out: %s: %v\n", what, why)
	b.out.Left = append(b.out.Left, report.Left{What: what, Why: why.Error(), Failed: failed})
}

func (b *bench) chosen(names []string) (peers []*peer.Peer) {
	for _, p := range b.peers {
		if names == nil || slices.Contains(names, p.Name) {
			peers = append(peers, p)
		}
	}
	return peers
}

// write writes the report. It returns an error if rocast itself failed in a measurement.
func (b *bench) write(dir string) error {
	if err := b.out.Write(dir); err != nil {
		return err
	}
	fmt.Println(dir + "/report.md")
	for _, l := range b.out.Left {
		if l.Failed {
			return fmt.Errorf("%s failed: %s", l.What, l.Why)
		}
	}
	return nil
}
