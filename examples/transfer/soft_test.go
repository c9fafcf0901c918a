package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/rocast/rocast/internal/rnic"
	soft "github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// softNIC makes queue pairs of a host of the lab.
type softNIC struct {
	*soft.Endpoint
	wrote func(chunks int) error // hears of every chunk that is acknowledged; nil: nobody does
}

type softEndpoint struct {
	softNIC
	queuePair
	qp     *soft.QP
	memory []byte
}

func (n softNIC) open(_ context.Context, bytes int64) (endpoint, error) {
	e := &softEndpoint{softNIC: n, memory: make([]byte, bytes)}
	e.queuePair = queuePair{
		IP: n.IP(), QPN: 2 + roce.QPN(rand.Uint32N(1<<23)), PSN: roce.PSN(rand.Uint32N(1 << 24)),
		VA: rand.Uint64N(1<<20) << 20, RKey: rand.Uint32(),
	}
	var err error
	if e.qp, err = n.NewQP(bed.QP(e.QPN, e.PSN, pathMTU)); err != nil {
		return nil, err
	}
	return e, n.Register(rnic.Region{VA: e.VA, RKey: e.RKey, Access: rnic.RemoteWrite, Bytes: e.memory})
}

func (e *softEndpoint) local() queuePair { return e.queuePair }

// connect: only a receiver is sent requests, and it has said which PSN it expects.
func (e *softEndpoint) connect(ctx context.Context, peer queuePair) (string, error) {
	err := e.qp.Connect(ctx, soft.Peer{IP: peer.IP, QPN: peer.QPN, PSN: e.PSN})
	return e.qp.State().String(), err
}

func (e *softEndpoint) load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err = io.ReadFull(file, e.memory); err == io.ErrUnexpectedEOF {
		err = nil // the last chunk is not full
	}
	return err
}

func (e *softEndpoint) save(path string, bytes int64) (err error) {
	if bytes > int64(len(e.memory)) {
		return fmt.Errorf("the memory has %d bytes, not %d", len(e.memory), bytes)
	}
	e.Freeze(func() { err = os.WriteFile(path, e.memory[:bytes], 0o600) })
	return err
}

func (e *softEndpoint) write(ctx context.Context, peer queuePair, bytes int64) error {
	return bed.Post(ctx, e.qp, int(bytes/chunkBytes), func(i int) error {
		at := i * chunkBytes
		return e.qp.PostWrite(uint64(i), e.memory[at:at+chunkBytes], rnic.Remote{VA: peer.VA + uint64(at), RKey: peer.RKey})
	}, e.wrote)
}

func (e *softEndpoint) close() {
	e.qp.Destroy()
	e.Deregister(e.RKey)
}
