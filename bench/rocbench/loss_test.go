package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

// A group, and programs without one, bring whole messages over links that lose packets.
func TestMessagesOverLossyLinks(t *testing.T) {
	b := &bench{bin: programs(t), plan: plan{loss: lossPlan{
		perMillion: []int{2000}, methods: []lossMethod{allMethods()[2], allMethods()[4]}, span: 100 * time.Millisecond, patience: time.Minute,
	}}}
	if err := b.loss(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(b.out.Left) != 0 || len(b.out.Loss) != len(b.plan.loss.methods) {
		t.Fatalf("%d methods are measured; left out: %+v", len(b.out.Loss), b.out.Left)
	}
	for i, l := range b.out.Loss {
		if m := &b.plan.loss.methods[i]; l.Method != m.name || l.PerMillion != 2000 || l.Messages == 0 || l.Packets != 64*l.Messages ||
			l.Seconds <= 0 || l.P50 <= 0 || l.P99 < l.P50 {
			t.Errorf("%s: %+v", m.name, l)
		}
	}
}

// A transfer that does not end in time is given up, and so are its hosts.
func TestATransferThatDoesNotEndIsGivenUp(t *testing.T) {
	l := &lossyBed{rate: 999_999, qpn: 16}
	if err := l.raise(context.Background(), programs(t)); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	var out report.Report
	m := lossMethod{name: "chain", shape: relaying.Chain, slices: 2}
	p := lossPlan{span: 50 * time.Millisecond, patience: 100 * time.Millisecond}
	if err := l.measure(context.Background(), &m, &p, &out); err != nil {
		t.Fatal(err)
	}
	if !l.spent || len(out.Loss) != 1 || out.Loss[0].Messages != 0 || out.Loss[0].Seconds < 0.1 {
		t.Errorf("spent: %v, %+v", l.spent, out.Loss)
	}
}

// programs returns the directory of rocastd.
func programs(t *testing.T) string {
	t.Helper()
	testlab.NeedRoot(t)
	program, err := boxes.Program()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(program)
}
