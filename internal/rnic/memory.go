package rnic

import (
	"errors"
	"fmt"
)

// Access says what the peer may do with a region.
type Access uint8

// RemoteWrite permits RDMA WRITE. A region without it is known by its key, and refuses.
const RemoteWrite Access = 1

// Region is registered memory. The responder writes into Bytes; the owner of the queue pairs decides when it is safe to
// read.
type Region struct {
	VA     uint64 // what the peer calls Bytes[0]
	RKey   uint32
	Access Access
	Bytes  []byte
}

// Memory is a protection domain: the regions a host's queue pairs share. The zero value has none.
type Memory struct {
	regions []Region // few: found by walking
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

// Deregister forgets a region. Requests that name it are refused from now on, also the rest of a message.
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

// writable finds the n bytes at va under rkey. ok is false where a remote access error is due, and why says which.
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
