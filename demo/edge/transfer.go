package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// The values with which the QPs are set up; the group file has the same.
const (
	groupName  = "demo"
	groupQPN   = 1
	memoryVA   = 0x10000
	memoryKey  = 0x77
	pathMTU    = 1024
	sourceQPN  = 17
	sourcePSN  = 0xFFFE00 // the stream crosses the PSN wrap
	writeBytes = 256 << 10

	killed  = 2 // the receiver whose edge is killed
	outage  = 300 * time.Millisecond
	patient = 30 * time.Second // for edges to be in use
)

// mostShared bounds how many shared copies the box's port carries for a packet of the source.
const mostShared = 1.05

// receiver is one receiver: its entry in the group file, its memory and its QP.
type receiver struct {
	*bed.Host
	qpn    roce.QPN
	psn    roce.PSN
	va     uint64
	rkey   uint32
	memory []byte
}

// transfer is one source's WRITEs to all receivers.
type transfer struct {
	*demo
	source    *endpoint.QP
	receivers []*receiver
	data      []byte
	took      time.Duration
	before    uint64 // shared copies
}

// connect creates the group and connects all queue pairs. The order does not matter to a box: until
// the edges have confirmed their mappings, receivers get copies of their own.
func (d *demo) connect(ctx context.Context) (t *transfer, err error) {
	t = &transfer{demo: d, data: bed.Random(d.bytes, byte(d.seed))}
	var lines strings.Builder
	fmt.Fprintf(&lines, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, rkey: %#x}\nmembers:\n",
		groupName, d.lab.GroupIP(), groupQPN, pathMTU, memoryVA, memoryKey)
	source := d.lab.Hosts[0]
	fmt.Fprintf(&lines, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", source.IP, sourceQPN, sourcePSN)
	for i, h := range d.lab.Hosts[1:] {
		r := &receiver{
			Host: h, qpn: roce.QPN(18 + i), psn: roce.PSN(5 + 1000*i), va: 0x7f0000000000 + uint64(i)<<32, rkey: uint32(0x1234 + i),
			memory: make([]byte, d.bytes),
		}
		t.receivers = append(t.receivers, r)
		fmt.Fprintf(&lines, "  - {ip: %v, qpn: %d, psn: %d, regions: {va: %#x, length: %d, rkey: %#x}}\n", r.IP, r.qpn, r.psn, r.va, d.bytes, r.rkey)
	}
	group, err := d.daemon.Client().CreateGroup(ctx, []byte(lines.String()))
	if err != nil {
		return nil, err
	}
	for ; group.State != api.Ready; group, err = d.daemon.Client().Group(ctx, groupName) {
		if err := errors.Join(err, pause(ctx)); err != nil {
			return nil, fmt.Errorf("the group is %s: %s: %w", group.State, group.Reason, err)
		}
	}
	for _, r := range t.receivers {
		if err := r.RNIC.Register(rnic.Region{VA: r.va, RKey: r.rkey, Access: rnic.RemoteWrite, Bytes: r.memory}); err != nil {
			return nil, err
		}
		if _, err := d.open(ctx, r.Host, bed.QP(r.qpn, 0, pathMTU), r.psn); err != nil {
			return nil, err
		}
	}
	t.source, err = d.open(ctx, source, bed.QP(sourceQPN, sourcePSN, pathMTU), sourcePSN)
	return t, err
}

func (d *demo) open(ctx context.Context, h *bed.Host, c rnic.Config, expects roce.PSN) (*endpoint.QP, error) {
	qp, err := h.RNIC.NewQP(c)
	if err == nil {
		err = qp.Connect(ctx, endpoint.Peer{IP: d.lab.GroupIP(), QPN: groupQPN, PSN: expects})
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", h.IP, err)
	}
	return qp, nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}

// run posts all WRITEs and waits for their completions.
func (t *transfer) run(ctx context.Context) (err error) {
	if err := t.share(ctx); err != nil {
		return err
	}
	if t.before, err = t.shared.read(); err != nil {
		return err
	}
	again := make(chan error, 1)
	began := time.Now()
	_, err = bed.Write(ctx, t.source, rnic.Remote{VA: memoryVA, RKey: memoryKey}, t.data, writeBytes, func() {
		go func() { again <- t.killEdge() }()
	})
	t.took = time.Since(began)
	if err != nil {
		return err
	}
	return <-again
}

// share waits until all edges map what the box shares.
func (t *transfer) share(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	for _, e := range t.edges {
		for {
			status, err := e.Do("status")
			if err == nil && strings.Contains(status, " 1 mappings ") {
				break
			}
			if ended := pause(ctx); ended != nil {
				return errors.Join(fmt.Errorf("an edge has no mapping after %v: %s", patient, status), err)
			}
		}
	}
	return nil
}

// killEdge takes an edge away, with all that it has left, and starts it again later.
func (t *transfer) killEdge() error {
	e := t.edges[killed]
	if err := e.Kill(); err != nil {
		return err
	}
	if _, err := e.Do("remove"); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "the edge of %v is gone\n", t.receivers[killed].IP)
	time.Sleep(outage) // as long as the load lasts
	return e.Start(t.asks())
}

// report prints what was observed. It returns an error for everything that is not as promised.
func (t *transfer) report(ctx context.Context) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	sum := sha256.Sum256(t.data)
	fmt.Fprintf(w, "source memory\t%x\n", sum[:16])
	for i, r := range t.receivers {
		r.RNIC.Freeze(func() { sum = sha256.Sum256(r.memory) })
		fmt.Fprintf(w, "%v\t%x\n", r.IP, sum[:16])
		if i == killed { // while its edge was gone it saw shared copies, which are of no queue pair
			must(r.Has(r.memory, t.data), "the bytes of %v differ from the source's", r.IP)
			continue
		}
		if err := r.CheckReceived(r.memory, t.data); err != nil {
			errs = append(errs, err)
		}
	}
	s := t.lab.Hosts[0].RNIC.Counters()
	must(bed.CheckResponses(t.source) == nil && s.Violations() == 0 && s.Rejected() == 0, "the source received a response that is not true")
	after, err := t.shared.read()
	if err != nil {
		return err
	}
	all, _, err := t.uplink.Passed()
	if err != nil {
		return err
	}
	group, err := t.daemon.Client().Group(ctx, groupName)
	if err != nil {
		return err
	}
	must(group.State == api.Ready, "the group is %s: %s", group.State, group.Reason)
	var repaired uint64
	for _, m := range group.Members {
		if m.Repair != nil {
			repaired += m.Repair.Repaired
		}
	}
	packets, shared, acks := uint64(len(t.data)/pathMTU), after-t.before, s.Get(rnic.ACKsReceived)
	var first uint64 // copies of packets that left for the first time, since the group was made
	for _, leg := range group.Shares {
		first += leg.Packets
	}
	again := min(shared, after-min(after, first))
	single := all - min(all, shared+acks)
	of := func(n uint64) float64 { return float64(n) / float64(packets) }
	fmt.Fprintf(w, "WRITE goodput\t%.0f Mb/s to each receiver (%d MiB in %.2f s)\n", float64(len(t.data))*8/t.took.Seconds()/1e6, len(t.data)>>20, t.took.Seconds())
	fmt.Fprintf(w, "the box's port\t%d packets of the source, %d receivers: %.3f shared copies of each, and %.3f to repair what all lacked; "+
		"%.3f to single receivers; %.3f repairs were due; %d answers to the source\n",
		packets, len(t.receivers), of(shared-again), of(again), of(single), of(repaired), acks)
	fmt.Fprintf(w, "resent packets\t%d by the source, %d timeouts\n", s.Get(rnic.FramesRetransmitted), s.Get(rnic.Timeouts))
	must(of(shared-again) <= mostShared, "the box sent each packet %.3f times to all, and at most %.2f is promised", of(shared-again), mostShared)
	must(of(shared-again) > 0.9, "the box shared only %.3f copies of each packet", of(shared-again))
	must(of(all) < receivers/2, "the box's port carried each packet %.2f times", of(all))
	return errors.Join(append(errs, w.Flush())...)
}
