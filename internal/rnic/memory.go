package rnic

import (
	"errors"
	"fmt"
)

// Access says what the peer may do with a region.
type Access uint8

// RemoteWrite permits RDMA WRITE. A WRITE to a region without it is refused.
const RemoteWrite Access = 1

// Region is registered memory. The responder writes into Bytes; the owner of the queue pairs
// decides when it is safe to read them.
type Region struct {
	VA     uint64 // the address of Bytes[0] for the peer
	RKey   uint32
	Access Access
	Bytes  []byte
}

// Memory is a protection domain: the regions that the queue pairs of a host share. The zero value
// has no regions.
type Memory struct {
	regions []Region // few, so that a search by walking is quick
}

var errRKeyTaken = errors.New("R_Key is taken")

// Register makes a region known to the peer.
func (m *Memory) Register(r Region) error {
	if r.VA+uint64(len(r.Bytes)) < r.VA {
		return fmt.Errorf("register region: VA %#x + %d bytes wraps", r.VA, len(r.Bytes))
	}
	if m.lookUp(r.RKey) != nil {
		return fmt.Errorf("register region: %w: %#x", errRKeyTaken, r.RKey)
	}
	m.regions = append(m.regions, r)
	return nil
}

// Deregister forgets a region. From now on requests that name it are refused, the rest of a message
// that has begun too.
func (m *Memory) Deregister(rkey uint32) {
	for i := range m.regions {
		if m.regions[i].RKey == rkey {
			m.regions = append(m.regions[:i], m.regions[i+1:]...)
			return
		}
	}
}

func (m *Memory) lookUp(rkey uint32) *Region {
	for i := range m.regions {
		if m.regions[i].RKey == rkey {
			return &m.regions[i]
		}
	}
	return nil
}

// writable returns the n bytes at va under rkey. If ok is false, a remote access error is due, and
// why is its reason.
func (m *Memory) writable(va uint64, rkey uint32, n uint64) (b []byte, why Counter, ok bool) {
	r := m.lookUp(rkey)
	if r == nil {
		return nil, RequestsBadRKey, false
	}
	if r.Access&RemoteWrite == 0 {
		return nil, RequestsBadAccess, false
	}
	size := uint64(len(r.Bytes))
	if va < r.VA || va-r.VA > size || n > size-(va-r.VA) {
		return nil, RequestsBadRange, false
	}
	return r.Bytes[va-r.VA:][:n], 0, true
}
