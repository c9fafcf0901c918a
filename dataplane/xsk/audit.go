package xsk

import (
	"errors"
	"fmt"
)

// Census counts the chunks of a UMEM by their place; Free + Held + Receive + Transmit + Stranded ==
// Total.
type Census struct {
	Free     int // on the free list
	Held     int // with the worker
	Receive  int // on fill rings, in drivers, on RX rings
	Transmit int // given to TX rings, devices or completion rings
	Stranded int // with closed sockets whose queue the kernel did not release in time
	Total    int
}

// Census walks the whole ledger. It is for tests and status, not for each frame.
func (u *UMEM) Census() Census {
	c := Census{Free: u.ledger.count(inFreeList), Held: u.ledger.count(withWorker), Total: len(u.ledger)}
	for _, s := range u.slots {
		if s == nil {
			continue
		}
		receive, transmit := u.ledger.count(s.receiveSide), u.ledger.count(s.transmitSide)
		if s.fd < 0 {
			c.Stranded += receive + transmit
			continue
		}
		c.Receive += receive
		c.Transmit += transmit
	}
	return c
}

// Audit checks that no chunk was lost or doubled. It compares the ledger with the free list, with
// each socket's counts of chunks that went in and came out, and with the entries of its fill ring.
func (u *UMEM) Audit() error {
	c := u.Census()
	var errs []error
	if sum := c.Free + c.Held + c.Receive + c.Transmit + c.Stranded; sum != c.Total {
		errs = append(errs, fmt.Errorf("%d chunks accounted for, there are %d: %+v", sum, c.Total, c))
	}
	if len(u.free) != c.Free {
		errs = append(errs, fmt.Errorf("%d chunks on the free list, ledger says %d", len(u.free), c.Free))
	}
	for _, chunk := range u.free {
		if u.ledger[chunk] != inFreeList {
			errs = append(errs, fmt.Errorf("chunk %d is on the free list and with %v", chunk, u.ledger[chunk]))
		}
	}
	for _, s := range u.slots {
		if s != nil && s.bound {
			errs = append(errs, s.audit())
		}
	}
	return errors.Join(errs...)
}

func (s *Socket) audit() error {
	var errs []error
	ledger := s.umem.ledger
	if out, is := int(s.filled-s.received), ledger.count(s.receiveSide); out != is {
		errs = append(errs, fmt.Errorf("%v: %d chunks filled and not received, ledger says %d", s, out, is))
	}
	if out, is := s.Given(), ledger.count(s.transmitSide); out != is {
		errs = append(errs, fmt.Errorf("%v: %d chunks given and not completed, ledger says %d", s, out, is))
	}
	onFillRing := make(map[uint64]bool)
	for i := s.fill.head - s.fill.pending(); i != s.fill.head+s.unseen; i++ {
		addr := s.fill.entries[i&s.fill.mask]
		if onFillRing[addr] {
			errs = append(errs, fmt.Errorf("%v: address %#x is twice on the fill ring", s, addr))
		}
		onFillRing[addr] = true
		if is := ledger[addr/ChunkBytes]; is != s.receiveSide {
			errs = append(errs, fmt.Errorf("%v: address %#x is on the fill ring and with %v", s, addr, is))
		}
	}
	return errors.Join(errs...)
}
