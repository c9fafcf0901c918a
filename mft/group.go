package mft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// MaxPaths bounds the paths of one group. A group file with more is refused. It also bounds the
// copies that one received frame can cause.
const MaxPaths = 1024

// PortID numbers the interfaces that rocast is attached to, from 0 in the order of the
// configuration. It is not an ifindex: it indexes arrays in the data path.
type PortID uint16

// NoPort means that the kernel has not resolved the next hop yet.
const NoPort PortID = 0xFFFF

// Ports is a set of ports below BlockPorts.
type Ports uint64

// With returns the set with one more port. A port from BlockPorts on is left out.
func (s Ports) With(p PortID) Ports { return s | 1<<p }

// Has reports whether a port is in the set.
func (s Ports) Has(p PortID) bool { return s>>p&1 != 0 }

// Addressing says how the source names the group. The three ways are those of Cepheus, MC-RDMA and
// P4CE, in this order.
type Addressing uint8

const (
	// ByGroupIP: the source's peer IP is the group's own. Copies have it as source IP.
	ByGroupIP Addressing = iota
	// ByVirtualQPN: the source's peer IP is a receiver's real IP, and the dest QPN is the group's.
	// Copies keep the source's IP, and the receivers answer to it.
	ByVirtualQPN
	// BySwitchIP: the source's peer IP is the box's own, and the dest QPN is the group's. Copies
	// have the box's IP as source IP, those of the boxes below too.
	BySwitchIP
)

var addressingNames = [...]string{ByGroupIP: "group-ip", ByVirtualQPN: "virtual-qpn", BySwitchIP: "switch-ip"}

func (a Addressing) String() string { return addressingNames[a] }

// ParseAddressing is the inverse of String.
func ParseAddressing(s string) (Addressing, error) {
	for i, name := range addressingNames {
		if s == name {
			return Addressing(i), nil
		}
	}
	return 0, fmt.Errorf("addressing %q is not one of %q", s, addressingNames)
}

// Engine says which engine may carry a group's packets.
type Engine uint8

const (
	// EngineAuto: the kernel where it can, else AF_XDP.
	EngineAuto Engine = iota
	// EngineAFXDP: every packet goes to user space.
	EngineAFXDP
)

var engineNames = [...]string{EngineAuto: "auto", EngineAFXDP: "afxdp"}

func (e Engine) String() string { return engineNames[e] }

// ParseEngine is the inverse of String.
func ParseEngine(s string) (Engine, error) {
	for i, name := range engineNames {
		if s == name {
			return Engine(i), nil
		}
	}
	return 0, fmt.Errorf("engine %q is not one of %q", s, engineNames)
}

// BufferBytes is the size of a buffer of packet memory. What is retained for repair is counted in
// buffers.
const BufferBytes = 4096

// PacketBytes is the packet memory of a full packet with a path MTU: one buffer, or two for a path
// MTU of 4096.
func PacketBytes(pathMTU int) int { return BufferBytes * (1 + pathMTU/BufferBytes) }

// Group is a source and its receivers. It is immutable once it is in a table.
type Group struct {
	ID   GroupID  // set by Table.With
	QPN  roce.QPN // what the QP of a source on a host has as remote QPN
	Name string

	IP         netip.Addr // what the QP of a source on a host has as peer IP
	Addressing Addressing
	// Restored: the group is older than this run of the daemon, so what its paths have acknowledged
	// is unknown (feedback.Config.Restored).
	Restored bool
	// Turn is the turn with which a restored group begins; nil: the Source's first one.
	Turn *Turn
	// Parts are the members that do not take part when their paths are new, and how: they are
	// joining, waiting, behind or gone. Later the merging knows that by itself, except when those
	// join that are waiting: those join when a version no longer lists them as waiting.
	Parts []Part
	// Joins are the members of a restored group that have joined in its Turn, and where. Of the
	// packets before, the source may still wait for some (feedback.Config.Joined).
	Joins []Join
	// KeepsTurns: another member's turn begins only when control has stored it.
	KeepsTurns bool
	PathMTU    int // payload bytes of a full packet: 256, 512 .. 4096
	// Memory is what the source may WRITE to. nil: copies keep the address and the R_Key of a
	// WRITE. Without ranges: every WRITE is refused.
	Memory *Memory
	Policy feedback.Policy
	Engine Engine
	// Uplinks are the ports of all next hops of the members that are Multipath. The group has one
	// set for all of them, because a set for each path would take 8 bytes more per path.
	Uplinks Ports
	// Tagged are the legs' VLANs whose tags have a priority of their own, each once. Tags of all
	// other VLANs have the priority of the packet that caused the frame.
	Tagged []Tagged

	Source Source
	// Paths are sorted by (peer IP, RemoteQPN), see FindPath.
	Paths []Path
	// Shares are the legs by which copies leave for several paths at once.
	Shares []Share
	// Relay is set if this box passes the group's frames on for another box, which merges.
	Relay *Relay
	// Mappings are of copies that the Source, which is the box above, shares between several boxes.
	Mappings []Mapping

	// Set by Table.With, for groups with mappings or shares.
	maps       []roce.Mapping // parallel to Mappings
	shareOf    []int8         // per path; -1: it shares nothing
	mappedBy   []int8         // per path; -1: its edge maps nothing
	sharePaths []Path         // parallel to Shares
}

// Leg says how a frame leaves the box towards one host: port, Ethernet header, addresses and QP.
//
// Each path of each group has a Leg, so the order of the fields, like that of Path's, leaves no
// gaps: see BenchmarkMemory.
type Leg struct {
	Port PortID // NoPort: not resolved
	// L2 is the whole Ethernet header of a frame on this leg, with VLAN tags and EtherType. L2Bytes
	// of it are used (14, 18 or 22).
	L2      [22]byte
	DestQPN roce.QPN // the host's QP
	L2Bytes uint8
	// Multipath: the route to the host has several next hops, and each end of it chooses one for
	// itself. So the host's frames may come by any port of Group.Uplinks.
	Multipath bool
	// Receivers is how many receivers a quorum counts behind this leg, all of them or none: those
	// of a box, if the host is one. 0: one.
	Receivers uint16
	Src       netip.Addr // IP source of frames on this leg: what the host's QP has as peer IP
	Dst       netip.Addr // the host
}

// Hears reports whether frames of a leg's host are taken from a port.
func (g *Group) Hears(l *Leg, p PortID) bool {
	return p == l.Port || l.Multipath && g.Uplinks.Has(p)
}

// Resolved reports whether the kernel has found the way to the host.
func (l *Leg) Resolved() bool { return l.Port != NoPort }

// Source is the member that sends first.
type Source struct {
	Leg
	RemoteQPN roce.QPN // the dest QPN of its data; 0: the group's, set by Table.With
	FirstPSN  roce.PSN // the first PSN its QP sends
	// Path is the index of the path to the source itself, for a member that is source and receiver.
	// -1: the source only sends. Set by Table.With.
	Path int
}

// Path is an outgoing branch of the group: the way to one receiver's QP.
type Path struct {
	Leg
	RemoteQPN roce.QPN // the dest QPN of its feedback, and of its data if it Sends
	FirstPSN  roce.PSN // the first PSN its QP expects
	SendPSN   roce.PSN // the first PSN its QP sends, if it Sends
	// Rank numbers the paths of the group that share Port, from 0. Copies of one frame that leave
	// by one port have different ranks.
	Rank    uint16
	Sends   bool // role both: the member may become the source
	Box     Box
	Regions Regions // where Group.Memory is at the receiver
}

// Box tells whether a path leads to another box of the group's tree.
type Box uint8

const (
	// NoBox: the path leads to a host.
	NoBox Box = iota
	// BoxBelow: the path leads to a box that carries the group for this one.
	BoxBelow
	// BoxAbove: this box carries the group for the other one, whose path never leaves
	// (feedback.Group.Need).
	BoxAbove
)

// QP names the queue pair of the path's member.
func (p *Path) QP() QP { return QP{p.Dst, p.RemoteQPN} }

// DeltaPSN is the path's first PSN minus the source's.
func (g *Group) DeltaPSN(path int) int32 {
	return g.Paths[path].FirstPSN.Sub(g.Source.FirstPSN)
}

// VLANs are the tags of an Ethernet header as TPID and VLAN ID, the outermost first. 0: no tag. A
// tag with VLAN ID 0 carries only a priority (IEEE 802.1Q) and is left out.
type VLANs [2]uint32

// VLANsOf returns the tags of an Ethernet header. b is the whole header.
func VLANsOf(b []byte) (v VLANs) {
	const macBytes, tagBytes, etherTypeBytes = 12, 4, 2
	n := 0
	for at := macBytes; at+tagBytes+etherTypeBytes <= len(b) && n < len(v); at += tagBytes {
		const idMask = 0x0FFF
		if tag := binary.BigEndian.Uint32(b[at:]); tag&idMask != 0 {
			v[n] = tag & (0xFFFF<<16 | idMask)
			n++
		}
	}
	return v
}

// VLANs are the tags of frames on this leg.
func (l *Leg) VLANs() VLANs { return VLANsOf(l.L2[:l.L2Bytes]) }

// FindPath returns the index of the path whose member is at ip and whose feedback carries
// remoteQPN, or -1.
func (g *Group) FindPath(ip netip.Addr, remoteQPN roce.QPN) int {
	if i := g.search(ip, remoteQPN); i < len(g.Paths) && g.Paths[i].Dst == ip && g.Paths[i].RemoteQPN == remoteQPN {
		return i
	}
	return -1
}

// search returns the index of the first path that is not less than (ip, remoteQPN).
func (g *Group) search(ip netip.Addr, remoteQPN roce.QPN) int {
	lo, hi := 0, len(g.Paths)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if p := &g.Paths[mid]; comparePeer(p.Dst, p.RemoteQPN, ip, remoteQPN) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// FindSender returns the index of the path to the member at ip that may become the source, or -1.
func (g *Group) FindSender(ip netip.Addr) int {
	for i := g.search(ip, 0); i < len(g.Paths) && g.Paths[i].Dst == ip; i++ {
		if g.Paths[i].Sends {
			return i
		}
	}
	return -1
}

// FindMember returns the index of a path to ip, for any QPN of its feedback, or -1. It
// distinguishes a wrong QPN from a host that is not a receiver.
func (g *Group) FindMember(ip netip.Addr) int {
	if i := g.search(ip, 0); i < len(g.Paths) && g.Paths[i].Dst == ip {
		return i
	}
	return -1
}

func comparePeer(aIP netip.Addr, aQPN roce.QPN, bIP netip.Addr, bQPN roce.QPN) int {
	if c := aIP.Compare(bIP); c != 0 {
		return c
	}
	return cmp.Compare(aQPN, bQPN)
}

// checkFamilies refuses a group that mixes IPv4 and IPv6: a frame has only one of them.
func (g *Group) checkFamilies() error {
	want := g.Source.Dst.Is4()
	for _, l := range g.Legs() {
		if l.Dst.Is4() != want || l.Src.IsValid() && l.Src.Is4() != want {
			return fmt.Errorf("the leg to %v mixes IPv4 and IPv6", l.Dst)
		}
	}
	return nil
}

// Weight is how many receivers a quorum counts for path i.
func (g *Group) Weight(i int) int { return max(1, int(g.Paths[i].Receivers)) }

// Flow returns the addresses and the dest QPN of the data that the member of a path sends. Below 0:
// those of the Source.
func (g *Group) Flow(path int) roce.Flow {
	leg := g.Leg(path)
	return roce.Flow{Src: leg.Dst, Dst: leg.Src, DestQPN: g.RemoteQPN(path)}
}

// Leg returns the leg of a path. Below 0: that of the Source.
func (g *Group) Leg(path int) *Leg {
	if path < 0 {
		return &g.Source.Leg
	}
	return &g.Paths[path].Leg
}

// RemoteQPN returns the remote QPN of the QP of a path's member. Below 0: of the Source's.
func (g *Group) RemoteQPN(path int) roce.QPN {
	if path < 0 {
		return g.Source.RemoteQPN
	}
	return g.Paths[path].RemoteQPN
}

// fillIn gives members without a peer of their own the peer that the addressing says.
func (g *Group) fillIn() {
	if g.Source.RemoteQPN == 0 {
		g.Source.RemoteQPN = g.QPN
	}
	if !g.Source.Src.IsValid() {
		g.Source.Src = g.IP
	}
	peer := g.IP
	if g.Addressing == ByVirtualQPN {
		peer = g.Source.Dst
	}
	for i := range g.Paths {
		if p := &g.Paths[i]; !p.Src.IsValid() {
			p.Src = peer
		}
	}
	g.Shares = slices.Clone(g.Shares)
	for k := range g.Shares {
		if s := &g.Shares[k]; !s.Src.IsValid() {
			s.Src = peer
		}
	}
}

// Legs returns the legs of all members: the source's, then the paths'.
func (g *Group) Legs() []*Leg {
	legs := []*Leg{&g.Source.Leg}
	for i := range g.Paths {
		legs = append(legs, &g.Paths[i].Leg)
	}
	return legs
}

// seal sorts the paths, numbers those that share a port, releases their spare capacity, and checks
// what the data path relies on.
func (g *Group) seal() error {
	if len(g.Paths) == 0 {
		return errors.New("a group needs at least one receiver")
	}
	if len(g.Paths) > MaxPaths {
		return fmt.Errorf("%d receivers are more than the %d that a group can have", len(g.Paths), MaxPaths)
	}
	g.Paths = slices.Clone(g.Paths) // append leaves up to twice the capacity
	g.fillIn()
	slices.SortFunc(g.Paths, func(a, b Path) int {
		return comparePeer(a.Dst, a.RemoteQPN, b.Dst, b.RemoteQPN)
	})
	if err := g.checkFamilies(); err != nil {
		return err
	}
	g.Source.Path = -1
	ranks := map[PortID]uint16{}
	var sender netip.Addr // the last path's that may send: paths are sorted by host
	for i := range g.Paths {
		p := &g.Paths[i]
		if i > 0 && g.Paths[i-1].Dst == p.Dst && g.Paths[i-1].RemoteQPN == p.RemoteQPN {
			return fmt.Errorf("two receivers at %v both name QPN %d as their peer, so their feedback cannot be "+
				"told apart; give one a different remoteQPN", p.Dst, p.RemoteQPN)
		}
		if !p.Regions.fit(g.Memory) {
			return fmt.Errorf("receiver %v does not have one region for each of the %d ranges of the group's memory",
				p.Dst, g.Memory.Len())
		}
		if p.Sends && g.Addressing == ByVirtualQPN {
			return fmt.Errorf("receiver %v may become the source, but with virtual-qpn only the source may send", p.Dst)
		}
		if p.Sends && sender == p.Dst {
			return fmt.Errorf("two members at %v may both send, and their data cannot be told apart", p.Dst)
		}
		if p.Sends {
			sender = p.Dst
		}
		if p.Sends && p.Dst == g.Source.Dst {
			g.Source.Path = i
		}
		p.Rank = ranks[p.Port]
		ranks[p.Port]++
	}
	if err := errors.Join(g.sealRelay(ranks), g.sealMappings()); err != nil {
		return err
	}
	return g.sealShares(ranks)
}
