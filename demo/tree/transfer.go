package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
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
)

// receiver is one receiver: its host, its entry in the group file, its memory and its QP.
type receiver struct {
	*bed.Host
	box    string
	qpn    roce.QPN
	psn    roce.PSN
	va     uint64
	rkey   uint32
	memory []byte
	qp     *endpoint.QP
}

// transfer is one source's WRITEs to all receivers.
type transfer struct {
	*demo
	groupIP   netip.Addr
	from      *bed.Host
	source    *endpoint.QP
	receivers []*receiver
	data      []byte
	stood     time.Duration // from the request until the group stood
	took      time.Duration
}

func (d *demo) newTransfer() *transfer {
	t := &transfer{demo: d, groupIP: d.lab.Boxes[0].GroupIP(), from: d.lab.Boxes[0].Hosts[0], data: make([]byte, d.bytes)}
	rand.NewChaCha8([32]byte{byte(d.seed), byte(d.seed >> 8), byte(d.seed >> 16)}).Read(t.data)
	for i, b := range d.set.Boxes {
		for _, h := range b.Hosts {
			if h == t.from {
				continue
			}
			n := len(t.receivers)
			t.receivers = append(t.receivers, &receiver{
				Host: h, box: names[i], qpn: roce.QPN(18 + n), psn: roce.PSN(5 + 1000*n), va: 0x7f0000000000 + uint64(n)<<32,
				rkey: uint32(0x1234 + n), memory: make([]byte, d.bytes),
			})
		}
	}
	return t
}

// create creates the group at the first leaf.
func (t *transfer) create(ctx context.Context) error {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, rkey: %#x}\nmembers:\n",
		groupName, t.groupIP, groupQPN, pathMTU, memoryVA, memoryKey)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", t.from.IP, sourceQPN, sourcePSN)
	for _, r := range t.receivers {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, regions: {va: %#x, length: %d, rkey: %#x}}\n",
			r.IP, r.qpn, r.psn, r.va, len(t.data), r.rkey)
	}
	root := t.set.Boxes[0].Client()
	began := time.Now()
	group, err := root.CreateGroup(ctx, []byte(b.String()))
	if err != nil {
		return err
	}
	t.stood = time.Since(began)
	for group.State != api.Ready {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the group is %s: %s", group.State, group.Reason)
		case <-time.After(20 * time.Millisecond):
		}
		if group, err = root.Group(ctx, groupName); err != nil {
			return err
		}
	}
	return nil
}

func (t *transfer) connect(ctx context.Context) (err error) {
	for _, r := range t.receivers {
		region := rnic.Region{VA: r.va, RKey: r.rkey, Access: rnic.RemoteWrite, Bytes: r.memory}
		if err := r.RNIC.Register(region); err != nil {
			return err
		}
		if r.qp, err = r.RNIC.NewQP(bed.QP(r.qpn, 0, pathMTU)); err != nil {
			return err
		}
		if err := r.qp.Connect(ctx, endpoint.Peer{IP: t.groupIP, QPN: groupQPN, PSN: r.psn}); err != nil {
			return fmt.Errorf("receiver %v: %w", r.IP, err)
		}
	}
	if t.source, err = t.from.RNIC.NewQP(bed.QP(sourceQPN, sourcePSN, pathMTU)); err != nil {
		return err
	}
	return t.source.Connect(ctx, endpoint.Peer{IP: t.groupIP, QPN: groupQPN, PSN: sourcePSN})
}

// run posts all WRITEs and waits for their completions.
func (t *transfer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	_, err := bed.Write(ctx, t.source, rnic.Remote{VA: memoryVA, RKey: memoryKey}, t.data, writeBytes, func() {
		if !t.kill {
			return
		}
		if err := t.restart(ctx); err != nil {
			cancel(err)
		}
	})
	t.took = time.Since(began)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// same reports whether a receiver has the source's data, and returns a copy of what it has.
func (t *transfer) same(r *receiver) (got []byte, same bool) {
	r.RNIC.Freeze(func() { got = bytes.Clone(r.memory) })
	return got, bytes.Equal(got, t.data)
}
