package dataplane

import (
	"net/netip"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// mapShare maps a frame where it lies, if it is a copy that the box above sends once for this box
// and others (mft.Mapping). From there on it is the packet that the box above would have sent to
// this one alone: it is checked, merged and retained as such, and captures show it so.
func mapShare(g *mft.Group, f *Frame) (is bool) {
	if f.Group != g.ID || f.Kind != KindData || f.View.Decode(f.Head(), f.Len()) != nil {
		return false // the core refuses it, if it is the group's
	}
	m := g.MappingOf(&f.View, f.Head())
	if m != nil {
		m.Apply(&f.View, f.Bytes(), &f.Original)
	}
	return m != nil
}

// mapped is what is kept of frames that were mapped.
type mapped struct {
	packets uint64
	newest  roce.PSN
	known   bool       // newest means something
	from    netip.Addr // the box that has shared copies with this one; not valid: none has
}

// count counts frame f, if it was mapped.
func (m *mapped) count(is bool, f *Frame) {
	if !is {
		return
	}
	m.packets++
	if psn := f.View.PSN(f.Head()); !m.known || psn.After(m.newest) {
		m.newest, m.known = psn, true
	}
}

// has reports whether packet psn, or a later one, came as a shared copy. next is the packet that
// the source sends next: what came from farther ahead may be damaged or forged, and proves no more.
func (m *mapped) has(psn, next roce.PSN) bool {
	if m.newest.After(next) {
		m.newest = next
	}
	m.known = m.known && !psn.After(m.newest) // else it is forgotten before PSNs wrap
	return m.known
}
