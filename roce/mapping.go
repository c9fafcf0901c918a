package roce

import "net/netip"

// Mapping turns packets of one flow into those of another on their way through a hop that is no
// router. All else of a packet, such as its hop limit, VA and R_Key, stays as it is. So a packet
// that was damaged on its way stays damaged.
type Mapping struct {
	edit   Edit
	dst    netip.Addr
	addPSN uint32
}

// NewMapping makes the mapping of packets of flow from to flow to. addPSN is added to their PSNs,
// modulo 2^24.
func NewMapping(from, to Flow, addPSN uint32) Mapping {
	m := Mapping{edit: NewEdit(from, to, nil), dst: from.Dst, addPSN: addPSN}
	const oneHop = 0x0100 // which Apply gives back; an Edit of IPv6 reads no checksum
	m.edit.Checksum = fold(uint32(m.edit.Checksum) + oneHop)
	return m
}

// Apply maps the packet that v locates, if it is one of the flow. was is where the packet is kept
// apart meanwhile.
func (m *Mapping) Apply(v *View, fragments [][]byte, was *Original) {
	head := fragments[0]
	was.Read(v, fragments)
	was.HopLimit++ // an Edit takes one
	v.PutICRC(fragments, m.edit.Apply(head, was.PSN.Add(int32(m.addPSN)), nil, was))
}
