package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/bench/workload"
)

func TestMain(m *testing.M) {
	peer.RunAsForwarder()
	os.Exit(m.Run())
}

// Both forms name contestants that there are, and settings that can be sent.
func TestFormsCanBeRun(t *testing.T) {
	for _, p := range []plan{shortForm(), fullForm()} {
		lists := [][]string{p.latency.peers}
		for _, part := range p.throughput {
			lists = append(lists, part.peers)
			if part.rounds < 3 || part.span < time.Second {
				t.Errorf("%s, %s: %d rounds of %v are no median", p.form, part.section, part.rounds, part.span)
			}
			for _, s := range part.settings {
				w := &workload.Workload{Payload: s.Payload, Receivers: s.Receivers, Groups: s.Groups}
				if err := w.Check(); err != nil {
					t.Errorf("%s, %v: %v", p.form, s, err)
				}
				if (s.Groups > 1) != (s.Pattern != "") {
					t.Errorf("%s, %v: the pattern is %q", p.form, s, s.Pattern)
				}
			}
		}
		for _, names := range lists {
			if got := peer.Named(names...); len(got) != len(names) {
				t.Errorf("%s: %q names a contestant that there is not", p.form, names)
			}
		}
	}
}

// The rows that decide take ten seconds of each contestant, at least, in the full form. The rounds
// are many, because two rounds of one contestant may differ more than two contestants do.
func TestMainRowsOfTheFullForm(t *testing.T) {
	p := fullForm()
	p.restrict([]string{report.SectionMain})
	if len(p.throughput) != 1 || p.latency.rounds != 0 || p.changes.groups != 0 || p.restarts.groups != nil {
		t.Fatalf("the main section is %+v", p)
	}
	part := p.throughput[0]
	if time.Duration(part.rounds)*part.span < 10*time.Second || part.rounds < 15 || len(part.settings) != 2 || part.peers != nil {
		t.Errorf("the main section is %+v", part)
	}
}

func TestOverride(t *testing.T) {
	p := fullForm()
	p.override(1, 0)
	if p.throughput[0].rounds != 1 || p.throughput[0].span != 2*time.Second || p.latency.rounds != 1 {
		t.Errorf("rounds alone: %+v", p)
	}
	p = fullForm()
	p.restrict([]string{"payload"})
	p.override(2, time.Minute)
	if p.throughput[0].span != time.Minute || p.throughput[0].rounds != 2 || p.latency.rounds != 0 {
		t.Errorf("both: %+v", p)
	}
}

// Contestants run in turn, each round begins with another one, and one that fails is out and named.
func TestInTurn(t *testing.T) {
	b := &bench{}
	peers := []*peer.Peer{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	var order []string
	err := b.alternately(context.Background(), "test", peers, 3, func(i int, p *peer.Peer) error {
		if peers[i] != p {
			t.Errorf("index %d is not %s", i, p.Name)
		}
		order = append(order, p.Name)
		if p.Name == "b" {
			return errors.New("broken")
		}
		return nil
	})
	if err != nil || !slices.Equal(order, []string{"a", "b", "c", "c", "a", "c", "a"}) {
		t.Errorf("got %v, %v", order, err)
	}
	if len(b.out.Left) != 1 || b.out.Left[0].What != "b, test" || !b.out.Left[0].Failed {
		t.Errorf("left out: %+v", b.out.Left)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = b.alternately(ctx, "test", peers, 3, func(int, *peer.Peer) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || len(b.out.Left) != 1 {
		t.Errorf("interrupted: %v, left out %+v", err, b.out.Left)
	}
}
