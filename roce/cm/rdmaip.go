package cm

import (
	"encoding/binary"
	"net/netip"
)

// IPHeaderBytes is the length of an [IPHeader]. The program's own private data of a REQ follows it.
const IPHeaderBytes = 36

// IPHeader is what RDMA-CM puts in front of a REQ's private data (IBTA annex A11): the addresses by
// which a listener is found.
type IPHeader struct {
	Src, Dst netip.Addr // both IPv4 or both IPv6
	SrcPort  uint16
}

// Decode reads h from the front of a REQ's private data. False: the private data has no such
// header.
func (h *IPHeader) Decode(b *[92]byte) bool {
	h.SrcPort = binary.BigEndian.Uint16(b[2:])
	switch {
	case b[0] != 0:
		return false
	case b[1]>>4 == 4:
		h.Src, h.Dst = netip.AddrFrom4([4]byte(b[16:])), netip.AddrFrom4([4]byte(b[32:]))
	case b[1]>>4 == 6:
		h.Src, h.Dst = netip.AddrFrom16([16]byte(b[4:])), netip.AddrFrom16([16]byte(b[20:]))
	default:
		return false
	}
	return true
}

// Put writes h over the front of a REQ's private data.
func (h *IPHeader) Put(b *[92]byte) {
	clear(b[:IPHeaderBytes])
	binary.BigEndian.PutUint16(b[2:], h.SrcPort)
	if !h.Src.Is4() {
		b[1] = 0x60
		src, dst := h.Src.As16(), h.Dst.As16()
		copy(b[4:], src[:])
		copy(b[20:], dst[:])
		return
	}
	b[1] = 0x40
	src, dst := h.Src.As4(), h.Dst.As4()
	copy(b[16:], src[:])
	copy(b[32:], dst[:])
}

// tcpService is the service ID of RDMA-CM's port 0 in the port space of TCP (rdma_cm.h).
const tcpService uint64 = 0x01_06_0000

// ServiceID returns the service ID of a port of rdma_bind_addr.
func ServiceID(port uint16) uint64 { return tcpService | uint64(port) }

// GIDOf returns the GID of a port with this IP.
func GIDOf(ip netip.Addr) GID { return ip.As16() }
