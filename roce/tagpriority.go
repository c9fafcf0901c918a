package roce

// TagPriority says which priority (PCP) the VLAN tags get in a frame that the box sends. The zero
// value keeps the priority of the packet that caused the frame, in every tag. A tag of a VLAN
// device with an egress-qos-map gets what the map says instead.
//
//	0     3     6     9     12      13     14
//	| PCP | PCP | PCP | PCP | outer | inner |
//
// Outer and inner are the tags that the map counts for. Each PCP is that of one of the kernel's
// priorities (KernelPriority).
type TagPriority uint16

const (
	pcpBits     = 3
	mappedOuter = 1 << 12
	mappedInner = 1 << 13
	pcpShift    = 5 // of the PCP in the first byte of a tag's TCI
)

// KernelPriorities are the priorities that the kernel gives packets by their traffic class: it
// looks at two bits of the class (ip_tos2prio in route.c).
var KernelPriorities = [4]uint32{0, 2, 6, 4}

func kernelPriority(class uint8) int { return int(class >> 3 & 3) }

// NewTagPriority is the priority of the tag of a VLAN device with this egress-qos-map. A kernel
// priority that is not in the map has PCP 0, as for the kernel (vlan_dev.c). An empty map is the
// zero value.
func NewTagPriority(egressQosMap map[uint32]uint32) TagPriority {
	if len(egressQosMap) == 0 {
		return 0
	}
	p := TagPriority(mappedOuter)
	for i, priority := range KernelPriorities {
		p |= TagPriority(egressQosMap[priority]&7) << (pcpBits * i)
	}
	return p
}

// Around returns the priority of two tags, of which p is the outer one's and inner the inner one's.
// If both have a map, the outer one's counts for both.
func (p TagPriority) Around(inner TagPriority) TagPriority {
	switch {
	case inner == 0:
		return p
	case p == 0:
		return inner&^mappedOuter | mappedInner
	}
	return p | mappedInner
}

// Keeps reports whether the outer and the inner tag have the priority of the packet.
func (p TagPriority) Keeps() (outer, inner bool) { return p&mappedOuter == 0, p&mappedInner == 0 }

// Write writes the priorities into the tags of an Ethernet header, whose PCPs are 0. The packet
// that caused the frame has the priority pcp and the traffic class.
func (p TagPriority) Write(header []byte, pcp, class uint8) {
	mapped := uint8(p>>(pcpBits*kernelPriority(class))) & 7
	keepsOuter, keepsInner := p.Keeps()
	for at, keeps := etherBytes, keepsOuter; at < len(header); at, keeps = at+vlanBytes, keepsInner {
		priority := mapped
		if keeps {
			priority = pcp
		}
		header[at] |= priority << pcpShift
	}
}

// PCP returns the priority of the outermost tag of a frame that has one.
func (v *View) PCP(head []byte) uint8 {
	if v.VLANs == 0 {
		return 0
	}
	return head[etherBytes] >> pcpShift
}
