package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/roce"
)

const (
	pathMTU = 1024
	logVA   = 0x10_0000 // of the log at every replica
)

// replica is a host that holds a copy of the log. It does nothing for an entry: leaders write to
// its memory. What it does is to say which leader may.
type replica struct {
	host   *bed.Host
	link   *lossy.Link
	memory []byte
	term   uint64 // of the leader that may write
	rkey   uint32 // of the log, for that leader; 0: nobody may write
	seats  map[uint64]*seat
	// lost says that the replica was killed and has not got its log back. It may have been the one
	// that had an entry of a quorum, so it promises nothing to a new leader.
	lost bool
	away bool // it answers nobody
}

// seat is what a replica keeps for the leader of one term: a queue pair, and the key under which
// that leader is going to write. The key opens nothing before the leader is granted its term.
type seat struct {
	qp   *endpoint.QP
	qpn  roce.QPN
	psn  roce.PSN // that it expects first
	rkey uint32
}

// sit makes a seat for the leader of a term. Leaders and replicas are one process here; others use
// a TCP connection, as examples/transfer does.
func (r *replica) sit(term uint64) (s *seat, err error) {
	s = &seat{qpn: 2 + roce.QPN(rand.Uint32N(1<<23)), psn: roce.PSN(rand.Uint32N(1 << 24)), rkey: 1 + rand.Uint32N(1<<31)}
	r.seats[term] = s
	s.qp, err = r.host.RNIC.NewQP(bed.QP(s.qpn, 0, pathMTU))
	return s, err
}

func (s *seat) connect(ctx context.Context, ip netip.Addr, qpn roce.QPN) error {
	return s.qp.Connect(ctx, endpoint.Peer{IP: ip, QPN: qpn, PSN: s.psn})
}

// grant lets the leader of a term write to the log, and no other: whatever an earlier leader sends
// from now on is refused with NAK remote access. It returns the log as it was then.
func (r *replica) grant(term uint64) ([]entry, error) {
	s := r.seats[term]
	switch {
	case r.away:
		return nil, fmt.Errorf("replica %v does not answer", r.host.IP)
	case r.lost:
		return nil, fmt.Errorf("replica %v has lost its log", r.host.IP)
	case term <= r.term || s == nil:
		return nil, fmt.Errorf("replica %v follows the leader of term %d, not that of term %d", r.host.IP, r.term, term)
	}
	if err := r.admit(term, s); err != nil {
		return nil, err
	}
	return r.log(), nil
}

func (r *replica) admit(term uint64, s *seat) error {
	r.host.RNIC.Deregister(r.rkey)
	r.term, r.rkey = term, s.rkey
	return r.host.RNIC.Register(rnic.Region{VA: logVA, RKey: r.rkey, Access: rnic.RemoteWrite, Bytes: r.memory})
}

func (r *replica) log() (entries []entry) {
	r.host.RNIC.Freeze(func() { entries = readLog(r.memory) })
	return entries
}

// endSeat ends the seat of a leader that has gone.
func (r *replica) endSeat(term uint64) {
	if s := r.seats[term]; s != nil && s.qp != nil {
		s.qp.Destroy()
	}
	delete(r.seats, term)
}

// die loses what a process loses when it is killed: the queue pairs, and the log.
func (r *replica) die() {
	for term := range r.seats {
		r.endSeat(term)
	}
	r.host.RNIC.Deregister(r.rkey)
	r.memory, r.rkey, r.lost = make([]byte, logBytes), 0, true
}

// restart lets the leader of a term write again, from which the replica gets back what it has lost.
func (r *replica) restart(term uint64) (*seat, error) {
	if term < r.term {
		return nil, fmt.Errorf("replica %v follows the leader of term %d, not that of term %d", r.host.IP, r.term, term)
	}
	s, err := r.sit(term)
	if err != nil {
		return nil, err
	}
	return s, r.admit(term, s)
}
