package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/roce"
)

// lossPlan compares groups with programs that do without multicast, over links that lose packets.
type lossPlan struct {
	perMillion []int // packets that are lost of a million, on the receivers' links, in each direction
	methods    []lossMethod
	span       time.Duration // of each method at each rate
	patience   time.Duration // after the span, for what is still on its way
}

// lossMethod is one way to bring messages to all receivers.
type lossMethod struct {
	name   string
	policy string         // keys of the group file
	shape  relaying.Shape // nil: a group
	slices int
}

// The load is that of the first table of docs/merging.md.
const (
	lossReceivers = 3
	lossMTU       = 1024
	lossBytes     = 64 << 10 // of a message
	lossPosted    = 16
)

func allMethods() []lossMethod {
	return []lossMethod{
		{name: report.LossBase, policy: "repair: off"},
		{name: "rocast, speak: rnr", policy: "speak: rnr"},
		{name: "rocast, repair: local", policy: "repair: local"},
		{name: "unicast", shape: relaying.Unicast, slices: 1},
		{name: "chain, 4 slices", shape: relaying.Chain, slices: 4},
		{name: "binomial tree", shape: relaying.Binomial, slices: 1},
	}
}

// loss measures all methods at all rates.
func (b *bench) loss(ctx context.Context) error {
	plan := b.plan.loss
	for _, rate := range plan.perMillion {
		on := &lossyBed{spent: true}
		for i := range plan.methods {
			m := &plan.methods[i]
			what := fmt.Sprintf("%s, %d of a million packets lost", m.name, rate)
			fmt.Fprintln(os.Stderr, what)
			var err error
			if on.spent {
				err = on.close()
				on = &lossyBed{rate: rate, qpn: 16}
				err = errors.Join(err, on.raise(ctx, b.bin))
			}
			if err == nil {
				err = on.measure(ctx, m, &plan, &b.out)
			}
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), on.close())
			}
			if err != nil {
				on.spent = true
				b.leave(what, err, true)
			}
		}
		if err := on.close(); err != nil {
			return err
		}
	}
	return nil
}

// lossyBed is a bed whose links lose packets, with a daemon.
type lossyBed struct {
	undo
	rate   int
	bed    *bed.Bed
	daemon *peer.Daemon
	memory [][]byte // by host
	qpn    roce.QPN // the next one
	spent  bool     // a transfer was given up, and its queue pairs still send
}

func (l *lossyBed) raise(ctx context.Context, bin string) (err error) {
	if l.bed, err = bed.New(bed.Options{Hosts: 1 + lossReceivers}); err != nil {
		return err
	}
	l.later(l.bed.Close)
	for i, h := range l.bed.Hosts {
		if i > 0 { // also where nothing is lost: the programs cost the same
			if h.Loss, err = lossy.Attach(h.End, uint32(i), l.rate); err != nil {
				return err
			}
		}
		m := make([]byte, lossPosted*lossBytes)
		l.memory = append(l.memory, m)
		if err := h.RNIC.Register(rnic.Region{VA: lossVA, RKey: lossRKey, Access: rnic.RemoteWrite, Bytes: m}); err != nil {
			return err
		}
	}
	if l.daemon, err = peer.StartDaemon(ctx, bin, l.bed.Box, l.bed.Ports()); err != nil {
		return err
	}
	l.later(l.daemon.Stop)
	return nil
}

// measure adds a row to the report.
func (l *lossyBed) measure(ctx context.Context, m *lossMethod, plan *lossPlan, out *report.Report) error {
	t := &transfer{cut: relaying.Cut{MessageBytes: lossBytes, Slices: max(1, m.slices), Posted: lossPosted}}
	for i, h := range l.bed.Hosts {
		clear(l.memory[i])
		t.nodes = append(t.nodes, node{rnic: h.RNIC, memory: l.memory[i]})
	}
	var err error
	if m.shape != nil {
		err = l.connect(ctx, t, m.shape)
	} else {
		err = l.group(ctx, t, m.policy)
	}
	if err != nil {
		return err
	}
	source := l.bed.Hosts[0].RNIC
	before, began := source.Counters(), time.Now()
	limited, cancel := context.WithTimeout(ctx, plan.span+plan.patience)
	defer cancel()
	err = t.run(limited, plan.span)
	if l.spent = err != nil || !t.whole(); !l.spent {
		err = t.verify()
	}
	if m.shape == nil {
		err = errors.Join(err, l.daemon.Remove(ctx, lossGroup))
	}
	if err != nil {
		return err
	}
	after := source.Counters()
	row := report.Loss{
		Method: m.name, PerMillion: l.rate, Messages: len(t.took), Packets: len(t.took) * lossBytes / lossMTU,
		Resent: after.Get(rnic.FramesRetransmitted) - before.Get(rnic.FramesRetransmitted), Seconds: time.Since(began).Seconds(),
	}
	if len(t.took) > 0 {
		row.LatencyQuantile = report.Quantiles(t.took)
	}
	if !l.spent {
		row.Seconds = t.over.Sub(began).Seconds()
	}
	out.Loss = append(out.Loss, row)
	return nil
}

const lossGroup = "loss"

// group makes a group of all hosts, whose queue pairs have it as peer.
func (l *lossyBed) group(ctx context.Context, t *transfer, policy string) error {
	const psn = 1000
	qpn, ip := l.qpn, l.bed.GroupIP()
	l.qpn++
	var file strings.Builder
	fmt.Fprintf(&file, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\n%s\nmembers:\n",
		lossGroup, ip, qpn, lossMTU, lossVA, lossPosted*lossBytes, lossRKey, policy)
	region := fmt.Sprintf("regions: [{va: %#x, length: %d, rkey: %#x}]", lossVA, lossPosted*lossBytes, lossRKey)
	var pairs []*endpoint.QP
	var peers []endpoint.Peer
	for i, h := range l.bed.Hosts {
		qp, err := h.RNIC.NewQP(bed.QP(qpn, psn, lossMTU))
		if err == nil {
			err = takeSlices(qp)
		}
		if err != nil {
			return err
		}
		first, own := roce.PSN(psn), region
		if i == 0 {
			own, t.nodes[0].next = "role: source", []*endpoint.QP{qp}
		} else {
			first = psn + 7*roce.PSN(i) // each receiver expects PSNs of its own
			t.nodes[i].from = qp
		}
		fmt.Fprintf(&file, "  - {ip: %v, qpn: %d, psn: %d, %s}\n", h.IP, qpn, first, own)
		peers = append(peers, endpoint.Peer{IP: ip, QPN: qpn, PSN: first})
		pairs = append(pairs, qp)
	}
	t.needed = 1
	err := l.daemon.Create(ctx, []byte(file.String())) // from now on the group's IP is found
	for i := range pairs {
		if err == nil {
			err = pairs[i].Connect(ctx, peers[i])
		}
	}
	return err
}

// connect connects each receiver to the host from which it gets the messages.
func (l *lossyBed) connect(ctx context.Context, t *transfer, how relaying.Shape) error {
	for to := 1; to < len(t.nodes); to++ {
		from := how(to)
		var pair [2]*endpoint.QP
		for k, host := range []int{from, to} {
			c := bed.QP(l.qpn+roce.QPN(k), 0, lossMTU)
			c.SendDepth = max(c.SendDepth, t.cut.Posted*t.cut.Slices)
			var err error
			if pair[k], err = t.nodes[host].rnic.NewQP(c); err != nil {
				return err
			}
		}
		for k, host := range []int{to, from} {
			if err := pair[k].Connect(ctx, endpoint.Peer{IP: t.nodes[host].rnic.IP(), QPN: l.qpn + 1 - roce.QPN(k)}); err != nil {
				return err
			}
		}
		if err := takeSlices(pair[1]); err != nil {
			return err
		}
		l.qpn += 2
		t.nodes[from].next, t.nodes[to].from = append(t.nodes[from].next, pair[0]), pair[1]
	}
	t.needed = t.cut.Slices * (len(t.nodes) - 1)
	return nil
}

// takeSlices posts more receives than slices can be on their way.
func takeSlices(qp *endpoint.QP) error {
	for range 256 {
		if err := qp.PostRecv(0, nil); err != nil {
			return err
		}
	}
	return nil
}
