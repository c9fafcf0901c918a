// Package workload defines the packets of a measurement: the addresses, QPNs, PSNs and memory of
// the source's packets and of each receiver's copies. The source, the receivers and every forwarder
// are configured from it. The frames that arrive are compared with frames that this package builds
// by itself, so that no forwarder checks its own result.
//
// All members use IPv4 without VLAN tags. Every packet is a WRITE ONLY of the whole payload, so
// every packet has a RETH: it is the kind of packet with the most fields to rewrite. The package
// does no I/O.
package workload

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The group as the source sees it. All groups use the same QPN and the same memory; each has an IP
// of its own.
const (
	GroupQPN  roce.QPN = 1
	MemoryVA           = 0x10000
	MemoryKey          = 0x77
	memoryLen          = 1 << 20
	slotBytes          = 4096 // successive WRITEs go to successive slots of the memory
	slots              = memoryLen / slotBytes

	// MaxReceivers is the number of flags in one word of the source's bookkeeping.
	MaxReceivers = 64
	// MaxGroups keeps the QPNs of all receivers within 24 bits.
	MaxGroups = 1 << 17

	firstSourceQPN   = 0x100000
	firstReceiverQPN = 0x200000
	hopLimit         = 64
	sourcePort       = 0xC001
)

// Memory is every group's memory as its source sees it.
var Memory = mft.VirtualRegion{VA: MemoryVA, Length: memoryLen, RKey: MemoryKey}

// SourceIP is the address of the source.
var SourceIP = netip.AddrFrom4([4]byte{10, 77, 0, 1})

const (
	firstReceiverIP = 10<<24 | 77<<16 | 2    // 10.77.0.2
	firstGroupIP    = 10<<24 | 128<<16 | 100 // 10.128.0.100
)

func ipv4(a uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, a)))
}

// GroupMAC is the Ethernet address to which the source sends. No interface has it, so a bridge
// floods the frames.
var GroupMAC = roce.MAC{2, 0, 0, 0, 0x47, 1}

// Rewriting says which parts of a copy a forwarder changes.
type Rewriting int

// Each level includes the levels above it in this list.
const (
	Nothing   Rewriting = iota // every receiver gets the frame as the source sent it
	Addresses                  // Ethernet and IP addresses, IP checksum
	Headers                    // also the TTL, QPN, PSN, VA and R_Key; the ICRC stays the received one
	All                        // also the ICRC: what a receiver's NIC accepts
)

func (r Rewriting) String() string {
	return [...]string{"nothing", "addresses", "headers, no ICRC", "headers and ICRC"}[r]
}

// Workload describes the traffic of one measurement.
type Workload struct {
	Payload   int // bytes of each packet, a multiple of 4
	Receivers int
	Groups    int
	// HostMACs and PortMACs are of the hosts' interfaces and of the box's ports; the source's are
	// first.
	HostMACs, PortMACs []roce.MAC
}

// Check refuses values for which the constants of this package have no room.
func (w *Workload) Check() error {
	switch {
	case w.Payload < 4 || w.Payload > slotBytes || w.Payload%4 != 0:
		return fmt.Errorf("payload of %d bytes: want a multiple of 4 from 4 to %d", w.Payload, slotBytes)
	case w.Receivers < 1 || w.Receivers > MaxReceivers:
		return fmt.Errorf("%d receivers: want 1 to %d", w.Receivers, MaxReceivers)
	case w.Groups < 1 || w.Groups > MaxGroups:
		return fmt.Errorf("%d groups: want 1 to %d", w.Groups, MaxGroups)
	}
	return nil
}

// FrameBytes is the length of every data frame.
func (w *Workload) FrameBytes() int { return HeaderBytes + w.Payload + 4 }

// HeaderBytes is Ethernet, IPv4, UDP, BTH and RETH.
const HeaderBytes = 14 + 20 + 8 + roce.BTHBytes + roce.RETHBytes

// MTU returns the MTU that the links need, at least Ethernet's usual one.
func (w *Workload) MTU() int { return max(1500, w.FrameBytes()-14) }

// GroupIP is the address of group g.
func GroupIP(g int) netip.Addr { return ipv4(firstGroupIP + uint32(g)) }

// GroupOf is the number of the group that has an address.
func GroupOf(ip uint32) int { return int(ip - firstGroupIP) }

// ReceiverIP is the address of receiver r.
func ReceiverIP(r int) netip.Addr { return ipv4(firstReceiverIP + uint32(r)) }

// ReceiverOf is the inverse of ReceiverIP. It may return a number that no receiver has.
func ReceiverOf(ip netip.Addr) int {
	if !ip.Is4() {
		return -1
	}
	b := ip.As4()
	return int(binary.BigEndian.Uint32(b[:])) - firstReceiverIP
}

// SourceQPN is the source's QP of group g.
func SourceQPN(g int) roce.QPN { return firstSourceQPN + roce.QPN(g) }

// SourceGroup is the inverse of SourceQPN.
func SourceGroup(q roce.QPN) int { return int(q) - firstSourceQPN }

// SourcePSN is the first PSN that the source sends to group g.
func SourcePSN(g int) roce.PSN { return roce.PSN(0x1000).Add(int32(3 * g)) }

// ReceiverQPN is the QP of receiver r for group g.
func ReceiverQPN(g, r int) roce.QPN { return firstReceiverQPN + roce.QPN(r*MaxGroups+g) }

// ReceiverPSN is the first PSN that the QP of receiver r for group g expects.
func ReceiverPSN(g, r int) roce.PSN { return roce.PSN(0x10000).Add(int32(0x10000*(r+1) + 5*g)) }

// Region is where receiver r keeps the memory of group g.
func Region(g, r int) mft.Region {
	return mft.Region{VA: uint64(0x7f00+r)<<32 | uint64(g)<<12, Length: memoryLen, RKey: uint32(0x1000 + r + g<<8)}
}

// VA returns the address in the group's memory to which the source's packet with this PSN WRITEs.
// It depends only on the lowest byte of the PSN, on which the source's tables rely.
func VA(psn roce.PSN) uint64 { return MemoryVA + uint64(psn)%slots*slotBytes }

// FirstQPN returns the QPN in a receiver's copies of group 0.
func (r Rewriting) FirstQPN(receiver int) roce.QPN {
	if r < Headers {
		return GroupQPN
	}
	return ReceiverQPN(0, receiver)
}

// FirstPSN is the PSN that the first copy for a receiver carries.
func (r Rewriting) FirstPSN(g, receiver int) roce.PSN {
	if r < Headers {
		return SourcePSN(g)
	}
	return ReceiverPSN(g, receiver)
}
