package nexthop

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/rocast/rocast/roce"
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86DD
	protocol8021Q = 0x8100
	macBytes      = 6
	maxTags       = 2
)

// tag is an 802.1Q or 802.1ad header.
type tag struct {
	protocol uint16
	vid      uint16
	priority roce.TagPriority
}

// tags are the VLAN tags pushed onto a frame on its way down; the outermost tag is the last
// element.
type tags struct {
	list  [maxTags]tag
	count int
}

var errTags = errors.New("frames to it need more than two VLAN tags, and rocast writes at most two")

func (t *tags) push(next tag) error {
	if t.count == maxTags {
		return errTags
	}
	t.list[t.count] = next
	t.count++
	return nil
}

// pop removes the outermost tag if the tag has this protocol.
func (t *tags) pop(protocol uint16) (last tag, ok bool) {
	if t.count == 0 || t.list[t.count-1].protocol != protocol {
		return tag{}, false
	}
	t.count--
	return t.list[t.count], true
}

// setHeader writes the Ethernet header of a frame that carries an IP packet for address.
func (h *Hop) setHeader(to, from MAC, t tags, address netip.Addr) {
	b := append(append(h.L2[:0], to[:]...), from[:]...)
	h.Priority = 0
	for i := range t.count {
		h.Priority = t.list[i].priority.Around(h.Priority)
	}
	for i := t.count - 1; i >= 0; i-- {
		b = binary.BigEndian.AppendUint16(b, t.list[i].protocol)
		b = binary.BigEndian.AppendUint16(b, t.list[i].vid)
	}
	etherType := uint16(etherTypeIPv4)
	if address.Is6() {
		etherType = etherTypeIPv6
	}
	h.L2Bytes = uint8(len(binary.BigEndian.AppendUint16(b, etherType)))
}
