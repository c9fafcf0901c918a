package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// The values with which the QPs are set up; the group file has the same.
const (
	groupIP   = "10.77.3.100"
	groupQPN  = 1
	memoryVA  = 0x10000
	memoryKey = 0x77
	pathMTU   = 1024

	sourceQPN = 17
	sourcePSN = 0xFFFE00 // the stream crosses the PSN wrap

	writeBytes = 1 << 20 // of one WRITE
	sends      = 200     // after the WRITEs
	sendBytes  = 3000
)

// receiver is one receiver: its entry in the group file, its memory and its QP.
type receiver struct {
	qpn    roce.QPN
	psn    roce.PSN
	va     uint64
	rkey   uint32
	memory []byte
	inbox  []byte // the SENDs, one after the other
	qp     *endpoint.QP
}

func describe(i int) receiver {
	return receiver{
		qpn: roce.QPN(18 + i), psn: roce.PSN(5 + 1000*i),
		va: 0x7f0000000000 + uint64(i)<<32, rkey: uint32(0x1234 + i),
	}
}

// transfer is the traffic of the group: WRITEs, then SENDs, from the source to all receivers.
type transfer struct {
	source    *endpoint.QP
	data      []byte // written
	messages  []byte // sent
	receivers []receiver
	took      time.Duration
}

func (d *demo) connect(ctx context.Context) (*transfer, error) {
	t := &transfer{data: make([]byte, d.bytes), messages: make([]byte, sends*sendBytes)}
	fill(t.data, uint64(d.seed))
	fill(t.messages, uint64(d.seed)+1)
	peer := endpoint.Peer{IP: mustAddr(groupIP), QPN: groupQPN, PSN: sourcePSN}
	for i := range receivers {
		r := describe(i)
		r.memory, r.inbox = make([]byte, d.bytes), make([]byte, len(t.messages))
		host := d.lab.Hosts[1+i].RNIC
		region := rnic.Region{VA: r.va, RKey: r.rkey, Access: rnic.RemoteWrite, Bytes: r.memory}
		if err := host.Register(region); err != nil {
			return nil, err
		}
		var err error
		if r.qp, err = host.NewQP(bed.QP(r.qpn, 0, pathMTU)); err != nil {
			return nil, err
		}
		for k := range sends {
			if err := r.qp.PostRecv(uint64(k), r.inbox[k*sendBytes:(k+1)*sendBytes]); err != nil {
				return nil, err
			}
		}
		// Each receiver's QP expects a first PSN of its own; the switch translates.
		peer := peer
		peer.PSN = r.psn
		if err := r.qp.Connect(ctx, peer); err != nil {
			return nil, fmt.Errorf("receiver %d: %w", i+1, err)
		}
		t.receivers = append(t.receivers, r)
	}
	var err error
	if t.source, err = d.lab.Hosts[0].RNIC.NewQP(bed.QP(sourceQPN, sourcePSN, pathMTU)); err != nil {
		return nil, err
	}
	if err := t.source.Connect(ctx, peer); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	return t, nil
}

// run posts all work requests and waits for the source's completions.
func (t *transfer) run(ctx context.Context) error {
	start := time.Now()
	writes := (len(t.data) + writeBytes - 1) / writeBytes
	post := func(n int) error { return t.post(n, writes) }
	return bed.Post(ctx, t.source, writes+sends, post, func(done int) error {
		if done == writes {
			t.took = time.Since(start)
		}
		return nil
	})
}

func (t *transfer) post(n, writes int) error {
	if n < writes {
		off := n * writeBytes
		return t.source.PostWrite(uint64(n), t.data[off:min(off+writeBytes, len(t.data))],
			rnic.Remote{VA: memoryVA + uint64(off), RKey: memoryKey})
	}
	off := (n - writes) * sendBytes
	return t.source.PostSend(uint64(n), t.messages[off:off+sendBytes])
}

// check compares the memory of receiver i with what the source sent.
func (d *demo) check(t *transfer, i int) (sum [sha256.Size]byte, same bool) {
	r := &t.receivers[i]
	d.lab.Hosts[1+i].RNIC.Freeze(func() {
		sum = sha256.Sum256(r.memory)
		same = bytes.Equal(r.memory, t.data) && bytes.Equal(r.inbox, t.messages)
	})
	return sum, same
}

func fill(b []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
}
